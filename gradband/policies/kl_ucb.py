"""KL-UCB: upper confidence bounds by Kullback–Leibler divergence (Garivier and Cappé, 2011)."""

import dataclasses
from typing import Annotated, ClassVar

from gradband.core.special import xlogy
from gradband.policies.base import Array, Counts, Index, Params, in_range, namespace

STEPS = 10  # of Newton's method, which approaches from the right and never overshoots


@dataclasses.dataclass(frozen=True, kw_only=True)
class KLUCB(Index):
    """Each arm once, then the greatest q ≤ 1 with T_i kl(μ̂_i, q) ≤ log t + c log log t.

    kl is the divergence of two Bernoulli variables; rewards are in [0, 1]. The authors' proof needs c = 3,
    but they recommend c = 0, the default.
    """

    name: ClassVar[str] = "kl-ucb"
    unit: ClassVar[bool] = True
    c: Annotated[float, in_range(0, 1e6)] = 0.0

    def index(self, params: Params, state: Counts) -> Array:
        xp = namespace(state.pulls)
        log_t = xp.log(state.rounds + 1)
        budget = log_t + self.c * xp.log(xp.maximum(log_t, 1))
        bound = upper_bound(state.means, budget / xp.maximum(state.pulls, 1))
        return xp.where(state.pulls == 0, xp.inf, bound)


def upper_bound(mean: Array, divergence: Array) -> Array:
    """The q ≥ p = `mean` with kl(p, q) = `divergence`.

    kl(p, ·) is convex and increases on [p, 1], so Newton's steps from the right decrease to the solution.
    They start at the lesser of the bounds that follow from kl(p, q) ≥ 2 (q − p)² and from
    kl(p, q) ≥ p log p + (1 − p) log((1 − p) / (1 − q)).

    >>> import numpy as np
    >>> q = upper_bound(np.array([0.5]), np.array([0.1]))
    >>> print((0.5 * np.log(0.25 / (q * (1 - q)))).round(6))
    [0.1]
    """
    xp = namespace(mean)
    most = 1 - xp.finfo(mean.dtype).eps
    rest = xp.maximum(1 - mean, xp.finfo(mean.dtype).eps)
    tail = 1 - rest * xp.exp(-(divergence - xlogy(mean, mean)) / rest)
    q = xp.clip(xp.minimum(mean + xp.sqrt(divergence / 2), tail), mean, most)
    entropy = xlogy(mean, mean) + xlogy(1 - mean, 1 - mean)
    for _ in range(STEPS):
        excess = entropy - xlogy(mean, q) - xlogy(1 - mean, 1 - q) - divergence
        slope = (q - mean) / xp.maximum(q * (1 - q), 1e-30)
        q = xp.clip(q - xp.where(slope > 0, excess / xp.maximum(slope, 1e-30), 0), mean, most)
    return q
