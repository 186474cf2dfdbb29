"""A grid over an experiment's level and over how far its arms vary around it.

A level ℓ ~ Beta(a, b), and arms from Beta(κ ℓ, κ (1 − ℓ)) with κ = strength · (ℓ / m)^−slope ·
exp(spread · ε), where m = a / (a + b) and ε ~ N(0, 1): arms vary more in some experiments than in others.
"""

import functools
import math

import numpy as np

LEVELS = 96  # of the level ℓ
STRENGTHS = 5  # of ε, where κ varies
MOST_SPREAD, MOST_SLOPE = 10.0, 10.0
LARGEST_STRENGTH = 1e9  # beyond this κ, arms do not differ in float32


@functools.lru_cache(maxsize=64)
def levels_of(a: float, b: float) -> tuple[np.ndarray, np.ndarray]:
    """Levels [G] of a Beta(a, b) prior, evenly spaced in their logits, and their log-probabilities."""
    middle = math.log(a / b)
    reach = 5 * math.sqrt(1 / a + 1 / b)  # about five standard deviations of the logit
    logits = np.linspace(max(middle - reach, -15.0), min(middle + reach, 15.0), LEVELS)
    levels = 1 / (1 + np.exp(-logits))
    log_prior = a * np.log(levels) + b * np.log1p(-levels)
    return levels, log_prior - log_prior.max()


@functools.lru_cache(maxsize=64)
def components_of(
    a: float, b: float, strength: float, spread: float, slope: float, count: int = STRENGTHS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Beta distributions of an experiment's arms: log-weights, a and b, each [G].

    Each level has `count` values of κ, or one if κ does not vary.
    """
    levels, log_prior = levels_of(a, b)
    nodes, log_weights = normal_nodes(count if spread > 0 else 1)
    kappa = strength_at(np.log(levels * (a + b) / a), strength, spread, slope, nodes)  # [G, S]
    ups, downs = kappa * levels[:, None], kappa * (1 - levels[:, None])
    return (log_prior[:, None] + log_weights).ravel(), ups.ravel(), downs.ravel()


def strength_at(
    log_ratio: np.ndarray, strength: float, spread: float, slope: float, nodes: np.ndarray
) -> np.ndarray:
    """κ [..., S] from log(ℓ / m) [...] and nodes of ε [S]."""
    log = math.log(strength) - slope * log_ratio[..., None] + spread * nodes
    return np.exp(np.minimum(log, math.log(LARGEST_STRENGTH)))


@functools.cache
def normal_nodes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes [S] of a standard normal variable and their log-weights (Gauss–Hermite)."""
    nodes, weights = np.polynomial.hermite.hermgauss(count)
    return math.sqrt(2) * nodes, np.log(weights / weights.sum())
