"""The usual test: an equal split, then the winner."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from gradband.policies.base import Array, Counts, Index, InputError, Params, Share, namespace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split(Index):
    """All arms equally for a `share` of the pulls, then the arm that was best so far."""

    name: ClassVar[str] = "split"
    flexible: ClassVar[bool] = False
    share: Share = 0.5

    def splitting(self, counts: Counts) -> Array:
        # In float32 for NumPy and JAX alike, so that .1 of 10 000 rounds is 1000 of them.
        return counts.rounds < np.float32(self.share * self.horizon)

    def index(self, params: Params, state: Counts) -> Array:
        xp, means = namespace(state.pulls), state.means
        return xp.where(self.splitting(state), xp.zeros_like(means), means)

    def update(self, params: Params, state: Counts, arm: Array, reward: Array) -> Any:
        return state.add(arm, reward).where(self.splitting(state), state)  # later rewards change nothing

    def update_many(self, params: Params, state: Counts, pulls: Array, sums: Array) -> Any:
        return state.add_many(pulls, sums).where(self.splitting(state), state)

    def after(self, counts: Counts) -> Any:
        raise InputError("split needs the counts of its split: those of all pulls do not determine them")
