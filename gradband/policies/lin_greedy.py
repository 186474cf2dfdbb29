"""Greedy on linear beliefs: always the arm that looks best."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Array, Params
from gradband.policies.beliefs import Seen
from gradband.policies.linear_policy import LinearIndex


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinGreedy(LinearIndex):
    """The arm with the greatest expected reward xᵢᵀm; ties are broken at random."""

    name: ClassVar[str] = "lin-greedy"

    def index(self, params: Params, state: Seen) -> Array:
        return state.mean
