"""Greedy: always the arm that looks best."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Array, Counts, Index, Params, namespace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Greedy(Index):
    """Each arm once, then the arm with the greatest μ̂_i."""

    name: ClassVar[str] = "greedy"

    def index(self, params: Params, state: Counts) -> Array:
        xp = namespace(state.pulls)
        return xp.where(state.pulls == 0, xp.inf, state.means)
