"""Linear priors fitted to past experiments with features of arms or of visitors.

In an experiment, rows with the features x have the linear function xᵀθ, where θ ~ N(m, S) differs from
experiment to experiment: the mean reward itself, or the logit of the share of successes. If several rows
belong to one arm, features are those of visitors, and each arm has θᵢ ~ N(θ, W) of its own. The linear
functions f of an experiment's rows are then N(X m, C), with C = X S Xᵀ + (X W Xᵀ within arms). Rewards are
integrated out: exactly for means, by Laplace's approximation for successes (Rasmussen and Williams, 2006,
algorithm 3.1).
"""

import dataclasses
import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy  # whose parts are imported when they are needed

from gradband.problems import priors, rewards
from gradband.problems.context_rows import ContextRows
from gradband.problems.likelihood import Fit, Functions, delta_method, maximise
from gradband.problems.revenue import noise_of

POOL = 500  # rows of features in a problem
NEWTON = 40  # steps to the mode


class Padded(NamedTuple):
    """Experiments [E, R] with as many rows each; rows that are not there have no pulls."""

    x: np.ndarray
    """features [E, R, d] in units of `scale`"""
    same: np.ndarray
    """whether two rows belong to the same arm [E, R, R]"""
    pulls: np.ndarray
    sums: np.ndarray
    noise: np.ndarray | None
    """variances of the rows' means, if rewards are not 0 and 1"""

    @classmethod
    def of(cls, found: ContextRows, scale: np.ndarray) -> "Padded":
        place = np.arange(len(found.pulls)) - found.starts[found.owner]

        def spread(values: np.ndarray, empty: float = 0.0) -> np.ndarray:
            full = np.full((len(found), found.sizes.max(), *values.shape[1:]), empty)
            full[found.owner, place] = values
            return full

        arm = spread(found.arm, -1.0)
        noise = None if found.variances is None else spread(noise_of(found) / found.pulls, 1.0)
        same = arm[:, :, None] == arm[:, None]
        return cls(
            spread(found.features / scale), same, spread(found.pulls), spread(found.successes), noise
        )

    def __len__(self) -> int:
        return len(self.x)


