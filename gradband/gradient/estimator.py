"""The reward gradient and its standard error (Theorem 2, eq. 3).

With a_s a round's reward less its baseline and z_s = Σ_{t ≤ s} log p_t, the estimator
Σ_t ∇log p_t Σ_{s ≥ t} a_s is the gradient of the scalar Σ_s a_s z_s with a held fixed. One surrogate
thus serves every policy, and it is a running sum. Few parameters are differentiated in forward
mode, which stores nothing but what a critic needs and gives each instance its own gradient; many in
reverse mode.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from gradband.core import prng
from gradband.core.errors import InputError, shown, unknown, whole
from gradband.core.pytrees import brief
from gradband.engine import blocks, diagnosis, rollout
from gradband.gradient import critic
from gradband.gradient.baselines import BASELINES, rollouts_for
from gradband.gradient.critic import Critic
from gradband.policies import Params, Policy, as_policy, binding
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
    """regrets [m] of the instances, averaged over rollouts"""
    moments: np.ndarray | None = None
    """what a critic learns from [n, F, F + 1]"""
    fault: str = ""
    """what went wrong, if a regret is not a number"""

    def __repr__(self) -> str:
        numbers = (f"{name}={brief(getattr(self, name))}" for name in ("mean", "se", "spread"))
        return f"Estimate({', '.join(numbers)}, {self.regrets.size} instances)"

    @property
    def norm(self) -> float:
        return float(np.sqrt(np.sum(self.mean**2)))  # not by BLAS, whose idle threads keep cores busy


@dataclasses.dataclass(frozen=True)
class Estimator:
    """How to estimate: baseline, number of rollouts on an instance, and what a return is made of.

    >>> Estimator("self").rollouts
    2
    """

    baseline: str = "self"
    rollouts: int | None = None
    returns: str = "realised"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rollouts", rollouts_for(self.baseline, self.rollouts))
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
        if self.baseline == "luck":
            problem.one_by_one("the baseline luck")
        if problem.prior.knows_means:
            return
        if self.baseline in ("optimal", *critic.FEATURES):
            raise InputError(
                f"the baseline {self.baseline} needs to know the best arm, and the means of this problem "
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
    memory: int | str | None = None,
) -> Estimate:
    """Estimates ∇r(n; θ) on fresh instances.

    >>> from gradband import policies, problems
    >>> g = estimate(policies.SoftElim(), problems.named("two-point", horizon=20), instances=256)
    >>> g.mean.shape, g.per_instance.shape
    ((1,), (1, 256))
    """
    problem = as_problem(problem)
    bound = binding.check(as_policy(policy), problem)
    how = as_estimator(estimator)
    how.check(bound, problem)
    whole("instances", instances, least=2)
    key = prng.root(seed)
    params = bound.init(prng.stream(key, "init")) if params is None else bound.as_params(params)
    on = blocks.workers(devices, memory)
    task = jax.device_put(problem)

    def run(iteration: int, learned: Critic | None = None) -> Estimate:
        return compute(
            gradient_job(bound, task, params, key, iteration, instances, how, learned=learned), on
        )

    blank = Critic.blank(how.baseline, problem.rounds)
    if blank is None:
        found = run(0)
    else:
        first = run(1, blank)  # by instances of its own
        assert first.moments is not None
        found = run(0, blank.after(first.moments))
        found = dataclasses.replace(found, fault=first.fault or found.fault)
    if found.fault:
        raise InputError(found.fault)
    return found


def gradient_job(
    policy: Policy,
    problem: Problem,
    params: Params,
    key: Array,
    iteration: int,
    instances: int,
    how: Estimator,
    temperature: float | None = None,
    entropy: float | None = None,
    learned: Critic | None = None,
) -> blocks.BlockJob:
    """The gradient of a bound policy, for checked input, on the instances of this iteration.

    With an `entropy` β, the gradient of β Σ_t H(p_t) along the rollouts is added to it.
    """
    tau, beta = (None if each is None else np.float32(each) for each in (temperature, entropy))
    few = _few(params)
    kept = blocks.kept_block_size(how.rollouts or 1, problem.rounds)
    size = blocks.block_size(problem.arms) if few and learned is None else kept
    weights = None if learned is None else learned.weights
    operands = problem, params, key, np.uint32(iteration), np.int32(instances), tau, beta, weights
    return blocks.BlockJob(_differentiate, (policy.compiled(), how, size, few), operands, instances, size)


def compute(job: blocks.BlockJob, on: blocks.Workers) -> Estimate:
    """The estimate from the blocks of a `gradient_job`."""
    policy, how, size, few = job.settings
    problem, params, key, iteration, _, tau, _, weights = job.operands
    instances, results = job.instances, blocks.map_blocks(job, on)
    taught = None
    if weights is not None:
        taught = np.array([moments for _, _, moments in results], np.float64).sum(0)
    regret = blocks.join([regret for _, regret, _ in results], instances)
    fault = diagnosis.fault(policy, problem, params, key, regret, how.rollouts or 1, tau, iteration)
    if not few:
        found = from_blocks([result[:2] for result in results], instances, size)
        return dataclasses.replace(found, moments=taught, fault=fault)
    each = blocks.join([gradients for gradients, _, _ in results], instances)
    mean, spread = each.mean(1), each.std(1, ddof=1) if instances > 1 else np.nan * each[:, 0]
    return Estimate(mean, spread / np.sqrt(instances), spread, each, regret, taught, fault)


def _few(params: Params) -> bool:
    """Whether each instance has a gradient of its own, in forward mode."""
    return sum(leaf.size for leaf in jax.tree.leaves(params)) <= FEW


def from_blocks(results: list[tuple[np.ndarray, np.ndarray]], instances: int, size: int) -> Estimate:
    """The estimate from the blocks' summed gradients [P] and regrets [B]: blocks are the sample."""
    regret = blocks.join([regret for _, regret in results], instances)
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
    entropy: Array | None,
    weights: Array | None,
    counted: Array,
    kept: bool,
) -> tuple[Array, tuple[Array, Array | None]]:
    """Σ_s a_s z_s [B] of a block's instances, averaged over rollouts, their regrets [B], critic's moments.

    With a critic, whose `weights` are [n, F], it is Σ_t (G_t − V_t) log p_t, from what was recorded.
    """
    baseline = BASELINES[how.baseline]

    def centred(round: rollout.Round) -> Array:
        realised = how.returns == "realised"
        reward, best = (round.reward, round.best_reward) if realised else (round.mean, round.best_mean)
        assert reward is not None
        return reward - baseline(reward, best)

    def observe(seen: tuple[Array, Array, rollout.Regret], round: rollout.Round) -> Any:
        score, total, regret = seen
        if weights is None:
            score = score + round.log_prob
            total = total + centred(round) * score
        if entropy is not None:
            assert round.log_probs is not None
            possible = round.log_probs > -jnp.inf
            log_probs = jnp.where(possible, round.log_probs, 0)
            total = total - entropy * jnp.where(possible, jnp.exp(log_probs) * log_probs, 0).sum(0)
        return score, total, regret.add(round)

    def record(round: rollout.Round) -> Any:
        if weights is None:
            return None
        assert round.log_probs is not None
        assert round.means is not None
        gaps = round.means.max(0, keepdims=True) - round.means
        surprise = None
        if round.after is not None and round.luck is not None:
            surprise = critic.surprise(round.luck, round.after, gaps)
            # After the last round there is nothing to be surprised for, and a policy may not be asked.
            surprise = jnp.where(round.t + 1 < problem.rounds, surprise, 0)
        seen = centred(round), critic.beliefs(round.log_probs, gaps), surprise
        return round.log_prob, *jax.lax.stop_gradient(seen)

    def start(score: Array) -> tuple[Array, Array, rollout.Regret]:
        zeros = jnp.zeros_like(score)
        return score, zeros, rollout.Regret.zero(problem, zeros)

    (score, total, regret), recorded, last = rollout.play(
        policy,
        problem,
        params,
        key,
        block,
        size,
        how.rollouts or 1,
        observe,
        start,
        temperature,
        kept,
        record=record,
        look_ahead=how.baseline == "luck",
    )
    ending = None if last is None else jax.lax.stop_gradient(centred(last))
    regret = regret if last is None else regret.add(last)
    moments = None
    if weights is None:
        total = total if ending is None else total + ending * score
    else:
        log_prob, gained, seen, surprises = recorded
        to_go = jax.lax.cumsum(gained, reverse=True)
        to_go = to_go if ending is None else to_go + ending[None]
        if surprises is not None:
            seen = jnp.concatenate([seen, jax.lax.cumsum(surprises, reverse=True)], axis=1)
        moments = critic.moments(seen, to_go, counted)
        advantage = to_go - jnp.einsum("tf,tfrb->trb", weights, seen)
        total += (advantage * log_prob).sum(0) + score * to_go[0]  # the score of the latent alone
    return total.mean(0), (regret.total.mean(0), moments)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _differentiate(
    policy: Policy,
    how: Estimator,
    size: int,
    few: bool,
    problem: Problem,
    params: Params,
    key: Array,
    iteration: Array,
    instances: Array,
    temperature: Array | None,
    entropy: Array | None,
    weights: Array | None,
    block: Array,
) -> tuple[Array, Array, Array | None]:
    """Gradients of a block's instances, their regrets [B], and what a critic learns from them.

    With `few` parameters each instance's own gradient [P, B], in forward mode; otherwise their sum [P].
    """
    flat, unravel = ravel_pytree(params)
    key = jax.random.fold_in(key, iteration)
    counted = block * size + jnp.arange(size) < instances

    def surrogate(flat: Array) -> tuple[Array, tuple[Array, Array | None]]:
        play = partial(_surrogate, policy, how, size, problem, unravel(flat), key, block)
        return play(temperature, entropy, weights, counted, not few)

    def along(direction: Array) -> tuple[Array, tuple[Array, Array | None]]:
        _, derivative, seen = jax.jvp(surrogate, (flat,), (direction,), has_aux=True)
        return derivative, seen

    def total(flat: Array) -> tuple[Array, tuple[Array, Array | None]]:
        value, seen = surrogate(flat)
        return jnp.where(counted, value, 0).sum(), seen

    if not few:
        gradient, seen = jax.grad(total, has_aux=True)(flat)
        return gradient, *seen
    if flat.size == 1:
        derivative, seen = along(jnp.ones(1, flat.dtype))
        return derivative[None], *seen
    derivatives, seen = jax.vmap(along, out_axes=(0, None))(jnp.eye(flat.size, dtype=flat.dtype))
    return derivatives, *seen
