"""The gradient of an LSTM through all rounds of a block, by compiled code in place of XLA.

XLA draws what is drawn, compiled code plays all rounds, XLA says how the surrogate changes with every
score, from what was done, and compiled code goes back from there to the weights. So whatever a surrogate
is made of stays where it is written.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from gradband.engine import rollout
from gradband.engine.again import Again, Done
from gradband.engine.blocks import Compiled
from gradband.engine.memory import Needs
from gradband.engine.recurrent import kernel
from gradband.engine.recurrent.forward import Shape
from gradband.engine.recurrent.kernel import Slopes, Weights
from gradband.gradient.baselines import BASELINES
from gradband.gradient.surrogate import Operands, SurrogateSpec, kind_of
from gradband.policies import LSTM, Params, Policy
from gradband.problems import Problem
from gradband.problems.rewards import Bernoulli, Gaussian

FORMULAS = ("begin", "folded", "log_probs", "update")


def compiled_for(spec: SurrogateSpec, given: Operands) -> Compiled | None:
    """What computes blocks of a gradient in place of XLA, if anything does."""
    if not _is_served(spec, given.problem):
        return None
    block = kernel.bytes_for(_shape(spec.policy), given.problem.rounds, spec.rollouts * spec.size)
    result = 4 * (sum(leaf.size for leaf in jax.tree.leaves(given.params)) + spec.size)
    shared = sum(getattr(leaf, "nbytes", 4) for leaf in jax.tree.leaves(given))
    return Compiled(differentiate, Needs(shared, block, result))


def _is_served(spec: SurrogateSpec, problem: Problem) -> bool:
    """Whether compiled code knows the policy, and the surrogate asks nothing else of it."""
    policy, rule = spec.policy, spec.baseline
    if not isinstance(policy, LSTM) or any(
        getattr(type(policy), name) is not getattr(LSTM, name) for name in FORMULAS
    ):
        return False
    simple = problem.pulls_per_round == 1 and not problem.afterwards and not problem.prior.contextual
    simple = simple and problem.delay is None and problem.guardrails is None
    cheap = isinstance(problem.prior.rewards, Bernoulli | Gaussian)  # to draw for all arms
    few = policy.arms <= rollout.FEW_ARMS and spec.rollouts * spec.size % kernel.LANES == 0
    # Rewards are 0 and 1 where the policy may be asked what either would change.
    known = type(rule) in map(type, BASELINES.values()) and (policy.unit or not rule.looks_ahead)
    return simple and cheap and few and known


def differentiate(
    spec: SurrogateSpec, given: Operands, block: np.int32
) -> tuple[Array, Array, Array | None]:
    """As `surrogate.differentiate`, the same to rounding."""
    compiled = kernel.kernel_for(_shape(spec.policy))
    uniforms, rewards, weights = jax.tree.map(np.ascontiguousarray, _draw(spec, given, block))
    done = compiled.play(weights, uniforms, rewards, spec.baseline.looks_ahead)
    slopes, seen = _judge(spec, given._replace(params={}), block, *done)
    found = compiled.differentiate(weights, rewards, done[0], np.ascontiguousarray(slopes))
    return _unfold(spec.policy, given.params, given.temperature, found), *seen


def _shape(policy: Policy) -> Shape:
    assert isinstance(policy, LSTM)
    return Shape(policy.hidden, policy.arms)


def _again(spec: SurrogateSpec, given: Operands) -> tuple[SurrogateSpec, Operands]:
    """The same for a policy that does again what was done."""
    policy = Again().bind(spec.policy.arms, spec.policy.horizon)
    key = jax.random.fold_in(given.key, given.iteration)
    own = given._replace(params={}, key=key, temperature=None)
    return dataclasses.replace(spec, policy=policy), own


@partial(jax.jit, static_argnums=0)
def _draw(spec: SurrogateSpec, given: Operands, block: Array) -> tuple[Array, Array, Weights]:
    """Uniforms [n, N], what the network would hear of every arm [n, K, N], and its weights."""
    policy: Any = spec.policy
    again, own = _again(spec, given)
    plain = rollout.RolloutSpec(again.policy, spec.size, spec.rollouts)
    uniforms, rewards = rollout.draws(plain, rollout.Operands(own.problem, {}, own.key, block))
    n, k, _, size = rewards.shape
    heard = jnp.broadcast_to(policy.heard(rewards), (n, k, spec.rollouts, size)).reshape(n, k, -1)
    return uniforms.reshape(n, -1), heard, weights(policy, given.params, given.temperature)


def weights(policy: Any, params: Params, temperature: Any) -> Weights:
    """The weights as compiled code reads them."""
    folded, d = policy.folded(params), policy.hidden
    head, bias = folded["head"], folded["head_bias"]
    if temperature is not None:
        head, bias = head / temperature, bias / temperature
    rows, own = _shape(policy).rows, folded["recurrent"].reshape(4, d, d)
    gates = jnp.concatenate([own, folded["heard"].reshape(4, d, -1)], axis=2).transpose(1, 2, 0)
    back = own.transpose(1, 0, 2).reshape(4 * d, d // rows, rows).transpose(1, 0, 2)
    return Weights(gates, head, bias, back, head.T)


@partial(jax.jit, static_argnums=0)
def _judge(
    spec: SurrogateSpec, given: Operands, block: Array, arms: Array, log_probs: Array, after: Array | None
) -> tuple[Array, Any]:
    """Derivatives of the summed surrogate with respect to scores [n, K, N], and what else is seen."""
    again, own = _again(spec, given)
    counted = block * spec.size + jnp.arange(spec.size) < given.instances
    shape = again.rollout.shape
    pulled = arms.astype(jnp.int32).reshape(-1, *shape)
    ends = None if after is None else after.reshape(*after.shape[:3], *shape)

    def total(scores: Array) -> tuple[Array, Any]:
        by_rollout = jax.nn.log_softmax(scores, axis=1).reshape(*scores.shape[:2], *shape)
        kind = kind_of(again, own)(
            again, own, Done(pulled, by_rollout, None if ends is None else (ends[0], ends[1]))
        )
        value, seen = kind.of(block, counted)
        return jnp.where(counted, value, 0).sum(), seen

    return jax.grad(total, has_aux=True)(log_probs)


@partial(jax.jit, static_argnums=0)
def _unfold(policy: Any, params: Params, temperature: Any, found: Slopes) -> Array:
    """The gradient [P] from derivatives with respect to the weights of compiled code."""
    flat, unravel = ravel_pytree(params)

    def own(flat: Array) -> tuple[Array, Array, Array]:
        return weights(policy, unravel(flat), temperature)[:3]

    inputs = _shape(policy).inputs
    gates = found.gates[..., :inputs].transpose(0, 2, 1)
    return jax.vjp(own, flat)[1]((gates, found.head.sum(-1), found.bias.sum(-1)))[0]
