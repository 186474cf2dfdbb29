"""Greedy: always the arm that looks best."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from gradband.policies.base import Counts, Index, Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class Greedy(Index):
    """Each arm once, then the arm with the greatest μ̂_i."""

    name: ClassVar[str] = "greedy"

    def index(self, params: Params, state: Counts) -> Array:
        return jnp.where(state.pulls == 0, jnp.inf, state.means)
