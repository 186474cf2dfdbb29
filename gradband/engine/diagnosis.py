"""Diagnoses NaNs: names the policy, the instance and the round.

Rollouts only notice that something is wrong. To find out what, the instance and its neighbour are played
once more, and every round is examined.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core.errors import LARGEST
from gradband.engine.observation import FAULT, Round
from gradband.engine.rollout import Operands, RolloutSpec, play
from gradband.policies import Params, Policy
from gradband.problems import Problem

TWO = 2  # instances that are played again: a single one would be compiled differently


def fault(
    policy: Policy,
    problem: Problem,
    params: Params,
    key: Array,
    regrets: np.ndarray,
    rollouts: int = 1,
    temperature: float | None = None,
    iteration: int | None = None,
) -> str:
    """Describes the first instance whose regret is NaN; "" if there is none.

    Rounds are counted from 1, instances from 0. With an `iteration`, the key is that of all iterations.
    """
    if np.isfinite(regrets).all():
        return ""
    instance = int(np.argmin(np.isfinite(regrets)))
    block, place = divmod(instance, TWO)
    key = key if iteration is None else jax.random.fold_in(key, np.uint32(iteration))
    tau = None if temperature is None else np.float32(temperature)
    given = Operands(problem, params, key, np.int32(block), tau)
    seen, means = jax.tree.map(np.asarray, _play(RolloutSpec(policy.compiled(), TWO, rollouts), given))
    where = f"instance {instance}"
    if means is not None:
        of_round, since = means
        wrong = of_round[:, 0, place]
        bad = ~_allowed(problem, wrong)
        if bad.any():
            allowed = "in [0, 1]" if problem.unit else "finite"
            arm = bad.argmax()
            when = f"in round {since[0, place] + 1}" if problem.prior.moves else "before round 1"
            gave = f"the prior gave arm {arm} of {where} the mean {wrong[arm]:g}, not one {allowed}"
            return f"{gave} ({policy.name}, {when})"
    off = seen["off"][:, :, place]  # [n, R]
    rounds, found = np.nonzero(~(off < FAULT))
    if not len(rounds):
        return f"the regret of {policy.name} is NaN on {where}"
    t, run = rounds[0], found[0]
    where = f"in round {t + 1} of {where}"
    reward = seen["reward"][t, run, place]
    if "sum" in seen and not abs(seen["sum"][t, run, place] - 1) < FAULT:
        return (
            f"the probabilities of {policy.name} sum to {seen['sum'][t, run, place]:g}, not to 1, {where}"
        )
    if "arm" in seen and not 0 <= seen["arm"][t, run, place] < problem.arms:
        return f"{policy.name} pulled arm {seen['arm'][t, run, place]} of {problem.arms} {where}"
    allowed = "in [0, 1]" if problem.unit else "finite"
    return f"the reward was {reward:g}, not one {allowed}, {where} ({policy.name})"


@partial(jax.jit, static_argnums=0)
def _play(spec: RolloutSpec, given: Operands) -> Any:
    """What is seen of each round [n, R, B], and the first means [K, 1, B] that are not allowed, with their
    round [1, B], or the last means."""
    problem = given.problem

    def record(round: Round) -> dict[str, Any]:
        found = {"off": round.off, "reward": round.reward}
        if round.log_probs is not None:
            found["sum"] = jnp.exp(round.log_probs).sum(0)
        elif round.arm is not None:
            found["arm"] = round.arm
        return found

    def observe(seen: tuple[Array, Array], round: Round) -> tuple[Array, Array]:
        if round.means is None:
            return seen
        fine = _allowed(problem, seen[0]).all(0)
        return jnp.where(fine[None], round.means, seen[0]), jnp.where(fine, round.t, seen[1])

    def start(score: Array) -> tuple[Array, Array]:
        return jnp.zeros((problem.arms, 1, spec.size)), jnp.zeros((1, spec.size), jnp.uint32)

    means, seen, _ = play(spec, given, observe, start, record)
    return seen, means if problem.prior.knows_means else None


def _allowed(problem: Problem, means: Any) -> Any:
    """Whether means are allowed by the problem."""
    low, high = (0, 1) if problem.unit else (-LARGEST, LARGEST)
    return (means >= low) & (means <= high)
