"""Special functions over arrays of NumPy or JAX. Playing a policy has no SciPy."""

import math
from statistics import NormalDist

import numpy as np

from gradband.core.arrays import Array, namespace

SHIFT = 6  # terms before the series of ψ and ψ′
TERMS = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def xlogy(x: Array, y: Array) -> Array:
    """x log y, or 0 where x is 0."""
    if namespace(x, y) is np:
        return x * np.log(np.where(x == 0, 1, np.maximum(y, 1e-300)))
    from jax.scipy import special

    return special.xlogy(x, y)


def lgamma(x: Array) -> Array:
    """log Γ."""
    if namespace(x) is np:
        return np.array([math.lgamma(entry) for entry in x.ravel().tolist()]).reshape(x.shape)
    from jax.scipy.special import gammaln

    return gammaln(x)


def psi(x: Array) -> tuple[Array, Array]:
    """ψ and ψ′, the first derivatives of log Γ, by their series at x + 6."""
    xp = namespace(x)
    value, slope = xp.zeros_like(x), xp.zeros_like(x)
    for step in range(SHIFT):
        value, slope = value - 1 / (x + step), slope + 1 / (x + step) ** 2
    y = x + SHIFT
    value = value + xp.log(y) - 1 / (2 * y) - 1 / (12 * y**2) + 1 / (120 * y**4) - 1 / (252 * y**6)
    slope = slope + 1 / y + 1 / (2 * y**2) + 1 / (6 * y**3) - 1 / (30 * y**5) + 1 / (42 * y**7)
    return value, slope


def normal_density(x: Array) -> Array:
    """The standard normal density."""
    return namespace(x).exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def normal_cdf(x: Array) -> Array:
    """The standard normal distribution function, within 1e-7 (Abramowitz and Stegun, 7.1.26)."""
    xp = namespace(x)
    t = 1 / (1 + 0.3275911 * xp.abs(x) / math.sqrt(2))
    polynomial = xp.zeros_like(t)
    for term in reversed(TERMS):
        polynomial = (polynomial + term) * t
    tail = polynomial * xp.exp(-(x**2) / 2) / 2
    return xp.where(x > 0, 1 - tail, tail)


def normal_quantiles(u: np.ndarray) -> np.ndarray:
    """The inverse of the standard normal distribution function, in NumPy."""
    inverse = NormalDist().inv_cdf
    return np.array([inverse(entry) for entry in u.ravel().tolist()]).reshape(u.shape)


def upper_quantile(tail: Array) -> Array:
    """The number that a standard normal variable exceeds with probability `tail`."""
    if namespace(tail) is np:
        return -NormalDist().inv_cdf(float(tail))
    from gradband.core import prng

    return -prng.normal_of(tail)
