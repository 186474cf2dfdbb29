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
        count = values.size
        se = values.std(ddof=1) / np.sqrt(count) if count > 1 else float("nan")
        return cls(float(values.mean()), float(se))

    @property
    def interval(self) -> tuple[float, float]:
        """A 95 % interval."""
        return self.mean - HALF * self.se, self.mean + HALF * self.se

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.se:.3f}"


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
