"""The reward gradient and its standard error (Theorem 2, eq. 3).

With a_s a round's reward less its baseline and z_s = Σ_{t ≤ s} log p_t, the estimator
Σ_t ∇log p_t Σ_{s ≥ t} a_s is the gradient of the scalar Σ_s a_s z_s with a held fixed. One surrogate
thus serves every policy, and it is a running sum. Few parameters are differentiated in forward
mode, which stores nothing and gives each instance its own gradient; many in reverse mode.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from gradband import blocks, random, rollout
from gradband.baselines import BASELINES, runs_for
from gradband.errors import InputError, shown, unknown, whole
from gradband.policies import Params, Policy, as_policy
from gradband.problems import Problem, as_problem

FEW = 8  # parameters up to which forward mode is used
RETURNS = ("realised", "expected")


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A gradient estimate from m instances. Its arrays are flat, in the order of `params`' leaves."""

    mean: np.ndarray
    """the gradient ĝ [P]"""
    se: np.ndarray
    """its standard error [P]"""
    spread: np.ndarray
    """the standard deviation of a single instance's estimate, ĝ with m = 1 [P]"""
    per_instance: np.ndarray | None
    """gradients [P, m] of the instances, in forward mode"""
    regrets: np.ndarray
    """regrets [m] of the instances, averaged over runs"""

    @property
    def norm(self) -> float:
        return float(np.linalg.norm(self.mean))


@dataclasses.dataclass(frozen=True)
class Estimator:
    """How to estimate: baseline, number of runs on an instance, and what a return is made of.

    >>> Estimator("self").runs
    2
    """

    baseline: str = "self"
    runs: int | None = None
    returns: str = "realised"

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", runs_for(self.baseline, self.runs))
        if self.returns not in RETURNS:
            raise unknown("returns", self.returns, RETURNS)

    def check(self, policy: Policy, problem: Problem) -> None:
        """Refuses policies and problems that this estimate does not exist for."""
        if not policy.differentiable:
            raise InputError(
                f"{policy.name} has no density p(i | H) to differentiate: it can be compared, not learned"
            )
        if not jax.tree.leaves(jax.eval_shape(policy.init, jax.random.key(0))):
            raise InputError(f"{policy.name} has no parameters to learn")
        if problem.prior.knows_means:
            return
        if self.baseline == "optimal":
            raise InputError(
                "the baseline optimal needs to know the best arm, and the means of this problem "
                "are unknown: use self"
            )
        if self.returns == "expected":
            raise InputError("expected returns need means, which this problem does not know")


def as_estimator(given: Estimator | str) -> Estimator:
    """An estimator, or the usual one with this baseline."""
    if isinstance(given, str):
        return Estimator(given)
    if isinstance(given, Estimator):
        return given
    raise InputError(f"an estimator must be an Estimator or a baseline's name, not {shown(given)}")


def estimate(
    policy: Policy | str,
    problem: Problem | str,
    params: Params | None = None,
    *,
    instances: int = 1000,
    estimator: Estimator | str = "self",
    seed: int = 0,
    devices: int | None = None,
) -> Estimate:
    """Estimates ∇r(n; θ) on fresh instances.

    >>> from gradband import policies, problems
    >>> g = estimate(policies.SoftElim(), problems.named("two-point", horizon=20), instances=256)
    >>> g.mean.shape, g.per_instance.shape
    ((1,), (1, 256))
    """
    problem = as_problem(problem)
    bound = rollout.check(as_policy(policy), problem)
    how = as_estimator(estimator)
    how.check(bound, problem)
    whole("instances", instances, least=2)
    key = random.root(seed)
    params = bound.init(random.stream(key, "init")) if params is None else bound.as_params(params)
    return compute(bound, jax.device_put(problem), params, key, 0, instances, how, blocks.workers(devices))


