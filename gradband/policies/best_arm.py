"""Probabilities of having the greatest mean, for Thompson sampling in NumPy.

P(i is best) = ∫ f_i Π_{j≠i} F_j is computed by Gauss's rule on panels as narrow as the narrowest posterior
around them, of x for normal posteriors and of log(x / (1 − x)) for beta ones. The same nodes give the
distribution functions.
"""

import functools
import math
from collections.abc import Callable

import numpy as np

NODES = 10  # in a panel
PANELS = 11  # on each side of a posterior's mode
AT_ONCE = 1 << 20  # numbers computed at a time


@functools.cache
def gauss() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes on [0, 1], weights, and the matrix that integrates from 0 up to each node."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    # Legendre coefficients from values at the nodes, and the integrals of Legendre polynomials.
    degrees = np.arange(NODES)
    values = np.polynomial.legendre.legvander(nodes, NODES)
    coefficients = (degrees[:, None] + 0.5) * values[:, :NODES].T * weights
    before = np.concatenate([np.full((NODES, 1), -1.0), values[:, : NODES - 1]], axis=1)
    integrals = (values[:, 1:] - before) / (2 * degrees + 1)  # ∫₋₁ P_k = (P_{k+1} − P_{k−1}) / (2k + 1)
    integrals[:, 0] = nodes + 1
    return (nodes + 1) / 2, weights / 2, integrals @ coefficients / 2


def best_probabilities(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The probability [K] that each of K independent Beta(a, b) variables is the greatest.

    >>> print(best_probabilities(np.array([2.0, 1.0]), np.array([1.0, 1.0])).round(9))
    [0.66666667 0.33333333]
    """
    if len(a) == 1:
        return np.ones(1)
    middle, spread = np.log(a / b), np.sqrt(1 / a + 1 / b)
    # The density falls like a normal one, or like exp(−tail |z|).
    sides = [_side(middle, sign, spread, 8.5 * spread + 37 / tail) for sign, tail in ((-1, a), (1, b))]
    # Densities are divided by their values at the modes, and by an approximation of their integrals. What
    # remains of the integrals is a factor that all probabilities share.
    a, b = a[:, None, None], b[:, None, None]
    peak = -a * np.log1p(b / a) - b * np.log1p(a / b) + np.log(2.5 * spread)[:, None, None]
    return _integrated(
        [middle, *sides], lambda z: np.exp(-a * np.logaddexp(0, -z) - b * np.logaddexp(0, z) - peak)
    )


def best_normal_probabilities(means: np.ndarray, sds: np.ndarray) -> np.ndarray:
    """The probability [K] that each of K independent N(means, sds²) variables is the greatest.

    >>> print(best_normal_probabilities(np.array([1.0, 0.0]), np.array([0.6, 0.8])).round(6))
    [0.841345 0.158655]
    """
    if len(means) == 1:
        return np.ones(1)
    sides = [_side(means, sign, sds, 8.5 * sds) for sign in (-1, 1)]
    m, s = means[:, None, None], sds[:, None, None]
    root = math.sqrt(2 * math.pi)
    return _integrated([means, *sides], lambda z: np.exp(-(((z - m) / s) ** 2) / 2) / (root * s))


def _side(middle: np.ndarray, sign: int, spread: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Edges of panels on one side of the modes, wider further out."""
    first, steps = 0.6 * spread, np.linspace(0, 1, PANELS)
    return (middle[:, None] + sign * first[:, None] * (reach / first)[:, None] ** steps).ravel()


def _integrated(edges: list[np.ndarray], density: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """∫ f_i Π_{j≠i} F_j [K], where densities f [K, panels, nodes] are given at z [panels, nodes]."""
    nodes, weights, upto = gauss()
    ends = np.unique(np.concatenate(edges))
    arms = len(edges[0])
    p, passed = np.zeros(arms), np.zeros((arms, 1))
    step = max(1, AT_ONCE // (arms * NODES))
    for start in range(0, len(ends) - 1, step):
        part = ends[start : start + step + 1, None]
        width = np.diff(part, axis=0)
        f = density(part[:-1] + width * nodes) * width
        masses = f @ weights
        before = passed + np.cumsum(masses, axis=1) - masses
        log_below = np.log(np.maximum(before[..., None] + f @ upto.T, 1e-300))
        others = np.exp(log_below.sum(0) - log_below)
        p += ((f * others) @ weights).sum(1)
        passed += masses.sum(1, keepdims=True)
    return p / p.sum()
