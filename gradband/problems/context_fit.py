"""Linear priors fitted to past experiments with features of arms or of visitors.

In an experiment, rows with the features x have the linear function xᵀθ, where θ ~ N(m, S) differs from
experiment to experiment: the mean reward itself, or the logit of the share of successes. If several rows
belong to one arm, features are those of visitors, and each arm has θᵢ ~ N(θ, W) of its own. If they are
those of arms, which may differ beyond them, W is that of the intercept alone. The linear functions f of an
experiment's rows are then N(X m, C), with C = X S Xᵀ + (X W Xᵀ within arms). Rewards are integrated out:
exactly for means, by Laplace's approximation for successes (Rasmussen and Williams, 2006, algorithm 3.1).
"""

import dataclasses
import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy  # whose parts are imported when they are needed

from gradband.problems import priors, rewards
from gradband.problems.context_rows import ContextRows
from gradband.problems.likelihood import Fit, Functions, delta_method, maximise, mean_of
from gradband.problems.revenue import noise_of

POOL = 500  # rows of features in a problem
NEWTON = 40  # steps to the mode
LEAST = 1e-6  # standard deviation that a prior may have
BETWEEN_ARMS = "sd beyond features"
LINEAR, BEYOND, WITHOUT = "linear", "beyond features", "without features"


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


class Levels(NamedTuple):
    """θᵢ ~ N(θ, W) for every arm of an experiment, where θ ~ N(m, S), with diagonal S and W."""

    mean: np.ndarray
    between: np.ndarray
    """the diagonal of S [d]"""
    within: np.ndarray
    """that of W [d]"""

    @classmethod
    def at(cls, x: np.ndarray, dims: int) -> "Levels":
        """From x = (m, log √S), and log √W, of all features or of the intercept alone."""
        within, spreads = np.zeros(dims), np.exp(2 * x[dims:])
        within[: len(x) - 2 * dims] = spreads[dims:]
        return cls(x[:dims], spreads[:dims], within)

    def covariance(self, x: np.ndarray, same: np.ndarray) -> np.ndarray:
        """C [..., R, R] of rows with features x [..., R, d], of which some belong to the same arm."""
        transposed = np.swapaxes(x, -1, -2)
        return (x * self.between) @ transposed + same * ((x * self.within) @ transposed)

    def draw(self, count: int, arms: int, rng: np.random.Generator) -> np.ndarray:
        """θᵢ [count, arms, d]."""
        level = self.mean + np.sqrt(self.between) * rng.normal(size=(count, 1, len(self.mean)))
        return level + np.sqrt(self.within) * rng.normal(size=(count, arms, len(self.mean)))


def log_likelihood(x: np.ndarray, seen: Padded) -> np.ndarray:
    """Log-likelihoods [E] of experiments; x = (m, log √S), and log √W if arms have θᵢ of their own."""
    return likelihood_of(Levels.at(x, seen.x.shape[2]), seen)


def likelihood_of(levels: Levels, seen: Padded) -> np.ndarray:
    """Log-likelihoods [E] of experiments with these levels."""
    prior, cov = seen.x @ levels.mean, levels.covariance(seen.x, seen.same)
    if seen.noise is None:
        f, value = modes(seen, prior, cov)
        p = scipy.special.expit(f)
        lower = np.linalg.cholesky(_widened(np.sqrt(seen.pulls * p * (1 - p)), cov))
        return value - _half_log_det(lower)
    there = seen.pulls > 0
    root = there / np.sqrt(seen.noise)
    off = root * (seen.sums / np.maximum(seen.pulls, 1) - prior)
    lower = np.linalg.cholesky(_widened(root, cov))
    solved = np.linalg.solve(lower, off[..., None])[..., 0]
    return -0.5 * ((solved**2) + there * np.log(2 * np.pi * seen.noise)).sum(1) - _half_log_det(lower)


