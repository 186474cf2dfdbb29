"""UCB-V: upper confidence bounds that use the variance (Audibert, Munos and Szepesvári, 2009)."""

import dataclasses
import math
from typing import Annotated, ClassVar, NamedTuple

from gradband.policies.base import Array, Counts, Index, Params, add_at, in_range, namespace


class Moments(NamedTuple):
    """Counts, and sums of squared rewards [K]."""

    counts: Counts
    squares: Array

    def add_many(self, pulls: Array, sums: Array) -> "Moments":
        return Moments(self.counts.add_many(pulls, sums), self.squares + sums)

    def add(self, arm: Array, reward: Array) -> "Moments":
        return Moments(self.counts.add(arm, reward), add_at(self.squares, arm, reward**2))


@dataclasses.dataclass(frozen=True, kw_only=True)
class UCBV(Index):
    """Each arm once, then the greatest μ̂_i + √(2 V_i E / T_i) + 3 c E / T_i with E = log ζ₀ + ζ log t.

    V_i is the variance of the arm's rewards, in [0, 1], with T_i in the denominator. ζ is `zeta` and ζ₀ is
    `zeta_0`. The defaults c = 1, ζ = 2 and ζ₀ = 3 were chosen to match Table 1 of the paper, which does not
    state them; Audibert, Munos and Szepesvári use ζ = 1.2 and ζ₀ = 1.
    """

    name: ClassVar[str] = "ucb-v"
    unit: ClassVar[bool] = True
    c: Annotated[float, in_range(0, 1e6)] = 1.0
    zeta: Annotated[float, in_range(0, 1e6)] = 2.0
    zeta_0: Annotated[float, in_range(1, 1e6)] = 3.0

    def begin(self, params: Params, latent: Array) -> Moments:
        return Moments(super().begin(params, latent), namespace(latent).zeros(self.arms))

    def counts(self, state: Moments) -> Counts:
        return state.counts

    def after(self, counts: Counts) -> Moments:
        return Moments(counts, counts.sums)

    def correct(self, state: Moments, arm: int, heard: float, reward: float, p: float) -> Moments:
        sums = add_at(state.counts.sums, arm, reward - heard)
        squares = add_at(state.squares, arm, reward**2 - heard**2)
        return Moments(state.counts._replace(sums=sums), squares)

    def correct_many(self, state: Moments, heard: Array, sums: Array, p: Array) -> Moments:
        counts = state.counts._replace(sums=state.counts.sums + sums - heard)
        return Moments(counts, state.squares + sums - heard)

    def index(self, params: Params, state: Moments) -> Array:
        counts, xp = state.counts, namespace(state.squares)
        pulls = xp.maximum(counts.pulls, 1)
        variance = xp.maximum(state.squares / pulls - counts.means**2, 0)
        exploration = math.log(self.zeta_0) + self.zeta * xp.log(counts.rounds + 1)
        bonus = xp.sqrt(2 * variance * exploration / pulls) + 3 * self.c * exploration / pulls
        return xp.where(counts.pulls == 0, xp.inf, counts.means + bonus)
