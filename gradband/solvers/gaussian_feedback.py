"""Regret of a policy that sees the rewards of all arms in every round, with Gaussian noise, by Monte Carlo.

No policy has less. What is seen does not depend on the choices, so that the arm with the best posterior
mean is the best choice; and a policy that sees one reward does no better than one that sees all and ignores
the others. With contexts this stays true, if they do not depend on choices: a policy that has seen all
rewards in the contexts so far could play like any other.

Noise is independent between arms here. What a policy of one reward per round earns depends on each arm's
noise alone, so any noise with the same marginals would give a bound. Noise that arms share cancels in their
differences and gives a weaker one. For arms ±x, noise of opposite sign gives the optimum itself.
"""

from collections.abc import Callable

import numpy as np

from gradband.core.errors import InputError, positive, shown, whole
from gradband.core.statistics import Mean

PATHS = 4000  # instances at a time, of few coefficients
NUMBERS = 1 << 22  # in the precision matrices of instances at a time
Draw = Callable[[np.random.Generator, int], np.ndarray]


def linear(
    mean: np.ndarray,
    covariance: np.ndarray,
    features: np.ndarray | Draw,
    noise_sd: float,
    horizon: int,
    instances: int = 20_000,
    per_round: bool = False,
    seed: int = 0,
) -> Mean:
    """Bayes regret over n rounds with θ ~ N(mean, covariance) [d] and rewards x_iᵀθ + N(0, noise_sd²).

    `features` are the arms' [K, d], or a function of a generator and a number m that draws [m, K, d], once
    for each instance, or in each round if `per_round`.

    >>> print(linear([0.0, 0.0], np.eye(2), np.eye(2), noise_sd=1.0, horizon=10))
    1.162 ± 0.010
    """
    m, s = np.asarray(mean, float), np.asarray(covariance, float)
    d, n = len(m), whole("horizon", horizon)
    noise = positive("noise_sd", noise_sd)
    if s.shape != (d, d) or not np.allclose(s, s.T) or np.linalg.eigvalsh(s)[0] <= 0:
        raise InputError(
            f"covariance must be symmetric and positive definite [{d}, {d}], not {shown(covariance)}"
        )
    root = np.linalg.cholesky(s)
    draws = np.random.default_rng(seed)
    parts = []
    at_once = int(np.clip(NUMBERS // d**2, 1, PATHS))
    for start in range(0, whole("instances", instances, 2), at_once):
        count = min(at_once, instances - start)
        theta = m + draws.standard_normal((count, d)) @ root.T
        precision = np.tile(np.linalg.inv(s), (count, 1, 1))
        toward = np.tile(np.linalg.solve(s, m), (count, 1))
        regret = np.zeros(count)
        for t in range(n):
            if not t or per_round:
                x = _features(features, draws, count, d)
                gram, means = x.transpose(0, 2, 1) @ x, (x @ theta[..., None])[..., 0]  # [m, d, d], [m, K]
            believed = np.linalg.solve(precision, toward[..., None])
            chosen = (x @ believed)[..., 0].argmax(1)
            regret += means.max(1) - means[np.arange(count), chosen]
            errors = noise * draws.standard_normal(means.shape)
            toward += ((means + errors)[:, None] @ x)[:, 0] / noise**2
            precision += gram / noise**2
        parts.append(regret)
    return Mean.of(np.concatenate(parts))


def _features(features: np.ndarray | Draw, draws: np.random.Generator, count: int, d: int) -> np.ndarray:
    x = np.asarray(features(draws, count) if callable(features) else features, float)
    if x.shape[-1:] != (d,) or x.ndim not in (2, 3) or not np.isfinite(x).all():
        raise InputError(
            f"features must be finite numbers [K, {d}], or [m, K, {d}] if drawn, not {shown(x)}"
        )
    return np.broadcast_to(x, (count, *x.shape[-2:]))
