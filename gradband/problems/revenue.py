"""Priors for rewards of any size, fitted to past experiments by maximum likelihood.

Means of many rewards are nearly normal. So with levels ℓ ~ N(m, b²) and means μ_i ~ N(ℓ, w²), the observed
means of an experiment's arms are N(m, b² + w² + v_i / n_i), with covariances b²; v_i, the variance of an
arm's rewards, is taken as known. Revenue is described better by who buys, a hierarchical beta distribution
as in `fitting`, and by how much: the amounts of N buyers sum to S ~ Gamma(N k) with mean N m_i, and
1 / m_i ~ Gamma(τ + 1) around the experiment's level, whose logarithm is normal. Gamma amounts, unlike
log-normal ones, have sums of a known distribution, in the likelihood as well as in batches.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy  # whose parts are imported when they are needed

from gradband.core.errors import InputError
from gradband.core.statistics import Mean
from gradband.problems import fitting, priors, rewards
from gradband.problems.likelihood import (
    FEW,
    Fit,
    Functions,
    delta_method,
    gauss_hermite,
    log_sum,
    maximise,
    per_experiment,
)
from gradband.problems.past_experiments import Experiments

NODES = 24  # of the quadrature over the level of amounts
BORROWED = 20.0  # pulls' worth of an experiment's variance in that of each of its arms
LEAST_SHAPE, LARGEST_SHAPE = 1e-3, 1e6  # of amounts
GAUSSIAN = ("gaussian", "hierarchical-gaussian")
ZERO_INFLATED = ("zero-inflated", "varying-zero-inflated")
SHARES = {
    "level mean": "share of buyers",
    "sd between experiments": "sd of shares between experiments",
    "sd within an experiment": "sd of shares within an experiment",
}


def fit(
    experiments: Experiments,
    held_out: Experiments,
    arms: int,
    prior: str = "",
    progress: Callable[[float, str], None] = lambda share, name: None,
) -> list[Fit]:
    """Priors for K = `arms`, ordered by the likelihood of the experiments held out, the best first.

    Where buyers are known they are zero-inflated, unless `prior` names a Gaussian one. With fewer than
    `FEW` experiments, shares of buyers do not vary more in some experiments than in others.
    """
    gaussian = experiments.buyers is None or prior in GAUSSIAN
    if prior in ZERO_INFLATED and gaussian:
        raise InputError(f"a {prior} prior needs the number of buyers: the pulls with a reward above 0")
    assert experiments.variances is not None
    if not experiments.variances.any():
        raise InputError("the rewards of each arm are all the same: there is no noise to learn from")
    enough = len(experiments) + len(held_out) >= FEW
    kinds = GAUSSIAN if gaussian else ZERO_INFLATED if enough else ZERO_INFLATED[:1]
    found = []
    for place, name in enumerate(kinds):
        progress(place / len(kinds), name)
        make = normal if gaussian else zero_inflated
        found.append(make(name, experiments, held_out, arms))
    return sorted(found, key=lambda entry: -entry.score.mean)


def noise_of(found: Experiments) -> np.ndarray:
    """Variances [A] of single rewards, each with some of its experiment's pulls borrowed.

    A variance of a few rewards may be 0, and would then make its arm's mean seem certain.
    """
    assert found.variances is not None
    freedom = np.maximum(found.pulls - 1, 0)
    total = freedom * found.variances
    whole = total.sum() / max(freedom.sum(), 1) or 1.0
    own = (per_experiment(total, found) + whole) / (per_experiment(freedom, found) + 1)
    return (total + BORROWED * own[found.owner]) / (freedom + BORROWED)


@dataclasses.dataclass(frozen=True)
class Observed:
    """Means of arms [A] in units of `scale` from `centre`, and the variances of these means."""

    found: Experiments
    centre: float
    scale: float
    means: np.ndarray
    variances: np.ndarray

    @classmethod
    def of(cls, found: Experiments, centre: float | None = None, scale: float = 0.0) -> "Observed":
        means, variances = found.successes / found.pulls, noise_of(found) / found.pulls
        if centre is None:
            centre = float(means.mean())
            scale = max(float(means.std()), float(np.sqrt(np.median(variances))))
        return cls(found, centre, scale, (means - centre) / scale, variances / scale**2)

    def __len__(self) -> int:
        return len(self.found)


def normal_likelihood(x: np.ndarray, seen: Observed) -> np.ndarray:
    """Log-likelihoods [E] of experiments; x = (mean, log w) and, if levels differ, log b."""
    total = seen.variances + math.exp(2 * x[1])
    between = math.exp(2 * x[2]) if len(x) > 2 else 0.0
    off = seen.means - x[0]
    weight, first = (per_experiment(each, seen.found) for each in (1 / total, off / total))
    square = per_experiment(off**2 / total + np.log(2 * math.pi * total), seen.found)
    more = 1 + between * weight
    return -0.5 * (square + np.log(more) - between * first**2 / more)


def normal(name: str, experiments: Experiments, held_out: Experiments, arms: int) -> Fit:
    """Normal means around a level per experiment, or around one level for all."""
    seen = Observed.of(experiments)
    start = [0.0, math.log(0.5)] + [math.log(0.5)] * (name == GAUSSIAN[1])
    x, covariance = maximise(normal_likelihood, np.array(start), seen)
    names = ["mean", "sd"] if len(x) == 2 else ["mean", "sd within an experiment", "sd between experiments"]
    functions: Functions = {
        names[0]: lambda x: seen.centre + seen.scale * x[0],
        **{each: partial(_scaled_exp, seen.scale, place + 1) for place, each in enumerate(names[1:])},
    }
    numbers = delta_method(functions, x, covariance)
    mean, within, *between = (entry.mean for entry in numbers.values())
    sd = sd_of_rewards(experiments)
    law = rewards.Gaussian(sd.mean)
    prior: priors.Prior = priors.Gaussian(arms, mean, within, law)
    if between:
        prior = priors.HierarchicalGaussian(arms, mean, between[0], within, law)
    scores = normal_likelihood(x, Observed.of(held_out, seen.centre, seen.scale))
    # In the user's unit, a density of K means is smaller by the scale, K times.
    scores = scores - held_out.sizes * math.log(seen.scale)
    return Fit(name, prior, scores, numbers | {"sd of rewards": sd})


def sd_of_rewards(found: Experiments) -> Mean:
    """The standard deviation of a reward around its arm's mean, over all pulls; its error is clustered."""
    noise, total = noise_of(found), found.pulls.sum()
    variance = float(found.pulls @ noise / total)
    error = math.sqrt(float((per_experiment(found.pulls * (noise - variance), found) ** 2).sum())) / total
    return Mean(math.sqrt(variance), error / (2 * math.sqrt(variance)))


