"""Checks by sampling that custom rewards have the means that their prior declares."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core.errors import InputError
from gradband.problems.priors.base import Prior

INSTANCES = 16
DRAWS = 1 << 20  # in total
MOST_ERRORS = 6.0  # standard errors; a correct mean is rejected about once in 10⁸


def check_draws(prior: Prior, horizon: int) -> None:
    """Raises an error if rewards do not have the means that the prior declares: regrets would be wrong.

    The library's own priors and rewards are not checked; others are checked when first used.
    """
    own = (type(prior), type(prior.rewards))
    if prior.knows_means and not all(kind.__module__.startswith("gradband.") for kind in own):
        _check(prior, horizon)


@functools.lru_cache(maxsize=64)
def _check(prior: Prior, horizon: int) -> None:
    each = max(64, DRAWS // (INSTANCES * prior.arms))
    keys = jax.random.split(jax.random.key(0), INSTANCES)

    def of(key: Array) -> tuple[Array, Array, Array]:
        """Declared means [K], and the means and standard errors of draws."""
        instance = prior.sample(jax.random.fold_in(key, 0))
        if prior.contextual:
            instance = prior.visit(jax.random.fold_in(key, 2), instance, jnp.uint32(0))
        rounds = jnp.arange(each)
        drawn = jax.vmap(lambda t: jax.random.fold_in(jax.random.fold_in(key, 1), t))(rounds)

        def arm(i: Array) -> Array:
            return jax.vmap(lambda key, t: prior.reward(key, instance, i, t))(drawn, rounds % horizon)

        rewards = jax.vmap(arm)(jnp.arange(prior.arms))
        declared = prior.means_at(instance, 0)
        if prior.timed:
            declared = jax.vmap(lambda t: prior.means_at(instance, t))(rounds % horizon).mean(0)
        return declared, rewards.mean(1), rewards.std(1) / math.sqrt(each)

    said, found, se = (np.asarray(x, np.float64) for x in jax.jit(jax.vmap(of))(keys))
    z = (found - said) / (se + 1e-6 * (1 + np.abs(said)))
    all_arms = z.sum() / math.sqrt(z.size)
    if np.abs(z).max() > MOST_ERRORS or abs(all_arms) > MOST_ERRORS or not np.isfinite(z).all():
        at = np.unravel_index(np.argmax(np.abs(np.nan_to_num(z, nan=np.inf))), z.shape)
        raise InputError(
            f"rewards of {type(prior.rewards).__name__} do not have the means that {type(prior).__name__} "
            f"declares: an arm of mean {said[at]:.4g} averages {found[at]:.4g} ± {se[at]:.2g}; all "
            f"{z.size} arms together are {all_arms:.1f} standard errors off. Declare the mean of what is "
            "drawn (after clipping, for example)"
        )