def modes(seen: Padded, prior: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mode f = prior + C a [E, R] given successes, and its log-density [E] up to that of f = prior."""
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
    return f, best


def _widened(root: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """I + √w C √w."""
    return np.eye(cov.shape[1]) + root[:, :, None] * cov * root[:, None]


def _half_log_det(lower: np.ndarray) -> np.ndarray:
    return np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(1)


def fit(found: ContextRows, held_out: ContextRows, arms: int) -> list[Fit]:
    """Linear priors, the chosen one first, and one that ignores the features.

    If features are those of arms, there is a prior whose arms differ beyond them, which is chosen if it
    fits held-out experiments better. The one without features, by which arms just differ, tells what
    features are worth.
    """
    plain, rest = (dataclasses.replace(each, features=each.features[:, :1]) for each in (found, held_out))
    fits = [_fitted(LINEAR, found, held_out, arms)]
    if not found.by_arm:
        fits.append(_fitted(BEYOND, found, held_out, arms))
        more = mean_of(fits[1].held_out - fits[0].held_out)
        if more.mean > more.se:
            fits.reverse()
    return [*fits, _fitted(WITHOUT, plain, rest, arms)]


def name_of(prior: Any) -> str:
    """What a fit of this prior is called."""
    if prior.dims == 1:
        return WITHOUT
    return LINEAR if getattr(prior, "own", None) is None else BEYOND


def _fitted(name: str, found: ContextRows, held_out: ContextRows, arms: int) -> Fit:
    dims = found.features.shape[1]
    columns = found.columns[:dims]
    scale = np.maximum(found.features.std(0), 1e-12)
    scale[0] = 1.0
    seen, rest = Padded.of(found, scale), Padded.of(held_out, scale)
    own = dims if found.by_arm else int(name != LINEAR)
    x, covariance = maximise(log_likelihood, _start(found, scale, own), seen)
    parts = {"mean of": 0, "sd of": dims} | ({"sd within arms of": 2 * dims} if found.by_arm else {})
    functions: Functions = {
        f"{what} {columns[i]}": partial(_number, place=first + i, scale=scale[i], log=first > 0)
        for what, first in parts.items()
        for i in range(dims)
    }
    beyond = not found.by_arm and name != LINEAR
    if beyond:
        functions[BETWEEN_ARMS] = lambda x: np.exp(x[-1])
    numbers = delta_method(functions, x, covariance)
    said = {what: [numbers[f"{what} {column}"].mean for column in columns] for what in parts}
    own_sd = max(numbers[BETWEEN_ARMS].mean, LEAST) if beyond else None
    return Fit(name, _prior(found, arms, said, own_sd), log_likelihood(x, rest), numbers)


def _number(x: np.ndarray, place: int, scale: float, log: bool) -> Any:
    return (np.exp(x[place]) if log else x[place]) / scale


def _start(found: ContextRows, scale: np.ndarray, own: int) -> np.ndarray:
    """Where the search begins: least squares of all rows, and half of what is left as spread."""
    rate = found.successes / found.pulls
    if found.variances is None:
        share = (found.successes + 0.5) / (found.pulls + 1)
        rate = np.log(share / (1 - share))
    mean, *_ = np.linalg.lstsq(found.features / scale, rate, rcond=None)
    left = max(float((rate - found.features / scale @ mean).std()), 1e-6) / math.sqrt(2 * len(mean))
    return np.concatenate([mean, np.full(len(mean) + own, math.log(left))])


def _prior(found: ContextRows, arms: int, said: dict[str, list[float]], own: float | None) -> priors.Prior:
    """The fitted numbers as the prior of a problem."""
    paid: rewards.Reward = rewards.Bernoulli()
    if found.variances is not None:
        paid = rewards.Gaussian(math.sqrt(float(np.average(noise_of(found), weights=found.pulls))))
    mean = said["mean of"]
    if not found.by_arm:
        drawn = pool(found.features, np.ones(len(found.pulls)))
        between = _positive(said["sd of"])
        return priors.Linear(arms, len(mean), mean, between, pool=drawn, own=own, rewards=paid)
    within, between = (_positive(said[what]) for what in ("sd within arms of", "sd of"))
    drawn = pool(found.features, found.pulls)
    return priors.LinearByArm(arms, len(mean), mean, within, between=between, pool=drawn, rewards=paid)


def _positive(sds: list[float]) -> list[float]:
    """Deviations that a prior may have: none is exactly 0."""
    return [max(sd, LEAST) for sd in sds]


def pool(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rows of features, each as often as its share of the weights."""
    kinds, place = np.unique(features, axis=0, return_inverse=True)
    shares = np.cumsum(np.bincount(place.ravel(), weights, len(kinds))) / weights.sum()
    points = (np.arange(POOL) + 0.5) / POOL
    found: np.ndarray = kinds[np.minimum(np.searchsorted(shares, points), len(kinds) - 1)]
    return found