def _scaled_exp(scale: float, place: int, x: np.ndarray) -> np.ndarray:
    return scale * np.exp(x[place])


def zero_inflated(name: str, experiments: Experiments, held_out: Experiments, arms: int) -> Fit:
    """Shares of buyers and mean amounts, both around levels per experiment, and independent."""
    assert experiments.buyers is not None
    if not experiments.buyers.any():
        raise InputError("there is no buyer at all: there is nothing to learn from")
    make = fitting.hierarchical if name == ZERO_INFLATED[0] else fitting.varying
    buying = make(buyers_of(experiments), buyers_of(held_out), arms)
    shape = shape_of_amounts(experiments)
    scale = float(experiments.successes.sum() / experiments.buyers.sum())
    x, covariance = _fit_amounts(experiments, shape.mean, scale)
    functions: Functions = {
        "mean amount": lambda x: scale * np.exp(x[0] + np.exp(2 * x[1]) / 2),
        "sd of log amounts between experiments": lambda x: np.exp(x[1]),
        "tightness of amounts within": lambda x: np.exp(x[2]),
    }
    told = {SHARES.get(each, f"{each} of shares"): value for each, value in buying.numbers.items()}
    told |= delta_method(functions, x, covariance) | {"shape of amounts": shape}
    shares = {each: getattr(buying.prior, each) for each in ("a", "b", "strength", "spread", "slope")}
    prior = priors.ZeroInflated(
        arms=arms,
        **shares,
        amount=scale * math.exp(x[0]),
        between=math.exp(x[1]),
        tightness=math.exp(x[2]),
        rewards=rewards.ZeroInflated(shape.mean),
    )
    scores = buying.held_out + amounts_likelihood(x, held_out, shape.mean, scale)
    return Fit(name, prior, scores, told)


def buyers_of(found: Experiments) -> Experiments:
    """The same experiments with buyers as successes."""
    assert found.buyers is not None
    return Experiments(found.starts, found.pulls, found.buyers)


def squares_of(found: Experiments) -> np.ndarray:
    """Sums of squared rewards [A]."""
    assert found.variances is not None
    return found.variances * np.maximum(found.pulls - 1, 0) + found.successes**2 / found.pulls


