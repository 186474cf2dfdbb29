"""Random hinges: features with which linear beliefs are beliefs about curved rewards too."""

import functools

import numpy as np

from gradband.core.arrays import Array, namespace

OFFSETS = 0.5  # their standard deviation


def with_hinges(features: Array, count: int) -> Array:
    """Features [K, d] or [d], followed by √(2 / M) max(wⱼᵀx + bⱼ, 0) for M pairs of w and b.

    They are always the same, drawn from N(0, I / d) and N(0, 1/4). With coefficients N(0, 1) their sum is a
    random function of x that bends everywhere, with the variance |x|² / d + 1/4 on average.
    """
    if not count:
        return features
    xp = namespace(features)
    slopes, offsets = (xp.asarray(each, features.dtype) for each in drawn(features.shape[-1], count))
    if features.ndim == 1:
        heights = (slopes * features[None]).sum(1) + offsets
    else:
        heights = (slopes[None] * features[:, None, :]).sum(2) + offsets[None]
    return xp.concatenate([features, xp.maximum(heights, 0)], axis=-1)


@functools.lru_cache(maxsize=16)  # of a service that plays many policies, one may be large
def drawn(dims: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """w [M, d] and b [M], both times √(2 / M)."""
    draws, scale = np.random.RandomState(0), np.sqrt(2 / count)
    slopes = draws.standard_normal((count, dims)) * scale / np.sqrt(dims)
    return slopes, draws.standard_normal(count) * scale * OFFSETS
