"""Uniformly random arms: the least that any policy should beat."""

import dataclasses
import math
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from gradband.policies.base import Params, Policy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Uniform(Policy):
    """p_i = 1/K in every round."""

    name: ClassVar[str] = "uniform"
    batches: ClassVar[bool] = True

    def begin(self, params: Params, latent: Array) -> tuple[()]:
        return ()

    def log_probs(self, params: Params, state: tuple[()]) -> Array:
        return jnp.full(self.arms, -math.log(self.arms))

    def update(self, params: Params, state: tuple[()], arm: Array, reward: Array) -> tuple[()]:
        return ()

    def update_many(self, params: Params, state: tuple[()], pulls: Array, sums: Array) -> tuple[()]:
        return ()
