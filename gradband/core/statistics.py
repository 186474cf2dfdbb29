"""Means with standard errors."""

import dataclasses
import math

import numpy as np

HALF = 1.959964  # standard errors in half of a 95 % interval


@dataclasses.dataclass(frozen=True)
class Mean:
    """A Monte Carlo mean with its standard error.

    >>> print(Mean(4.6712, 0.0213))
    4.671 ± 0.021
    """

    mean: float
    se: float

    @classmethod
    def of(cls, values: np.ndarray) -> "Mean":
        mean, spread = mean_and_spread(values.reshape(-1))
        return cls(float(mean), float(spread / np.sqrt(values.size)))

    @property
    def interval(self) -> tuple[float, float]:
        """A 95 % interval."""
        return self.mean - HALF * self.se, self.mean + HALF * self.se

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.se:.3f}"


def mean_and_spread(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations along the last axis; of a single value the deviation is NaN.

    They have the bits of `mean` and `std`, which take several times as long for a thousand values.

    >>> mean_and_spread(np.array([1.0, 2.0, 3.0]))
    (np.float64(2.0), np.float64(1.0))
    """
    count = values.shape[-1]
    mean = np.add.reduce(values, axis=-1) / count
    if count == 1:
        return mean, mean * np.nan
    rest = values - mean[..., None]
    return mean, np.sqrt(np.add.reduce(rest * rest, axis=-1) / (count - 1))


def clustered(values: np.ndarray, owner: np.ndarray) -> Mean:
    """A mean with a standard error clustered by group; infinite for a single group.

    >>> print(clustered(np.array([1.0, 1.0, 3.0, 3.0]), np.array([0, 0, 1, 1])))
    2.000 ± 1.000
    """
    mean = float(values.mean())
    clusters, place = np.unique(owner, return_inverse=True)
    if len(clusters) < 2:
        return Mean(mean, math.inf)
    sums = np.bincount(place, values - mean)
    factor = len(clusters) / (len(clusters) - 1)
    return Mean(mean, math.sqrt(factor * float((sums**2).sum())) / len(values))
