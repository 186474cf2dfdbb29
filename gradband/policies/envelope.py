"""The greatest of lines a_i + b_i z, where z is standard normal.

With linear beliefs, samples along a direction of θ are such lines, and so are means before a reward. A line
is the greatest between its last crossing with a flatter line and its first with a steeper one.
"""

import functools
import math

import numpy as np

from gradband.core.special import normal_cdf, normal_density, normal_quantiles
from gradband.policies.base import Array, namespace

DRAWS = 1024  # quasi-random, of what is not integrated
AT_ONCE = 1 << 20  # numbers computed at a time
TINY = 1e-12  # of singular values beside the greatest, which count as 0
# E max(Z − c, 0) is φ(c) t² times a polynomial in t = 1 / (1 + 0.3 c), within 1e-7 of itself
SCALE = 0.3
TERMS = [0.0900037508, 0.179847099, 0.24825972, 0.239595072, 0.344406652]
TERMS += [-0.313528228, 0.938667459, -1.30614388, 0.726460724, -0.147568406]


def crossings(values: Array, slopes: Array) -> tuple[Array, Array, Array]:
    """Between which z each line is the greatest, and by how much the next one is steeper, all [N, K].

    a and b are [N, K], or [1, K] if all rows share them. A line that is never the greatest has
    an empty interval.
    """
    xp, inf = namespace(values, slopes), math.inf
    drop = values[:, :, None] - values[:, None, :]
    rise = slopes[:, None, :] - slopes[:, :, None]
    at = drop / xp.where(rise == 0, 1, rise)
    upper = xp.where(rise > 0, at, inf).min(2)
    lower = xp.where(rise < 0, at, -inf).max(2)
    places = np.arange(values.shape[1])
    earlier = (places[None] < places[:, None])[None]  # of equal lines, the first counts
    below = (rise == 0) & ((drop < 0) | ((drop == 0) & earlier))
    lower = xp.where(below.any(2), inf, lower)
    steps = xp.where((rise > 0) & (at <= upper[:, :, None]), rise, 0).max(2)
    return lower, upper, steps


def expected_gain(values: Array, slopes: Array) -> Array:
    """E max_i (a_i + b_i z) − max_i a_i [N], for a [1, K] and b [N, K] (Frazier, Powell and Dayanik, 2009).

    It is Σ s E max(Z − |c|, 0) over the crossings c of the greatest line, where its slope grows by s.

    >>> print(expected_gain(np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]])).round(6))
    [0.395593]
    """
    xp, lines = namespace(values, slopes), slopes.shape[1]
    if xp is np and slopes.size * lines > AT_ONCE and len(slopes) > 1:
        step = max(1, AT_ONCE // lines**2)
        parts = [expected_gain(values, slopes[i : i + step]) for i in range(0, len(slopes), step)]
        return np.concatenate(parts)
    lower, upper, steps = crossings(values, slopes)
    turns = (lower < upper) & (upper < math.inf)
    return xp.where(turns, steps * excess(xp.where(turns, xp.abs(upper), 0)), 0).sum(1)


def excess(c: Array) -> Array:
    """E max(Z − c, 0) for a standard normal Z and c ≥ 0.

    >>> print(excess(np.array([0.0, 1.0])).round(6))
    [0.398942 0.083315]
    """
    xp = namespace(c)
    t = 1 / (1 + SCALE * c)
    found = xp.zeros_like(t)
    for term in reversed(TERMS):
        found = found * t + term
    return normal_density(c) * t * t * found


def best_line_probabilities(means: np.ndarray, spreads: np.ndarray) -> np.ndarray:
    """The probability [K] that mean_i + spread_i · z is the greatest, for standard normal z [d].

    Along the direction in which lines differ most, the probabilities are exact; the others are sampled
    with the same quasi-random draws at each call.

    >>> print(best_line_probabilities(np.array([1.0, 0.0]), np.array([[0.6, 0.0], [0.0, 0.8]])).round(6))
    [0.841345 0.158655]
    """
    arms = len(means)
    _, sizes, directions = np.linalg.svd(spreads - spreads[means.argmax()], full_matrices=False)
    directions = directions[sizes > TINY * max(sizes.max(), 1e-300)]
    if arms == 1 or not len(directions):
        best = means == means.max()
        return best / best.sum()
    turned = spreads @ directions.T
    z = quasi_normal(DRAWS if len(directions) > 1 else 1, len(directions) - 1)
    p, step = np.zeros(arms), max(1, AT_ONCE // arms**2)
    for start in range(0, len(z), step):
        values = means + z[start : start + step] @ turned[:, 1:].T
        lower, upper, _ = crossings(values, turned[None, :, 0])
        shares = normal_cdf(upper) - normal_cdf(lower)
        p += np.where(lower < upper, shares, 0).sum(0)
    return p / p.sum()


@functools.lru_cache(maxsize=32)
def quasi_normal(count: int, dims: int) -> np.ndarray:
    """Quasi-random standard normal numbers [count, dims], from powers of the generalised golden ratio."""
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (dims + 1))  # the root of x^(dims + 1) = 1 + x
    u = (0.5 + np.arange(1, count + 1)[:, None] * ratio ** -np.arange(1.0, dims + 1)) % 1
    return normal_quantiles(u.clip(1e-12, 1 - 1e-12))
