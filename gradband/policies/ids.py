"""Information-directed sampling (Russo and Van Roy, 2018)."""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gradband.policies.base import Array, Believing, Counts, Params, Policy, namespace
from gradband.policies.kl_softelim import curve

CELLS = 192  # of a posterior
TINY = 1e-30
ALIKE = 1e-5  # relative difference of numbers that count as equal


class BestArmBelief(NamedTuple):
    """What is known of the best arm: P(i is best) [K], E μ_i [K], and E(μ_i | j is best) [K (j), K (i)]."""

    best: Array
    means: Array
    given: Array

    @property
    def regrets(self) -> Array:
        """Expected regret [K] of pulling each arm now, as sums of terms that are not negative."""
        xp = namespace(self.given)
        own = (self.given * xp.eye(self.best.shape[0], dtype=self.given.dtype)).sum(1)
        return (self.best[:, None] * xp.maximum(own[:, None] - self.given, 0)).sum(0)

    @property
    def variances(self) -> Array:
        """Variances [K] of E(μ_i | which arm is best)."""
        return (self.best[:, None] * (self.given - self.means[None]) ** 2).sum(0)

    @property
    def information(self) -> Array:
        """Mutual information [K] of a Bernoulli reward of each arm and which arm is best."""
        mean, rest = self.means[None], 1 - self.means[None]
        off = self.given - mean
        # p log(p/m) with p = m + off is m ((1 + x) log(1 + x)), x = off / m; what cancels is left out.
        divergence = _curved(mean, off / mean) + _curved(rest, -off / rest)
        return (self.best[:, None] * divergence).sum(0)


def _curved(mean: Array, x: Array) -> Array:
    """m ((1 + x) log(1 + x) − x) for x ≥ −1, which is not negative, and precise near 0."""
    x = namespace(x).maximum(x, TINY - 1)
    return mean * (x * x - (1 + x) * curve(x))


def believe(masses: Array, below: Array, partial: Array, x: Array, means: Array) -> BestArmBelief:
    """The belief from posteriors on cells with middles x [G].

    `masses` are those in cells, `below` are P(μ_i < x), and `partial` E μ_i 1{μ_i < x}, all [K, G].
    """
    xp = namespace(masses)
    logs = xp.log(xp.maximum(below, TINY))
    joint = masses * xp.exp(logs.sum(0)[None] - logs)
    best = joint.sum(1)
    mean_below = xp.where(below > TINY, partial / xp.maximum(below, TINY), x[None])
    others = joint @ mean_below.T
    eye = xp.eye(masses.shape[0], dtype=masses.dtype)
    own = (joint * x[None]).sum(1)
    given = (eye * own[:, None] + (1 - eye) * others) / xp.maximum(best, TINY)[:, None]
    best = best / best.sum()
    return BestArmBelief(best, means, xp.where(best[:, None] > 0, given, means[None]))


def least_ratio(regrets: Array, gains: Array) -> Array:
    """The probabilities [K] that minimise (Σ p_i Δ_i)² / Σ p_i g_i; two arms suffice.

    Of two arms it is least at q = Δ_j / (Δ_i − Δ_j) − 2 g_j / (g_i − g_j) if that is between 0 and 1. The
    ratio is convex in p, so all pairs with the least ratio share it.

    >>> print(least_ratio(np.array([1.0, 2.0, 4.0]), np.array([0.1, 1.0, 1.0])).round(4))
    [0.2222 0.7778 0.    ]
    """
    xp = namespace(regrets)
    one, other = regrets[:, None], regrets[None]
    gain, other_gain = gains[:, None], gains[None]
    apart, more = one - other, gain - other_gain
    # Arms that differ only by rounding are not mixed.
    defined = (xp.abs(apart) > ALIKE * (one + other)) & (xp.abs(more) > ALIKE * (gain + other_gain))
    q = other / xp.where(defined, apart, 1) - 2 * other_gain / xp.where(defined, more, 1)
    q = xp.where(defined, xp.clip(q, 0, 1), 1)
    ratios = (q * one + (1 - q) * other) ** 2 / xp.maximum(q * gain + (1 - q) * other_gain, TINY)
    chosen = (ratios <= ratios.min() * (1 + ALIKE)).astype(regrets.dtype)
    p = (chosen * q).sum(1) + (chosen * (1 - q)).sum(0)
    return p / p.sum()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Directed(Policy):
    """Minimises (expected regret)² / what is learned about the best arm, in every round."""

    differentiable: ClassVar[bool] = False

    def belief(self, state: Any) -> BestArmBelief:
        """The belief about the best arm."""
        raise NotImplementedError

    def gains(self, belief: BestArmBelief) -> Array:
        """What a pull of each arm tells about which is best [K]; by default the variance."""
        return belief.variances

    def probabilities(self, params: Params, state: Any) -> Array:
        belief = self.belief(state)
        return least_ratio(belief.regrets, self.gains(belief))

    def act(self, key: Array, params: Params, state: Any) -> Array:
        from gradband.core import prng

        return prng.draw(key, self.probabilities(params, state))


@dataclasses.dataclass(frozen=True, kw_only=True)
class InformationDirected(Directed, Believing):
    """Minimises (expected regret)² / information gained about which arm is best, in every round.

    Beliefs are Beta(a + ones, b + zeros); rewards strictly between 0 and 1 are rounded at random.
    """

    name: ClassVar[str] = "ids"

    def gains(self, belief: BestArmBelief) -> Array:
        return belief.information

    def belief(self, state: Counts) -> BestArmBelief:
        """The belief about the best arm, on cells of μ that are narrower towards 0 and 1."""
        ones, zeros = self.posterior(state)
        xp = namespace(ones)
        angles = math.pi / 2 * (np.arange(CELLS) + 0.5) / CELLS
        x, log_mean, log_rest = (
            xp.asarray(values, ones.dtype)
            for values in (np.sin(angles) ** 2, 2 * np.log(np.sin(angles)), 2 * np.log(np.cos(angles)))
        )
        logs = (ones - 0.5)[:, None] * log_mean[None] + (zeros - 0.5)[:, None] * log_rest[None]
        masses = xp.exp(logs - logs.max(1)[:, None])
        masses = masses / masses.sum(1)[:, None]
        weighed = masses * x[None]
        below, partial = (xp.cumsum(values, axis=1) - values / 2 for values in (masses, weighed))
        return believe(masses, below, partial, x, weighed.sum(1))