def compute(
    policy: Policy,
    problem: Problem,
    params: Params,
    key: Array,
    batch: int,
    instances: int,
    how: Estimator,
    on: tuple[Any, ...],
    temperature: float | None = None,
) -> Estimate:
    """`estimate` for a bound policy and checked input, on the key's batch of this number."""
    size = blocks.block_size(problem.arms)
    tau = None if temperature is None else np.float32(temperature)
    few = sum(leaf.size for leaf in jax.tree.leaves(params)) <= FEW
    function = partial(_differentiate, policy.compiled(), how, size, few)
    operands = problem, params, key, np.uint32(batch), np.int32(instances), tau
    results = blocks.map_blocks(function, operands, instances, size, on)
    regret = blocks.join([regret for _, regret in results], instances)
    if few:
        each = blocks.join([gradients for gradients, _ in results], instances)
        mean, spread = each.mean(1), each.std(1, ddof=1) if instances > 1 else np.nan * each[:, 0]
        return Estimate(mean, spread / np.sqrt(instances), spread, each, regret)
    # A block's gradient is a sum over its instances: blocks are the sample.
    sums = np.array([gradient for gradient, _ in results], np.float64)
    filled = np.minimum(instances - size * np.arange(len(sums)), size)
    mean = sums.sum(0) / instances
    residual = sums - filled[:, None] * mean
    count = len(residual)
    variance = (residual**2).sum(0) / instances * count / (count - 1) if count > 1 else np.nan * mean
    return Estimate(mean, np.sqrt(variance / instances), np.sqrt(variance), None, regret)


def _surrogate(
    policy: Policy,
    how: Estimator,
    size: int,
    problem: Problem,
    params: Params,
    key: Array,
    block: Array,
    temperature: Array | None,
) -> tuple[Array, Array]:
    """Σ_s a_s z_s [B] of a block's instances, averaged over runs, and their regrets [B]."""
    baseline = BASELINES[how.baseline]

    def observe(seen: tuple[Array, Array, rollout.Regret], round: rollout.Round) -> Any:
        score, total, regret = seen
        score = score + round.log_prob
        realised = how.returns == "realised"
        reward, best = (round.reward, round.best_reward) if realised else (round.mean, round.best_mean)
        assert reward is not None
        centred = reward - baseline(reward, best)
        return score, total + centred * score, regret.add(round)

    def start(score: Array) -> tuple[Array, Array, rollout.Regret]:
        zeros = jnp.zeros_like(score)
        return score, zeros, rollout.Regret.zero(problem, zeros)

    _, total, regret = rollout.play(
        policy, problem, params, key, block, size, how.runs or 1, observe, start, temperature
    )
    return total.mean(0), regret.total.mean(0)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _differentiate(
    policy: Policy,
    how: Estimator,
    size: int,
    few: bool,
    problem: Problem,
    params: Params,
    key: Array,
    batch: Array,
    instances: Array,
    temperature: Array | None,
    block: Array,
) -> tuple[Array, Array]:
    """Gradients of a block's instances, and their regrets [B].

    With `few` parameters each instance's own gradient [P, B], in forward mode; otherwise their sum [P].
    """
    flat, unravel = ravel_pytree(params)
    key = jax.random.fold_in(key, batch)

    def surrogate(flat: Array) -> tuple[Array, Array]:
        return _surrogate(policy, how, size, problem, unravel(flat), key, block, temperature)

    def along(direction: Array) -> tuple[Array, Array]:
        (_, regret), (derivative, _) = jax.jvp(surrogate, (flat,), (direction,))
        return derivative, regret

    def total(flat: Array) -> tuple[Array, Array]:
        value, regret = surrogate(flat)
        counted = block * size + jnp.arange(size) < instances
        return jnp.where(counted, value, 0).sum(), regret

    if not few:
        return jax.grad(total, has_aux=True)(flat)
    if flat.size == 1:
        derivative, regret = along(jnp.ones(1, flat.dtype))
        return derivative[None], regret
    derivatives, regrets = jax.vmap(along)(jnp.eye(flat.size, dtype=flat.dtype))
    return derivatives, regrets[0]
