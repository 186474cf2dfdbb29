"""Any function that samples means."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.errors import InputError, number_of_arms
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, set_fields

DIGESTED = 16  # draws that identify a sampler


@pytree()
@dataclasses.dataclass(frozen=True, eq=False)
class Sampler(Prior):
    """Any JAX function from a key to means [K].

    Policy files and checkpoints identify it by a digest of draws: learning cannot resume with another.

    >>> Sampler(lambda key: jax.random.uniform(key, (5,)), arms=5).arms
    5
    """

    kind: ClassVar[str] = "sampler"
    function: Callable[[Array], Array]
    arms: int
    rewards: laws.Reward = laws.Bernoulli()

    def __post_init__(self) -> None:
        set_fields(self, arms=number_of_arms(self.arms))
        keys = jax.random.split(jax.random.key(0), 64)
        tried = np.asarray(jax.vmap(lambda key: jnp.asarray(self.function(key)))(keys))
        if tried.shape[1:] != (self.arms,):
            raise InputError(f"the sampler must return {self.arms} means, not the shape {tried.shape[1:]}")
        self.rewards.check(tried)
        if (tried == tried[0]).all():
            raise InputError(
                "the sampler returns the same means for every key: draw with jax.random, not NumPy, or use "
                "a finite prior for a single instance"
            )

    def sample(self, key: Array) -> Array:
        return jnp.asarray(self.function(key))

    def describe(self) -> dict[str, Any]:
        drawn = jax.vmap(self.sample)(jax.random.split(jax.random.key(0), DIGESTED))
        return {"kind": self.kind, "arms": self.arms, "digest": prng.digest(drawn)}
