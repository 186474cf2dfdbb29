"""The grid on which the level of an experiment is believed in."""

import functools
import math

import numpy as np

LEVELS = 96  # of the hierarchical prior's level


@functools.lru_cache(maxsize=64)
def levels_of(a: float, b: float) -> tuple[np.ndarray, np.ndarray]:
    """Levels [G] of a Beta(a, b) prior, even in their logits, and the logarithms of their probabilities."""
    middle = math.log(a / b)
    reach = 5 * math.sqrt(1 / a + 1 / b)  # roughly five standard deviations of the logit
    logits = np.linspace(max(middle - reach, -15.0), min(middle + reach, 15.0), LEVELS)
    levels = 1 / (1 + np.exp(-logits))
    log_prior = a * np.log(levels) + b * np.log1p(-levels)
    return levels, log_prior - log_prior.max()