def shape_of_amounts(found: Experiments) -> Mean:
    """The shape k of gamma amounts, by moments, with a standard error clustered by experiment.

    Given the sum S of an arm's N amounts, Σ Y² / S² has the mean (k + 1) / (N k + 1). By moments, not by
    likelihood: noise in sums is then right for amounts that are not gamma variables.
    """
    assert found.buyers is not None
    buyers, seen = found.buyers, found.buyers > 1
    ratio = squares_of(found) / np.where(seen, found.successes, 1.0) ** 2

    def off(log_shape: float) -> np.ndarray:
        shape = math.exp(log_shape)
        each = np.where(seen, buyers**2 * (ratio - (shape + 1) / (buyers * shape + 1)), 0)
        return per_experiment(each, found)

    low, high = math.log(LEAST_SHAPE), math.log(LARGEST_SHAPE)
    if not seen.any() or off(high).sum() <= 0:
        return Mean(LARGEST_SHAPE if seen.any() else 1.0, math.inf)
    log_shape = scipy.optimize.brentq(lambda x: off(x).sum(), low, high) if off(low).sum() < 0 else low
    slope = (off(log_shape + 1e-4).sum() - off(log_shape - 1e-4).sum()) / 2e-4
    error = math.sqrt(float((off(log_shape) ** 2).sum())) / abs(float(slope))
    return Mean(math.exp(log_shape), math.exp(log_shape) * error)


def amounts_likelihood(
    x: np.ndarray,
    found: Experiments,
    shape: float,
    scale: float,
    where: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """Log-likelihoods [E] of sums of amounts given buyers; x = (log A / scale, log s, log τ).

    The logarithm of the level is integrated out by Gauss–Hermite quadrature, around `where` it is.
    """
    assert found.buyers is not None
    nodes, weights = gauss_hermite(NODES)
    centre, spread = where or whereabouts(x, found, shape, scale)
    level = centre[:, None] + math.sqrt(2) * spread[:, None] * nodes  # [E, Q]
    sd = math.exp(x[1])
    log_prior = -(((level - x[0]) / sd) ** 2) / 2 - math.log(sd) - 0.5 * math.log(2 * math.pi)
    arms = per_experiment(sums_likelihood(found, shape, scale, math.exp(x[2]), level[found.owner]), found)
    inside = log_prior + arms + np.log(weights) + nodes**2
    unit = per_experiment((found.buyers > 0) * math.log(scale), found)
    return log_sum(inside, (1,)) + np.log(spread) + 0.5 * math.log(2) - unit


def sums_likelihood(
    found: Experiments, shape: float, scale: float, tightness: float, level: np.ndarray
) -> np.ndarray:
    """Log-densities [A, …] of the arms' sums in units of `scale`, given log-levels [A, …]."""
    assert found.buyers is not None
    total, sums = shape * found.buyers, found.successes / scale
    bought = total > 0
    total, sums = np.where(bought, total, 1.0), np.where(bought, sums, 1.0)
    own = (
        scipy.special.gammaln(total + tightness + 1)
        - scipy.special.gammaln(total)
        - scipy.special.gammaln(tightness + 1)
    )
    own += total * math.log(shape) + (total - 1) * np.log(sums) + (tightness + 1) * math.log(tightness)
    both = np.log(shape * sums[:, None] + tightness * np.exp(level))
    each = own[:, None] + (tightness + 1) * level - (total + tightness + 1)[:, None] * both
    return np.where(bought[:, None], each, 0.0)


def whereabouts(
    x: np.ndarray, found: Experiments, shape: float, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """The approximate mean and standard deviation [E] of an experiment's log-level."""
    assert found.buyers is not None
    bought = found.buyers > 0
    mean = np.log(np.where(bought, found.successes / np.maximum(found.buyers, 1) / scale, 1.0))
    noise = 1 / np.maximum(shape * found.buyers, 1e-9) + math.exp(-x[2])
    precision = np.where(bought, 1 / noise, 0)
    prior = math.exp(-2 * x[1])
    total = per_experiment(precision, found) + prior
    return (per_experiment(precision * mean, found) + prior * x[0]) / total, np.clip(
        1 / np.sqrt(total), 1e-6, 5.0
    )


def _fit_amounts(found: Experiments, shape: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """The parameters of `amounts_likelihood` that maximise it, and their covariance."""
    x = np.array([0.0, math.log(0.3), math.log(30.0)])
    for _ in range(2):  # first around where levels seem to be, then around where they are
        where = whereabouts(x, found, shape, scale)
        likelihood = partial(_amounts, shape=shape, scale=scale, where=where)
        x, covariance = maximise(likelihood, x, found)
    return x, covariance


def _amounts(
    x: np.ndarray, found: Experiments, shape: float, scale: float, where: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    return amounts_likelihood(x, found, shape, scale, where)
