"""What a decision costs: how much less an arm is worth than the optimal one, if optimal decisions follow.

With V the value of the optimal policy and Q(H, i) that of pulling arm i first, the price of a decision is
V(H) − Q(H, i). A policy's expected reward is V at the start less the prices it pays along its way, so they
can stand for its rewards: the gradient is the same, and the luck of rewards and instances is gone from it.
V is known for two arms. For more, a bound takes its place (`gradband.gradient.relaxed_prices`).
"""

import functools
from typing import Any, ClassVar

import jax
import numpy as np

from gradband.core import resources
from gradband.core.arrays import Array, namespace
from gradband.core.errors import InputError
from gradband.gradient.relaxed_prices import LONGEST as LONGEST_OF_MANY
from gradband.gradient.relaxed_prices import RelaxedPrices, find_relaxed_prices, memory
from gradband.policies import Counts, Params
from gradband.policies.optimal import Optimal
from gradband.problems import Problem, priors, rewards
from gradband.solvers import layout

LONGEST = 300  # rounds, whose table has 1.4 gigabytes


class Prices(Optimal):
    """The optimal policy of two arms, which knows the price of every decision."""

    name: ClassVar[str] = "prices"

    def choice(self, params: Params, state: Counts) -> Array:
        return self.of(params, state).argmin()

    def of(self, params: Params, state: Counts) -> Array:
        """The prices [K] of the arms; 0 for an optimal one."""
        pulls, ones, t = state.as_integers()
        place = params["starts"][t] + layout.cell(t, pulls[0], ones[0], ones[1])
        better, xp = params["advantages"][place], namespace(place)
        return xp.stack([xp.maximum(better, 0), xp.maximum(-better, 0)])


def find_prices(problem: Problem) -> tuple[Prices | RelaxedPrices, Params]:
    """The prices of a problem's decisions: exact for two arms, by a bound for more."""
    prior: Any = problem.prior
    shapes = (tuple(np.asarray(x, np.float64).tolist()) for x in (prior.a, prior.b))
    find = _find if prior.arms == 2 else find_relaxed_prices
    return find(*shapes, problem.horizon)


def check_priced(problem: Problem) -> None:
    """Raises an error for a problem without prices."""
    what = "priced returns"
    problem.one_by_one(what)
    prior = problem.prior
    if not isinstance(prior, priors.Beta) or not isinstance(prior.rewards, rewards.Bernoulli):
        raise InputError(f"{what} need bernoulli rewards and a beta prior, not a {prior.kind} prior")
    if prior.arms < 2 or problem.afterwards:
        raise InputError(f"{what} need two arms or more, and no pulls afterwards")
    longest, arms = (LONGEST, "two arms") if prior.arms == 2 else (LONGEST_OF_MANY, "more arms")
    if problem.horizon > longest:
        raise InputError(f"{what} of {arms} need a horizon of at most {longest}, not {problem.horizon}")
    kinds = len(set(zip(prior.a.tolist(), prior.b.tolist(), strict=True)))
    table = (
        4 * int(layout.starts(problem.horizon)[-1]) if prior.arms == 2 else memory(kinds, problem.horizon)
    )
    resources.require(3 * table, f"{what} for {problem.horizon} rounds", "use a shorter horizon")


def are_known(problem: Problem) -> bool:
    """Whether the prices of a problem's decisions are known exactly."""
    try:
        check_priced(problem)
    except InputError:
        return False
    return problem.arms == 2


@functools.lru_cache(maxsize=4)
def _find(a: tuple[float, ...], b: tuple[float, ...], horizon: int) -> tuple[Prices, Params]:
    from gradband.solvers import two_arms  # Numba is slow to import

    table = two_arms.advantages(a, b, horizon, resources.cores())
    starts = layout.starts(horizon).astype(np.int32)
    return Prices(rounds=horizon).bind(2, horizon), jax.device_put({"advantages": table, "starts": starts})
