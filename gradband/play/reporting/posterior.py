"""Posterior probabilities of being best, and the expected loss of staying with an arm.

With densities f_k and distribution functions F_k of the arms' means, independent, P(k is best) is
∫ f_k Π_{j≠k} F_j, and E[max] is the sum over k of ∫ x f_k Π_{j≠k} F_j. Both are integrated by Gauss's rule
on panels around each posterior, as for Thompson sampling (`policies/best_arm`).
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from gradband.core.special import lgamma
from gradband.policies.best_arm import AT_ONCE, NODES, PANELS, gauss


@dataclasses.dataclass(frozen=True)
class Posterior:
    """Independent posteriors of the arms' means, as densities of a variable z."""

    means: np.ndarray
    middle: np.ndarray  # of z
    spread: np.ndarray
    low: np.ndarray  # how far below the middle z may be
    high: np.ndarray
    density: Callable[[np.ndarray], np.ndarray]  # z [panels, nodes] to [K, panels, nodes]
    value: Callable[[np.ndarray], np.ndarray]  # z to the mean


def beta_posterior(pulls: np.ndarray, sums: np.ndarray) -> Posterior:
    """Beta(1 + sums, 1 + rest) after a uniform prior, for rewards in [0, 1]; z = log(x / (1 − x))."""
    a, b = 1 + sums, 1 + pulls - sums
    spread = np.sqrt(1 / a + 1 / b)
    scale = (lgamma(a) + lgamma(b) - lgamma(a + b))[:, None, None]

    def density(z: np.ndarray) -> np.ndarray:
        below, above = np.logaddexp(0, -z), np.logaddexp(0, z)
        return np.exp(-a[:, None, None] * below - b[:, None, None] * above - scale)

    low, high = 8.5 * spread + 37 / a, 8.5 * spread + 37 / b
    return Posterior(a / (a + b), np.log(a / b), spread, low, high, density, _logistic)


def _logistic(z: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * z)


def normal_posterior(pulls: np.ndarray, sums: np.ndarray, squares: np.ndarray) -> Posterior:
    """Normal with the sample mean and its standard error; every arm needs two pulls and a spread."""
    means = sums / pulls
    spread = np.sqrt((squares - pulls * means**2) / (pulls - 1) / pulls)

    def density(z: np.ndarray) -> np.ndarray:
        away = (z - means[:, None, None]) / spread[:, None, None]
        return np.exp(-0.5 * away**2) / (spread[:, None, None] * math.sqrt(2 * math.pi))

    return Posterior(means, means, spread, 8.5 * spread, 8.5 * spread, density, lambda z: z)


def best_and_loss(of: Posterior) -> tuple[np.ndarray, np.ndarray]:
    """P(best) [K] and the expected loss [K], E[max_j μ_j − μ_k], of staying with each arm.

    >>> p, loss = best_and_loss(beta_posterior(np.array([1.0, 0.0]), np.array([1.0, 0.0])))
    >>> print(p.round(6), loss.round(6))  # densities 2x and 1
    [0.666667 0.333333] [0.083333 0.25    ]
    """
    arms = len(of.means)
    if arms == 1:
        return np.ones(1), np.zeros(1)
    nodes, weights, upto = gauss()
    steps, first = np.linspace(0, 1, PANELS), 0.6 * of.spread[:, None]
    sides = [
        of.middle[:, None] + sign * first * (reach[:, None] / first) ** steps
        for sign, reach in ((-1, of.low), (1, of.high))
    ]
    edges = np.unique(np.concatenate([of.middle, *(side.ravel() for side in sides)]))
    p, greatest, passed = np.zeros(arms), 0.0, np.zeros((arms, 1))
    step = max(1, AT_ONCE // (arms * NODES))
    for start in range(0, len(edges) - 1, step):
        ends = edges[start : start + step + 1, None]
        width = np.diff(ends, axis=0)
        z = ends[:-1] + width * nodes
        f = of.density(z) * width
        masses = f @ weights
        before = passed + np.cumsum(masses, axis=1) - masses
        log_below = np.log(np.maximum(before[..., None] + f @ upto.T, 1e-300))
        best = f * np.exp(log_below.sum(0) - log_below)
        p += (best @ weights).sum(1)
        greatest += float(((best * of.value(z)) @ weights).sum())
        passed += masses.sum(1, keepdims=True)
    return p / p.sum(), np.maximum(greatest / p.sum() - of.means, 0)
