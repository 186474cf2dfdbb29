"""Means, quantiles and means of tails, with their errors."""

import dataclasses
import math

import numpy as np

TAIL = 0.025  # beyond each end of a 95 % interval
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


@dataclasses.dataclass(frozen=True)
class Quantile:
    """A quantile of a sample, and a 95 % interval for that of the population, from order statistics.

    An end of the interval is infinite if the sample is too small to have one.

    >>> print(Quantile.of(np.arange(1.0, 1001.0), 0.95))
    950.000 [936.000, 964.000]
    """

    level: float
    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray, level: float) -> "Quantile":
        """The smallest value that is not below a share `level` of the values."""
        from scipy.special import bdtrik  # slow to import

        count = values.size
        place = max(math.ceil(count * level - 1e-9), 1)
        # The number of values below the population's quantile is binomial, at most if there are ties.
        low, high = (math.ceil(bdtrik(tail, count, level)) for tail in (TAIL, 1 - TAIL))
        places = [at - 1 for at in (place, max(low, 1), min(high + 1, count))]
        found, least, most = np.partition(values, places)[places].tolist()
        return cls(level, found, least if low else -math.inf, most if high < count else math.inf)

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def losses_in_tail(values: np.ndarray, share: float) -> np.ndarray:
    """τ + (x − τ)⁺ / share for each value x, whose mean is that of the greatest `share` of the values.

    τ is their quantile 1 − share. The error of τ does not matter for the mean's standard error: the mean
    does not change with τ to first order (Rockafellar and Uryasev, 2000).

    >>> float(losses_in_tail(np.array([1.0, 2.0, 3.0, 6.0]), 0.5).mean())
    4.5
    """
    place = max(math.ceil(values.size * (1 - share) - 1e-9), 1) - 1
    threshold = np.partition(values, place)[place]
    return threshold + np.maximum(values - threshold, 0) / share


@dataclasses.dataclass(frozen=True)
class Parts:
    """Variances of something that is drawn and then measured: of what is drawn, and of a measurement."""

    drawn: float
    measured: float

    @classmethod
    def of_twins(cls, values: np.ndarray) -> "Parts":
        """From two measurements in a row of each draw.

        >>> Parts.of_twins(np.array([1.0, 1.0, 3.0, 3.0]))
        Parts(drawn=2.0, measured=0.0)
        """
        pairs = values.reshape(-1, 2)
        measured = float(((pairs[:, 0] - pairs[:, 1]) ** 2).mean()) / 2
        return cls(max(float(pairs.mean(1).var(ddof=1)) - measured / 2, 0.0), measured)

    def se(self, draws: int, measurements: int) -> float:
        """The standard error of a mean of so many measurements of so many draws."""
        return math.sqrt(self.drawn / draws + self.measured / measurements)


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
