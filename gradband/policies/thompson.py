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
        ones, zeros = self.a + state.sums, self.b + state.pulls - state.sums
        draws = draws_for(batch)
        sampled = random.beta(key, jnp.tile(ones, draws), jnp.tile(zeros, draws))
        return shared_out(sampled.reshape(draws, self.arms), batch)


def draws_for(batch: int) -> int:
    """Among how many samples of the posterior a batch is shared out: up to `DRAWS`, each as many pulls."""
    return max(draws for draws in range(1, DRAWS + 1) if batch % draws == 0)


def shared_out(sampled: Array, batch: int) -> Array:
    """Pulls of each arm [K] in a batch, where each sample of the means [draws, K] pulls its best arm.

    Of arms that are equally good, as tiny means may be in float32, it pulls the first.
    """
    draws, arms = sampled.shape
    best = jnp.arange(arms)[None] == jnp.argmax(sampled, axis=1)[:, None]
    return best.sum(0) * float(batch // draws)