def _parts(x: np.ndarray, dims: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """m, the diagonal of S and that of W, or zeros if arms have no θ of their own."""
    spreads = np.exp(2 * x[dims:])
    return x[:dims], spreads[:dims], spreads[dims:] if len(x) > 2 * dims else np.zeros(dims)


def log_likelihood(x: np.ndarray, seen: Padded) -> np.ndarray:
    """Log-likelihoods [E] of experiments; x = (m, log √S), and log √W if features are those of visitors."""
    mean, between, within = _parts(x, seen.x.shape[2])
    prior = seen.x @ mean
    transposed = np.swapaxes(seen.x, 1, 2)
    cov = (seen.x * between) @ transposed + seen.same * ((seen.x * within) @ transposed)
    if seen.noise is None:
        return _of_successes(seen, prior, cov)
    there = seen.pulls > 0
    root = there / np.sqrt(seen.noise)
    off = root * (seen.sums / np.maximum(seen.pulls, 1) - prior)
    lower = np.linalg.cholesky(_widened(root, cov))
    solved = np.linalg.solve(lower, off[..., None])[..., 0]
    return -0.5 * ((solved**2) + there * np.log(2 * np.pi * seen.noise)).sum(1) - _half_log_det(lower)


def _of_successes(seen: Padded, prior: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """The same for successes, by Laplace's approximation around the mode f = prior + C a."""
    n, s = seen.pulls, seen.sums
    a = np.zeros_like(prior)
    step, best = np.ones(len(a)), np.full(len(a), -np.inf)
    f, direction = prior, np.zeros_like(a)
    for _ in range(NEWTON):
        tried = a + step[:, None] * direction
        moved = (cov @ tried[..., None])[..., 0]
        value = (
            s * scipy.special.log_expit(prior + moved) + (n - s) * scipy.special.log_expit(-prior - moved)
        ).sum(1)
        value -= 0.5 * (tried * moved).sum(1)
        better = value >= best - 1e-10
        gain = np.where(better & np.isfinite(best), value - best, np.inf)
        a, f = (np.where(better[:, None], new, old) for new, old in ((tried, a), (prior + moved, f)))
        best = np.maximum(best, value)
        step = np.where(better, 1.0, step / 2)
        if (gain[better] < 1e-10).all() and better.all():
            break
        p = scipy.special.expit(f)
        root = np.sqrt(n * p * (1 - p))
        target = root**2 * (f - prior) + s - n * p
        inner = root * (cov @ target[..., None])[..., 0]
        direction = target - root * np.linalg.solve(_widened(root, cov), inner[..., None])[..., 0] - a
    p = scipy.special.expit(f)
    lower = np.linalg.cholesky(_widened(np.sqrt(n * p * (1 - p)), cov))
    return best - _half_log_det(lower)


def _widened(root: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """I + √w C √w."""
    return np.eye(cov.shape[1]) + root[:, :, None] * cov * root[:, None]


def _half_log_det(lower: np.ndarray) -> np.ndarray:
    return np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(1)


def fit(found: ContextRows, held_out: ContextRows, arms: int) -> list[Fit]:
    """The linear prior, and one that ignores the features, by the likelihood of held-out experiments.

    The linear one is chosen anyway: the other tells what features are worth.
    """
    plain, rest = (dataclasses.replace(each, features=each.features[:, :1]) for each in (found, held_out))
    return [
        _fitted("linear", found, held_out, arms, found.columns),
        _fitted("without features", plain, rest, arms, found.columns[:1]),
    ]


def _fitted(
    name: str, found: ContextRows, held_out: ContextRows, arms: int, columns: tuple[str, ...]
) -> Fit:
    by_arm, dims = found.by_arm, found.features.shape[1]
    scale = np.maximum(found.features.std(0), 1e-12)
    scale[0] = 1.0
    seen, rest = Padded.of(found, scale), Padded.of(held_out, scale)
    x, covariance = maximise(log_likelihood, _start(found, scale, by_arm), seen)
    parts = {"mean of": 0, "sd of": dims} | ({"sd within arms of": 2 * dims} if by_arm else {})
    functions: Functions = {
        f"{what} {columns[i]}": partial(_number, place=first + i, scale=scale[i], log=first > 0)
        for what, first in parts.items()
        for i in range(dims)
    }
    numbers = delta_method(functions, x, covariance)
    said = {what: [numbers[f"{what} {column}"].mean for column in columns] for what in parts}
    return Fit(name, _prior(found, arms, said), log_likelihood(x, rest), numbers)


def _number(x: np.ndarray, place: int, scale: float, log: bool) -> Any:
    return (np.exp(x[place]) if log else x[place]) / scale


def _start(found: ContextRows, scale: np.ndarray, by_arm: bool) -> np.ndarray:
    """Where the search begins: least squares of all rows, and half of what is left as spread."""
    rate = found.successes / found.pulls
    if found.variances is None:
        share = (found.successes + 0.5) / (found.pulls + 1)
        rate = np.log(share / (1 - share))
    mean, *_ = np.linalg.lstsq(found.features / scale, rate, rcond=None)
    left = max(float((rate - found.features / scale @ mean).std()), 1e-6) / math.sqrt(2 * len(mean))
    return np.concatenate([mean, np.full((2 if by_arm else 1) * len(mean), math.log(left))])


def _prior(found: ContextRows, arms: int, said: dict[str, list[float]]) -> priors.Prior:
    """The fitted numbers as the prior of a problem."""
    paid: rewards.Reward = rewards.Bernoulli()
    if found.variances is not None:
        paid = rewards.Gaussian(math.sqrt(float(np.average(noise_of(found), weights=found.pulls))))
    mean = said["mean of"]
    if not found.by_arm:
        pool = _pool(found.features, np.ones(len(found.pulls)))
        return priors.Linear(arms, len(mean), mean, _positive(said["sd of"]), pool=pool, rewards=paid)
    within, between = (_positive(said[what]) for what in ("sd within arms of", "sd of"))
    pool = _pool(found.features, found.pulls)
    return priors.LinearByArm(arms, len(mean), mean, within, between=between, pool=pool, rewards=paid)


def _positive(sds: list[float]) -> list[float]:
    """Deviations that a prior may have: none is exactly 0."""
    return [max(sd, 1e-6) for sd in sds]


def _pool(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rows of features, each as often as its share of the weights."""
    kinds, place = np.unique(features, axis=0, return_inverse=True)
    shares = np.cumsum(np.bincount(place.ravel(), weights, len(kinds))) / weights.sum()
    points = (np.arange(POOL) + 0.5) / POOL
    found: np.ndarray = kinds[np.minimum(np.searchsorted(shares, points), len(kinds) - 1)]
    return found
