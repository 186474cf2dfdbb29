"""UCB1 (Auer, Cesa-Bianchi and Fischer, 2002)."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from gradband.policies.base import Counts, Index, Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class UCB1(Index):
    """Each arm once, then the arm with the greatest μ̂_i + √(2 log t / T_i) in round t."""

    name: ClassVar[str] = "ucb1"

    def index(self, params: Params, state: Counts) -> Array:
        bonus = jnp.sqrt(2 * jnp.log(state.rounds + 1) / jnp.maximum(state.pulls, 1))
        return jnp.where(state.pulls == 0, jnp.inf, state.means + bonus)
