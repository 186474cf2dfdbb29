"""Thompson sampling as experimentation platforms run it: shares of traffic, recomputed periodically.

docs/platforms.md says where each rule comes from.
"""

import dataclasses
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from gradband.core.arrays import Array, namespace
from gradband.core.special import normal_cdf, psi
from gradband.policies.base import Count, Counting, Counts, InputError, Params, Whole, in_range, one_of

LEAST, FLOOR, WIDE = 100, 0.01, 1e4  # GrowthBook: pulls of each arm, least share, variance of its prior
NODES = np.linspace(-6, 6, 64)  # of an arm's posterior, in standard deviations
DENSITY = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()


class Periods(NamedTuple):
    """Counts of the periods that are over, and of the current one.

    `means` and `variances` [K] are the sums over periods of N_p ȳ_p and N_p² s_p² / n_p, where an arm has
    n_p of a period's N_p pulls, with mean ȳ_p and variance s_p².
    """

    closed: Counts
    now: Counts
    means: Array
    variances: Array

    def add_many(self, pulls: Array, sums: Array) -> "Periods":
        return self._replace(now=self.now.add_many(pulls, sums))

    def close(self) -> "Periods":
        """The same with the current period over, and a new one begun."""
        xp = namespace(self.means)
        pulls, sums, size = self.now.pulls, self.now.sums, self.now.rounds
        some = xp.maximum(pulls, 1)
        spread = sums * (1 - sums / some) / xp.maximum(pulls - 1, 1)
        return Periods(
            self.closed.add_many(pulls, sums),
            Counts(xp.zeros_like(pulls), xp.zeros_like(sums)),
            self.means + size * sums / some,
            self.variances + xp.where(pulls > 1, size**2 * spread / some, 0),
        )

    def where(self, condition: Array, other: "Periods") -> "Periods":
        """This if the condition holds, else the other."""
        where = namespace(self.means).where
        return Periods(
            self.closed.where(condition, other.closed),
            self.now.where(condition, other.now),
            where(condition, self.means, other.means),
            where(condition, self.variances, other.variances),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlatformTS(Counting):
    """Shares that are recomputed after every `period` pulls, by the `rule` of a platform.

    growthbook  An equal split until every arm has 100 pulls. Then p = f + (1 − K f) q, with a floor f of
                1 % and q the probabilities of being best under normal posteriors, N(0, 10⁴) before any
                data. Means are averages over periods, weighted by the pulls of all arms in each.
    statsig     p are the probabilities of being best under Beta(1 + ones, 1 + zeros) posteriors, taken to
                be normal in the logit. An arm with a probability of at least `winner` gets all further
                pulls.

    Both split equally in the first `window` pulls. In batches, a period ends with the batch in which it has
    `period` pulls.
    """

    name: ClassVar[str] = "platform-ts"
    differentiable: ClassVar[bool] = False
    binary: ClassVar[bool] = True
    flexible: ClassVar[bool] = False
    rule: Annotated[str, one_of("growthbook", "statsig")] = "growthbook"
    period: Whole = 100
    window: Count = 0
    winner: Annotated[float, in_range(0.5, 1)] = 0.95

    def begin(self, params: Params, latent: Array) -> Any:
        xp = namespace(latent)
        none = Counts.zeros(self.arms, xp)
        return Periods(none, Counts.zeros(self.arms, xp), xp.zeros(self.arms), xp.zeros(self.arms))

    def counts(self, state: Any) -> Counts:
        return state.closed.add_many(state.now.pulls, state.now.sums)

    def update(self, params: Params, state: Any, arm: Array, reward: Array) -> Any:
        return self._closed(state._replace(now=state.now.add(arm, reward)), state)

    def update_many(self, params: Params, state: Any, pulls: Array, sums: Array) -> Any:
        return self._closed(state.add_many(pulls, sums), state)

    def _closed(self, state: Periods, before: Periods) -> Periods:
        """The state with its period closed if it is over; the one before if there is a winner."""
        size, xp = state.now.rounds, namespace(state.means)
        over = size >= self.period
        first = state.closed.rounds == 0
        over &= ~first | (size >= self.window)
        if self.rule == "growthbook":
            return state.close().where(over & (~first | (state.now.pulls.min() >= LEAST)), state)
        found = state.close().where(over, state)
        return before.where(xp.max(self.best(before)) >= self.winner, found)

    def best(self, state: Periods) -> Array:
        """Probabilities of being best [K], given the closed periods; equal before the first."""
        xp, counts = namespace(state.means), state.closed
        if self.rule == "growthbook":
            total = xp.maximum(counts.rounds, 1)
            precision = xp.where(state.variances > 0, total**2 / xp.maximum(state.variances, 1e-30), 0)
            mean = precision * state.means / total / (precision + 1 / WIDE)
            p = best_of_normals(mean, 1 / xp.sqrt(precision + 1 / WIDE))
        else:
            up, slope_up = psi(1 + counts.sums)
            down, slope_down = psi(1 + counts.pulls - counts.sums)
            p = best_of_normals(up - down, xp.sqrt(slope_up + slope_down))
        return xp.where(counts.rounds > 0, p, 1 / self.arms)

    def probabilities(self, params: Params, state: Any) -> Array:
        """The shares [K] of the current period."""
        p, xp = self.best(state), namespace(state.means)
        if self.rule == "growthbook":
            floor = min(FLOOR, 1 / self.arms)
            return floor + (1 - self.arms * floor) * p
        won = p >= self.winner
        return xp.where(won.any(), won / xp.maximum(won.sum(), 1), p)

    def act(self, key: Array, params: Params, state: Any) -> Array:
        from gradband.core import prng

        return prng.draw(key, self.probabilities(params, state))

    def after(self, counts: Counts) -> Any:
        raise InputError("platform-ts needs counts by period: those of all pulls do not determine them")


def best_of_normals(mean: Array, sd: Array) -> Array:
    """The probability [K] that each of K independent normal variables is the greatest.

    >>> best_of_normals(np.array([1.0, 0.0]), np.array([1.0, 1.0])).round(4).tolist()
    [0.7602, 0.2398]
    """
    xp = namespace(mean)
    x = mean[:, None] + sd[:, None] * NODES[None].astype(mean.dtype)  # [K, Q]: an arm's own nodes
    below = normal_cdf((x[:, None] - mean[None, :, None]) / sd[None, :, None])  # [K, others, Q]
    own = xp.eye(mean.shape[0], dtype=bool)[:, :, None]
    p = (xp.where(own, 1, below).prod(1) * DENSITY[None].astype(mean.dtype)).sum(1)
    return p / p.sum()
