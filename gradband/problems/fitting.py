"""Priors of means in [0, 1], fitted to past experiments by maximum likelihood.

The likelihood of an arm with s successes in n pulls, its mean from Beta(a, b), is B(a + s, b + n − s) /
B(a, b), up to a factor that all priors share. Arms of an experiment are exchangeable.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy  # whose parts are imported when they are needed

from gradband.problems import priors
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
from gradband.solvers.levels import MOST_SLOPE, MOST_SPREAD, components_of, normal_nodes, strength_at

NODES = 24  # of the quadrature over an experiment's level
STRENGTHS = 9  # of the quadrature over how far its arms vary
KINDS = 3  # of a mixture


def fit(
    experiments: Experiments,
    held_out: Experiments,
    arms: int,
    progress: Callable[[float, str], None] = lambda share, name: None,
) -> list[Fit]:
    """All priors for K = `arms`, ordered by the likelihood of the experiments held out, the best first.

    With fewer than `FEW` experiments, only the simplest two.
    """
    if experiments.labels:
        return [by_arm(experiments, held_out)]
    found = []
    enough = len(experiments) + len(held_out) >= FEW
    kinds = (pooled, hierarchical, varying, mixture) if enough else (pooled, hierarchical)
    for place, make in enumerate(kinds):
        progress(place / len(kinds), make.__name__)
        found.append(make(experiments, held_out, arms))
    return sorted(found, key=lambda entry: -entry.score.mean)


def log_beta_binomial(
    successes: np.ndarray, failures: np.ndarray, a: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """log B(a + successes, b + failures) − log B(a, b)."""
    total = scipy.special.gammaln(a + b) - scipy.special.gammaln(a + b + successes + failures)
    return (
        scipy.special.gammaln(a + successes)
        - scipy.special.gammaln(a)
        + scipy.special.gammaln(b + failures)
        - scipy.special.gammaln(b)
        + total
    )


def pooled(experiments: Experiments, held_out: Experiments, arms: int) -> Fit:
    """All arms of all experiments from one beta distribution."""

    def likelihood(x: np.ndarray, found: Experiments) -> np.ndarray:
        each = log_beta_binomial(found.successes, found.pulls - found.successes, *shapes(x[0], x[1]))
        return per_experiment(each, found)

    mean, between, within = moments(experiments)
    start = np.array([logit(mean), log_strength(mean, math.hypot(between, within))])
    x, covariance = maximise(likelihood, start, experiments)
    functions: Functions = {
        "mean": lambda x: scipy.special.expit(x[0]),
        "sd": lambda x: beta_sd(x[0], x[1]),
    }
    a, b = (float(shape) for shape in shapes(x[0], x[1]))
    return Fit(
        "pooled", priors.Beta(arms, a, b), likelihood(x, held_out), delta_method(functions, x, covariance)
    )


def hierarchical(experiments: Experiments, held_out: Experiments, arms: int) -> Fit:
    """A level for each experiment, around which arms vary equally in all experiments."""
    return _fit_levels("hierarchical", experiments, held_out, arms)


def varying(experiments: Experiments, held_out: Experiments, arms: int) -> Fit:
    """A level for each experiment, around which arms vary more in some experiments than in others."""
    more: Functions = {"spread of log κ": _spread, "slope": _slope}
    return _fit_levels("varying", experiments, held_out, arms, (math.log(0.8), 0.0), more)


def _fit_levels(
    name: str,
    experiments: Experiments,
    held_out: Experiments,
    arms: int,
    start: tuple[float, ...] = (),
    more: Functions | None = None,
) -> Fit:
    """The hierarchical prior that maximises `level_likelihood`; a κ that varies has `start` and `more`."""
    mean, between, within = moments(experiments)
    x = np.array([logit(mean), log_strength(mean, between), log_strength(mean, within), *start])
    for _ in range(2):  # first around where levels seem to be, then around where they are
        where = _whereabouts(x, experiments)
        x, covariance = maximise(partial(level_likelihood, where=where), x, experiments, sloped=True)
    functions: Functions = {
        "level mean": lambda x: scipy.special.expit(x[0]),
        "sd between experiments": lambda x: beta_sd(x[0], x[1]),
        "sd within an experiment": _within,
    }
    numbers = delta_method(functions | (more or {}), x, covariance)
    prior = priors.Hierarchical(arms, *_settings(x))
    return Fit(name, prior, level_likelihood(x, held_out)[0], numbers)


def _settings(x: np.ndarray) -> tuple[float, float, float, float, float]:
    """a, b, strength, spread and slope of the hierarchical prior with the parameters x."""
    a, b = shapes(x[0], x[1])
    varying = (float(_spread(x)), float(_slope(x))) if len(x) > 3 else (0.0, 0.0)
    return float(a), float(b), math.exp(x[2]), *varying


def _spread(x: np.ndarray) -> np.ndarray:
    """The spread of log κ, within what the prior allows: where arms hardly vary, any is as likely."""
    return np.minimum(np.exp(x[3]), MOST_SPREAD)


def _slope(x: np.ndarray) -> np.ndarray:
    return np.clip(x[4], -MOST_SLOPE, MOST_SLOPE)


def level_likelihood(
    x: np.ndarray, found: Experiments, where: tuple[np.ndarray, np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihoods [E] of experiments with levels, and their derivatives [E, P].

    x = (logit m, log(a + b), log strength), and if κ varies the logarithm of its spread, and its slope.
    The level ℓ is integrated out by Gauss–Hermite quadrature in logit ℓ, around `where` its posterior is,
    and ε, the randomness of κ, over its prior.
    """
    nodes, weights = gauss_hermite(NODES)
    a, b, strength, spread, slope = _settings(x)
    noise, log_noise = normal_nodes(STRENGTHS if len(x) > 3 else 1)
    centre, scale = where or _whereabouts(x, found)
    t = centre[:, None] + math.sqrt(2) * scale[:, None] * nodes  # [E, Q]
    mean, log_level, log_rest = (
        float(scipy.special.expit(x[0])),
        scipy.special.log_expit(t),
        scipy.special.log_expit(-t),
    )
    log_prior = (
        a * log_level
        + b * log_rest
        - scipy.special.gammaln(a)
        - scipy.special.gammaln(b)
        + scipy.special.gammaln(a + b)
    )
    ratio = log_level - scipy.special.log_expit(x[0])
    kappa = strength_at(ratio, strength, spread, slope, noise)  # [E, Q, S]
    arms, by_kappa = _arms_likelihood(found, kappa, np.exp(log_level)[..., None])
    inside = (log_prior + np.log(weights) + nodes**2)[..., None] + log_noise + arms
    total = log_sum(inside, (1, 2))
    posterior = np.exp(inside - total[:, None, None])
    by_a = log_level - scipy.special.digamma(a) + scipy.special.digamma(a + b)
    by_b = log_rest - scipy.special.digamma(b) + scipy.special.digamma(a + b)
    by_mean = (a * (1 - mean) * (by_a - by_b))[..., None] + slope * (1 - mean) * by_kappa
    by_kappas = [by_kappa, spread * noise * by_kappa, -ratio[..., None] * by_kappa][: len(x) - 2]
    by_x = [by_mean, (a * by_a + b * by_b)[..., None], *by_kappas]
    slopes = np.stack([(posterior * each).sum((1, 2)) for each in by_x], axis=1)
    return total + np.log(scale) + 0.5 * math.log(2), slopes


