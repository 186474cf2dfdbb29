"""Probabilities of having the greatest mean, for Thompson sampling in NumPy.

P(i is best) = ∫ f_i Π_{j≠i} F_j is computed by Gauss's rule on panels of log(x / (1 − x)), as narrow as the
narrowest posterior around them. The same nodes give the distribution functions.
"""

import functools

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
    nodes, weights, upto = gauss()
    middle, spread = np.log(a / b), np.sqrt(1 / a + 1 / b)
    steps = np.linspace(0, 1, PANELS)
    sides = []
    for sign, tail in ((-1, a), (1, b)):
        reach = 8.5 * spread + 37 / tail  # the density falls like a normal one, or like exp(−tail |z|)
        first = 0.6 * spread
        sides.append(middle[:, None] + sign * first[:, None] * (reach / first)[:, None] ** steps)
    edges = np.unique(np.concatenate([middle, *(side.ravel() for side in sides)]))
    # Densities are divided by their values at the modes, and by an approximation of their integrals. What
    # remains of the integrals is a factor that all probabilities share.
    a, b = a[:, None, None], b[:, None, None]
    peak = -a * np.log1p(b / a) - b * np.log1p(a / b) + np.log(2.5 * spread)[:, None, None]
    p, passed = np.zeros(len(a)), np.zeros((len(a), 1))
    step = max(1, AT_ONCE // (len(a) * NODES))
    for start in range(0, len(edges) - 1, step):
        ends = edges[start : start + step + 1, None]
        width = np.diff(ends, axis=0)
        z = ends[:-1] + width * nodes  # [panels, nodes]
        f = np.exp(-a * np.logaddexp(0, -z) - b * np.logaddexp(0, z) - peak) * width  # [K, panels, nodes]
        masses = f @ weights
        before = passed + np.cumsum(masses, axis=1) - masses
        log_below = np.log(np.maximum(before[..., None] + f @ upto.T, 1e-300))
        others = np.exp(log_below.sum(0) - log_below)
        p += ((f * others) @ weights).sum(1)
        passed += masses.sum(1, keepdims=True)
    return p / p.sum()
