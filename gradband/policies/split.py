"""The usual test: an equal split, and then the winner."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from gradband.core.errors import InputError, number
from gradband.policies.base import Counts, Index, Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split(Index):
    """All arms alike for a `share` of the pulls, and then the arm that was best until there."""

    name: ClassVar[str] = "split"
    share: float = 0.5

    def check(self) -> None:
        super().check()
        number("share of split", self.share, 0, 1)

    def splitting(self, counts: Counts) -> Array:
        return counts.rounds < self.share * self.horizon

    def index(self, params: Params, state: Counts) -> Array:
        return jnp.where(self.splitting(state), jnp.zeros_like(state.means), state.means)

    def update(self, params: Params, state: Counts, arm: Array, reward: Array) -> Any:
        return self._kept(state, state.add(arm, reward))

    def update_many(self, params: Params, state: Counts, pulls: Array, sums: Array) -> Any:
        return self._kept(state, state.add_many(pulls, sums))

    def after(self, counts: Counts) -> Any:
        raise InputError("the state of split is what was seen while it split, which counts do not tell")

    def _kept(self, before: Counts, after: Counts) -> Any:
        """What was seen after the split does not change who won it."""
        return jax.tree.map(lambda new, old: jnp.where(self.splitting(before), new, old), after, before)
