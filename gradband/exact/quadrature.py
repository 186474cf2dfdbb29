"""Means of the best arm, and integrals over beta distributions by tanh-sinh quadrature.

That quadrature handles infinite slopes at 0 and 1.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc

from gradband.core.errors import InputError
from gradband.problems import Problem, priors, rewards


class Nodes:
    """Points x in [low, high] within [0, 1], their weights, and 1 − x, which has more digits near 1."""

    def __init__(self, count: int, low: float = 0.0, high: float = 1.0) -> None:
        step = np.linspace(-4, 4, count)
        angle = np.pi / 2 * np.sinh(step)
        near, far = 1 / (1 + np.exp(-2 * angle)), 1 / (1 + np.exp(2 * angle))
        self.x, self.rest = low + (high - low) * near, (1 - high) + (high - low) * far
        self.weights = (high - low) * np.pi * np.cosh(step) * near * far * (step[1] - step[0])

    def below(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """P(X ≤ x) for X ~ Beta(a_i, b_i), [I, Q]."""
        with jax.enable_x64(True):
            first, second = jnp.asarray(a)[:, None], jnp.asarray(b)[:, None]
            low = np.asarray(betainc(first, second, jnp.asarray(self.x)[None]))
            high = np.asarray(betainc(second, first, jnp.asarray(self.rest)[None]))
        return np.where(self.x < 0.5, low, 1 - high)

    def density(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The densities of Beta(a_i, b_i), [I, Q]."""
        pairs = zip(a, b, strict=True)
        logs = np.array([math.lgamma(u + v) - math.lgamma(u) - math.lgamma(v) for u, v in pairs])
        logs = logs[:, None] + np.multiply.outer(a - 1, np.log(self.x))
        logs += np.multiply.outer(b - 1, np.log(self.rest))
        return np.where(logs > -500, np.exp(logs), 0)  # no denormal numbers, which are slow


def expected_best(a: np.ndarray, b: np.ndarray) -> float:
    """E max_i μ_i for independent μ_i ~ Beta(a_i, b_i): 1 − ∫ Π_i P(μ_i ≤ x) dx.

    It integrates piece by piece, between 0, 1 and some deviations around each arm's mean, so as not to miss
    a distribution as narrow as a step.

    >>> round(expected_best(np.ones(2), np.ones(2)), 12)
    0.666666666667
    """
    mean, spread = a / (a + b), np.sqrt(a * b / (a + b + 1)) / (a + b)
    cuts = mean[:, None] + spread[:, None] * np.array([-30, -8, -2, 0, 2, 8, 30])
    edges = np.unique(np.clip(np.concatenate([[0, 1], cuts.ravel()]), 0, 1))
    pieces = (Nodes(65, low, high) for low, high in zip(edges[:-1], edges[1:], strict=True))
    return float(1 - sum(piece.weights @ piece.below(a, b).prod(0) for piece in pieces))


def best_mean(prior: priors.Finite | priors.Beta) -> float:
    """E max_i μ_i of a prior: the mean reward per round if the instance is known."""
    if isinstance(prior, priors.Finite):
        return float(prior.weights / prior.weights.sum() @ prior.instances.max(1))
    return expected_best(prior.a, prior.b)


def check_prior(problem: Problem, what: str, hint: str = "") -> priors.Finite | priors.Beta:
    """The problem's prior, or an error with a `hint` if `what` cannot be computed for it."""
    problem.one_by_one(what)
    prior = problem.prior
    if not isinstance(prior.rewards, rewards.Bernoulli):
        raise InputError(f"{what} needs bernoulli rewards, not {prior.rewards.kind} rewards")
    if prior.moves:
        raise InputError(f"{what} needs means that stay the same, but those of a {prior.kind} prior move")
    if not isinstance(prior, priors.Finite | priors.Beta):
        raise InputError(f"{what} needs a finite or beta prior, not a {prior.kind} prior{hint}")
    return prior
