"""The scale of rewards, which is the unit of the usual start of learning."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.problems import Problem
from gradband.problems.rewards import Gaussian

DRAWS = 4000  # pairs of rewards to estimate a standard deviation from
HALF = 0.5  # the largest standard deviation of rewards in [0, 1]


def reward_scale(problem: Problem, key: Array) -> float:
    """The standard deviation of a reward around its arm's mean.

    It is ½ for rewards in [0, 1], known for normal rewards, and estimated from draws for others.

    >>> from gradband import priors, rewards
    >>> reward_scale(Problem(priors.Gaussian(2, rewards=rewards.Gaussian(sd=100)), 10), prng.root(0))
    100.0
    """
    law = problem.prior.rewards
    if problem.unit:
        return HALF
    if isinstance(law, Gaussian):
        return float(law.sd)
    pairs = np.asarray(_pairs(problem, prng.stream(key, "choice")), np.float64)
    noise = np.sqrt(np.mean((pairs[0] - pairs[1]) ** 2) / 2)
    found = noise if noise > 0 else pairs.std()  # rewards without noise still differ between arms
    return float(found) if 0 < found < np.inf else HALF


@jax.jit
def _pairs(problem: Problem, key: Array) -> Array:
    """Two rewards [2, N] of the same arm and instance, in two rounds."""

    def pair(i: Array) -> Array:
        keys = jax.random.split(jax.random.fold_in(key, i), 5)
        instance = problem.prior.nth(i, keys[0])
        arm = jax.random.randint(keys[1], (), 0, problem.arms)
        first = jax.random.randint(keys[2], (), 0, problem.horizon)
        apart = jax.random.randint(keys[2], (), 0, max(1, problem.horizon - 1)) + 1
        rounds = first, (first + apart) % problem.horizon
        return jnp.stack([problem.reward(keys[3 + j], instance, arm, t) for j, t in enumerate(rounds)])

    return jax.vmap(pair, out_axes=1)(jnp.arange(DRAWS))
