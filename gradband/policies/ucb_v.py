"""UCB-V: upper confidence bounds that know the variance (Audibert, Munos and Szepesvári, 2009)."""

import dataclasses
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.policies.base import Counts, Index, Params
from gradband.pytrees import one_hot


class Moments(NamedTuple):
    """Counts, and sums of squared rewards [K]."""

    counts: Counts
    squares: Array

    def add_many(self, pulls: Array, sums: Array) -> "Moments":
        return Moments(self.counts.add_many(pulls, sums), self.squares + sums)

    def add(self, arm: Array, reward: Array) -> "Moments":
        pulled = one_hot(arm, self.squares.shape[0])
        return Moments(self.counts.add(arm, reward), self.squares + pulled * reward**2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UCBV(Index):
    """Each arm once, then the greatest μ̂_i + √(2 V_i E / T_i) + 3 E / T_i with E = log 3 + 2 log t.

    V_i is the variance of the arm's rewards, in [0, 1], with T_i in the denominator.
    """

    name: ClassVar[str] = "ucb-v"
    unit: ClassVar[bool] = True

    def begin(self, params: Params, latent: Array) -> Moments:
        return Moments(super().begin(params, latent), jnp.zeros(self.arms))

    def after(self, counts: Counts) -> Moments:
        return Moments(counts, counts.sums)

    def estimates(self, params: Params, state: Moments) -> Array:
        return super().estimates(params, state.counts)

    def index(self, params: Params, state: Moments) -> Array:
        counts = state.counts
        pulls = jnp.maximum(counts.pulls, 1)
        variance = jnp.maximum(state.squares / pulls - counts.means**2, 0)
        exploration = np.log(3) + 2 * jnp.log(counts.rounds + 1)
        bonus = jnp.sqrt(2 * variance * exploration / pulls) + 3 * exploration / pulls
        return jnp.where(counts.pulls == 0, jnp.inf, counts.means + bonus)
