"""Thompson sampling for rewards in [0, 1] (Agrawal and Goyal, 2012)."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from gradband import random
from gradband.errors import positive
from gradband.policies.base import Counting, Counts, Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThompsonSampling(Counting):
    """The arm with the greatest sample from its Beta(a + ones, b + zeros) posterior.

    Rewards strictly between 0 and 1 are rounded at random to 0 or 1 (Bernoulli rounding).
    """

    name: ClassVar[str] = "ts"
    differentiable: ClassVar[bool] = False
    binary: ClassVar[bool] = True
    opens: ClassVar[bool] = False
    a: float = 1.0
    b: float = 1.0

    def check(self) -> None:
        super().check()
        positive("a of ts", self.a)
        positive("b of ts", self.b)

    def act(self, key: Array, params: Params, state: Counts) -> Array:
        zeros = state.pulls - state.sums
        return jnp.argmax(random.beta(key, self.a + state.sums, self.b + zeros))
