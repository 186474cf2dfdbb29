"""UCB1 (Auer, Cesa-Bianchi and Fischer, 2002)."""

import dataclasses
from typing import ClassVar

from gradband.core.arrays import Array, namespace
from gradband.policies.base import Counts, Index, Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class UCB1(Index):
    """Each arm once, then the arm with the greatest μ̂_i + √(2 log t / T_i) in round t."""

    name: ClassVar[str] = "ucb1"

    def index(self, params: Params, state: Counts) -> Array:
        xp = namespace(state.pulls)
        bonus = xp.sqrt(2 * xp.log(state.rounds + 1) / xp.maximum(state.pulls, 1))
        return xp.where(state.pulls == 0, xp.inf, state.means + bonus)