def _arms_likelihood(
    found: Experiments, kappa: np.ndarray, level: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihoods [E, Q, S] of experiments whose arms are Beta(κ ℓ, κ (1 − ℓ)), and d / d log κ."""
    pulls, wins = (x[:, None, None] for x in (found.pulls, found.successes))
    sizes = found.sizes[:, None, None]
    value, slope = np.zeros_like(kappa), np.zeros_like(kappa)
    for sign, share, counts in ((1, level, wins), (1, 1 - level, pulls - wins), (-1, 1.0, pulls)):
        shape = kappa * share
        own = shape[found.owner] + counts
        value += sign * (
            per_experiment(scipy.special.gammaln(own), found) - sizes * scipy.special.gammaln(shape)
        )
        slope += (
            sign
            * shape
            * (per_experiment(scipy.special.digamma(own), found) - sizes * scipy.special.digamma(shape))
        )
    return value, slope


def _whereabouts(x: np.ndarray, found: Experiments) -> tuple[np.ndarray, np.ndarray]:
    """The approximate mean and standard deviation [E] of logit ℓ, given an experiment's arms."""
    mean, strength = scipy.special.expit(x[0]), np.exp(x[2])
    prior = beta_sd(x[0], x[1]) ** 2
    ups, downs = shapes(x[0], x[1])
    total = per_experiment(found.pulls, found)
    level = (per_experiment(found.successes, found) + ups) / (total + ups + downs)
    noise = (level * (1 - level))[found.owner] * (1 / found.pulls + 1 / (strength + 1))
    rate = (found.successes + 0.5) / (found.pulls + 1)
    variance = 1 / (per_experiment(1 / noise, found) + 1 / prior)
    centre = variance * (per_experiment(rate / noise, found) + mean / prior)
    centre = np.clip(centre, 1e-7, 1 - 1e-7)
    scale = np.sqrt(variance) / (centre * (1 - centre))
    return np.log(centre / (1 - centre)), np.clip(scale, 1e-4, 2.0)


def _within(x: np.ndarray) -> np.ndarray:
    """The standard deviation of arms around their level: √(E ℓ (1 − ℓ) / (κ + 1))."""
    if len(x) == 3:
        mean, of_level = scipy.special.expit(x[0]), np.exp(x[1])
        return np.sqrt(mean * (1 - mean) * of_level / (of_level + 1) / (np.exp(x[2]) + 1))
    log_weights, ups, downs = components_of(*_settings(x), count=STRENGTHS)
    variance = ups * downs / (ups + downs) ** 2 / (ups + downs + 1)
    return np.sqrt(np.average(variance, weights=np.exp(log_weights)))


def mixture(experiments: Experiments, held_out: Experiments, arms: int) -> Fit:
    """Kinds of experiments, each with its own beta distribution of arms."""

    def unpacked(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        logits = np.concatenate([np.zeros(1), x[: KINDS - 1]])
        a, b = shapes(x[KINDS - 1 : 2 * KINDS - 1], x[2 * KINDS - 1 :])
        return logits - scipy.special.logsumexp(logits), a, b

    def likelihood(x: np.ndarray, found: Experiments) -> np.ndarray:
        log_weights, a, b = unpacked(x)
        each = log_beta_binomial(found.successes[:, None], (found.pulls - found.successes)[:, None], a, b)
        return log_sum(log_weights + per_experiment(each, found), (1,))

    counts = (experiments.successes, experiments.pulls)
    successes, pulls = (np.bincount(experiments.owner, x) for x in counts)
    rates = np.sort((successes + 0.5) / (pulls + 1))
    middles = [rates[int(len(rates) * (2 * c + 1) / (2 * KINDS))] for c in range(KINDS)]
    strengths = [log_strength(m, moments(experiments)[2]) for m in middles]
    start = np.array([0.0] * (KINDS - 1) + [logit(m) for m in middles] + strengths)
    x, _ = maximise(likelihood, start, experiments)
    log_weights, a, b = unpacked(x)
    weights = np.exp(log_weights)
    prior = priors.Mixture(arms, (weights / weights.sum()).tolist(), a.tolist(), b.tolist())
    return Fit("mixture", prior, likelihood(x, held_out))


def by_arm(experiments: Experiments, held_out: Experiments) -> Fit:
    """A beta distribution for each arm, where it matters which arm is which."""
    count = len(experiments.labels)
    parts = []
    for arm in range(count):
        one, other = (
            Experiments(np.arange(len(found) + 1), found.pulls[arm::count], found.successes[arm::count])
            for found in (experiments, held_out)
        )
        parts.append(pooled(one, other, 1))
    a, b = ([float(getattr(part.prior, name)[0]) for part in parts] for name in ("a", "b"))
    numbers = {
        f"{what} of {label}": part.numbers[what]
        for label, part in zip(experiments.labels, parts, strict=True)
        for what in ("mean", "sd")
    }
    scores = np.sum([part.held_out for part in parts], axis=0)
    return Fit("by arm", priors.Beta(count, a, b), scores, numbers)


def shapes(logit_mean: np.ndarray, log_strength: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a and b of a beta distribution with this mean and a + b."""
    strength = np.exp(log_strength)
    return scipy.special.expit(logit_mean) * strength, scipy.special.expit(-logit_mean) * strength


def beta_sd(logit_mean: np.ndarray, log_strength: np.ndarray) -> np.ndarray:
    """Its standard deviation."""
    mean = scipy.special.expit(logit_mean)
    return np.sqrt(mean * (1 - mean) / (np.exp(log_strength) + 1))


def logit(mean: float) -> float:
    return math.log(mean / (1 - mean))


def log_strength(mean: float, sd: float) -> float:
    """log(a + b) of a beta distribution with this mean and standard deviation."""
    return math.log(max(mean * (1 - mean) / max(sd, 1e-9) ** 2 - 1, 0.1))


def moments(found: Experiments) -> tuple[float, float, float]:
    """The mean of arms' means, and their spread between and within experiments, from simple moments."""
    rate = (found.successes + 0.5) / (found.pulls + 1)
    level = per_experiment(rate, found) / found.sizes
    mean, variance = float(np.clip(level.mean(), 1e-6, 1 - 1e-6)), float(level.var())
    noise = float((rate * (1 - rate) / found.pulls).mean())
    inside = float(((rate - level[found.owner]) ** 2).sum() / max(1, (found.sizes - 1).sum()))
    within = math.sqrt(max(inside - noise, 0.01 * inside, 1e-12))
    between = math.sqrt(max(variance - inside / float(found.sizes.mean()), 0.01 * variance, 1e-12))
    return mean, between, within
