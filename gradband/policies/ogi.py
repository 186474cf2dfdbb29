"""The optimistic Gittins index with one step of lookahead (Gutin and Farias, 2016)."""

import dataclasses
from typing import ClassVar

import numpy as np

from gradband.core.special import lgamma
from gradband.policies.base import Array, Believing, Counts, Index, Params, namespace
from gradband.policies.beta_tail import upper_probabilities
from gradband.policies.gaussian_ogi import discount, optimism

STEPS = 5  # of Newton's method: errors below 10⁻⁴ posterior standard deviations
MARGIN = 1e-6  # from an index to 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimisticGittins(Index, Believing):
    """The arm with the greatest λ = (1 − γ) m + γ E max(μ, λ), with γ = 1 − 1/(100 + t) in round t.

    μ has the arm's Beta(a + ones, b + zeros) posterior, with mean m; rewards strictly between 0 and 1 are
    rounded at random to 0 or 1. λ would be the Gittins index if the next reward revealed μ.
    """

    name: ClassVar[str] = "ogi"

    def index(self, params: Params, state: Counts) -> Array:
        ones, zeros = self.posterior(state)
        xp = namespace(ones)
        total = ones + zeros
        mean, sd = ones / total, xp.sqrt(ones * zeros / (total + 1)) / total
        gamma = discount(state.rounds)
        # The index of a normal posterior is a start, with less optimism the nearer 1 is.
        far = optimism(gamma) * sd
        x = xp.clip(mean + far / (1 + 0.7 * far * total / zeros), mean, 1 - MARGIN)
        scale = lgamma(total) - lgamma(ones) - lgamma(zeros)
        # λ − m = γ E (μ − λ)⁺ + γ (λ − m): a convex function decreases through 0, and Newton's steps
        # approach its root from the left after the first.
        for _ in range(STEPS):
            above = _above(x, ones, zeros)
            density = xp.exp(ones * xp.log(x) + zeros * xp.log1p(-x) + scale) / total
            excess = xp.maximum((mean - x) * above + density, 0)  # E (μ − λ)⁺
            slope = 1 - gamma * (1 - above)
            x = xp.clip(x + (gamma * excess - (1 - gamma) * (x - mean)) / slope, mean, 1 - MARGIN)
        return x


def _above(x: Array, a: Array, b: Array) -> Array:
    """P(X > x) for X ~ Beta(a, b)."""
    if namespace(x) is np:
        return upper_probabilities(x, a, b)
    from jax.scipy.special import betainc

    return betainc(b, a, 1 - x)
