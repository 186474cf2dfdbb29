"""Whether a prior treats all arms alike."""

import jax
import jax.numpy as jnp
import numpy as np

from gradband.core import prng
from gradband.problems.priors.base import Prior
from gradband.problems.problem import Problem

DRAWS = 4000  # instances whose means are compared
SURE = 6.0  # standard errors by which a moment must differ between arms


def arms_are_alike(problem: Problem) -> bool:
    """Whether the arms' means have the same moments: first and second of each arm, and of pairs.

    They are compared on draws from the prior, always the same ones, so that the answer does not depend on
    a seed. Arms of a prior whose means are unknown are taken to be alike.

    >>> from gradband import priors
    >>> arms_are_alike(Problem(priors.Beta(3), 10)), arms_are_alike(Problem(priors.Finite([[0, 1]]), 10))
    (True, False)
    """
    if not problem.prior.knows_means:
        return True
    means = np.asarray(_draw_means(problem.prior), np.float64)
    centred = means - means.mean(0)
    others = (means.sum(1, keepdims=True) - means) / max(problem.arms - 1, 1)
    moments = means, centred**2, means * others, centred**2 * (others - others.mean(0))
    return not any(_differ(moment) for moment in moments)


@jax.jit
def _draw_means(prior: Prior) -> jax.Array:
    """The means [m, K] of the first instances, before the first pull."""
    keys = jax.random.split(prng.root(0), DRAWS)
    instances = jax.vmap(prior.nth)(jnp.arange(DRAWS), keys)
    return jax.vmap(lambda instance: prior.means_at(instance, 0))(instances)


def _differ(values: np.ndarray) -> bool:
    """Whether the columns [m, K] have different means, each compared with the mean of all, paired."""
    apart = values - values.mean(1, keepdims=True)
    mean, se = apart.mean(0), apart.std(0) / np.sqrt(len(apart))
    scale = 1e-6 * max(float(np.abs(values).max()), 1e-30)
    return bool((np.abs(mean) > SURE * se + scale).any())
