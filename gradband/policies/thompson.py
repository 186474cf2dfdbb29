"""Thompson sampling for rewards in [0, 1] (Agrawal and Goyal, 2012)."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from gradband import random
from gradband.policies.base import Believing, Counts, Params

DRAWS = 64


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

    def allocate(self, key: Array, params: Params, state: Counts, batch: int) -> Array:
        """A batch is shared out among up to `DRAWS` samples of the posterior; each pulls its best arm."""
        draws = max(d for d in range(1, DRAWS + 1) if batch % d == 0)
        ones, zeros = self.a + state.sums, self.b + state.pulls - state.sums
        sampled = random.beta(key, jnp.tile(ones, draws), jnp.tile(zeros, draws)).reshape(draws, self.arms)
        best = sampled == sampled.max(1, keepdims=True)
        return best.sum(0) * float(batch // draws)
