"""Quantiles and tails of beta distributions in NumPy, for Bayes-UCB and the optimistic Gittins index."""

import math

import numpy as np

FARTHEST = 700.0  # the largest logit: e⁷⁰⁰ is still finite


def upper_logits(tail: float, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`upper_logit` of all arms [K]; zeros for a tail of 1."""
    if tail == 1:
        return np.zeros(len(a))
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    logits = {pair: upper_logit(float(tail), *pair) for pair in pairs}
    return np.array([logits[pair] for pair in pairs])


def upper_probabilities(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """P(X > x) [K] for X ~ Beta(a, b), with 0 < x < 1."""
    found = []
    for value, up, down in zip(x.tolist(), a.tolist(), b.tolist(), strict=True):
        scale = math.lgamma(up) + math.lgamma(down) - math.lgamma(up + down)
        found.append(math.exp(log_upper_tail(math.log(value / (1 - value)), up, down, scale)))
    return np.array(found)


def upper_logit(tail: float, a: float, b: float) -> float:
    """log(x / (1 − x)) of the x that a Beta(a, b) variable exceeds with probability `tail`.

    Newton's method on the logarithm of the tail, within an interval that is halved if a step leaves it.
    """
    scale, low, high = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b), -FARTHEST, FARTHEST
    z = min(max(math.log(a / b) + math.sqrt(1 / a + 1 / b), low + 1), high - 1)
    target = math.log(tail)
    for _ in range(200):
        above = log_upper_tail(z, a, b, scale)
        low, high = (z, high) if above > target else (low, z)
        log_density = a * log_sigmoid(z) + b * log_sigmoid(-z) - scale
        slope = math.exp(min(log_density - above, 700))
        following = z + (above - target) / slope if slope > 0 else math.inf
        if not low < following < high:
            following = (low + high) / 2
        if abs(following - z) <= 1e-13 * max(1.0, abs(z)):
            break
        z = following
    return z


def log_sigmoid(z: float) -> float:
    return -math.log1p(math.exp(-z)) if z > 0 else z - math.log1p(math.exp(z))


def log_upper_tail(z: float, a: float, b: float, scale: float) -> float:
    """log P(X > x) for X ~ Beta(a, b) and x = 1 / (1 + e⁻ᶻ), with log B(a, b) as `scale`.

    The continued fraction of the incomplete beta function, on the side where it converges fast.
    """
    x, rest = 1 / (1 + math.exp(-z)), 1 / (1 + math.exp(z))
    front = a * log_sigmoid(z) + b * log_sigmoid(-z) - scale
    if rest < (b + 1) / (a + b + 2):
        return front - math.log(b) + math.log(_fraction(rest, b, a))
    return math.log1p(-min(math.exp(front) / a * _fraction(x, a, b), 1 - 1e-16))


def _fraction(x: float, a: float, b: float) -> float:
    """Lentz's evaluation of the continued fraction for I_x(a, b)."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    h = d
    for m in range(1, 10_000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 + numerator * d, 1 + numerator / c
            d, c = 1 / (d if abs(d) > tiny else tiny), c if abs(c) > tiny else tiny
            h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return h
