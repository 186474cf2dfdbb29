"""The optimistic Gittins index with normal beliefs (Gutin and Farias, 2016)."""

import dataclasses
from typing import ClassVar

from gradband.core.special import normal_cdf, normal_density
from gradband.policies.base import Array, Counts, Index, Params, namespace
from gradband.policies.normal import Normal

STEPS = 6  # of Newton's method
LATER = 100  # rounds that the discount is ahead of time


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianOptimisticGittins(Index, Normal):
    """The arm with the greatest λ = (1 − γ) m + γ E max(μ, λ), with γ = 1 − 1/(100 + t) in round t.

    μ has the arm's normal posterior, with mean m. The belief is N(mean, within²) at first, and rewards have
    the known standard deviation `sd`.
    """

    name: ClassVar[str] = "ogi-gaussian"

    def index(self, params: Params, state: Counts) -> Array:
        means, sds = self.posterior(state)
        return means + sds * optimism(discount(state.rounds))


def discount(rounds: Array) -> Array:
    """The discount γ after this many rounds."""
    return 1 - 1 / (LATER + 1 + rounds)


def optimism(gamma: Array) -> Array:
    """The x with x = γ (x Φ(x) + φ(x)): the index of a standard normal posterior.

    Newton's method, from a start left of the root for every discount that occurs.

    >>> print(round(float(optimism(0.99)), 4))
    1.7208
    """
    xp = namespace(gamma)
    x = xp.ones_like(gamma) * 1.9
    for _ in range(STEPS):
        below = normal_cdf(x)
        x = x + (gamma * (x * below + normal_density(x)) - x) / (1 - gamma * below)
    return x
