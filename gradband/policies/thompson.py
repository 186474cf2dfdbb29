"""Thompson sampling for rewards in [0, 1] (Agrawal and Goyal, 2012)."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from gradband import random
from gradband.policies.base import Believing, Counts, Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThompsonSampling(Believing):
    """The arm with the greatest sample from its Beta(a + ones, b + zeros) posterior.

    Rewards strictly between 0 and 1 are rounded at random to 0 or 1 (Bernoulli rounding).
    """

    name: ClassVar[str] = "ts"
    differentiable: ClassVar[bool] = False

    def act(self, key: Array, params: Params, state: Counts) -> Array:
        zeros = state.pulls - state.sums
        return jnp.argmax(random.beta(key, self.a + state.sums, self.b + zeros))
