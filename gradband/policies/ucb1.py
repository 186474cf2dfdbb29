"""UCB1 (Auer, Cesa-Bianchi and Fischer, 2002)."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Array, Counts, Index, Params, Positive, namespace


@dataclasses.dataclass(frozen=True, kw_only=True)
class UCB1(Index):
    """Each arm once, then the arm with the greatest μ̂_i + scale · √(2 log t / T_i) in round t.

    Its `scale` is the range of rewards: 1 if they are in [0, 1]. For rewards of any size it is twice their
    standard deviation, since rewards in [0, 1] have one of at most ½.
    """

    name: ClassVar[str] = "ucb1"
    scale: Positive = 1.0

    def index(self, params: Params, state: Counts) -> Array:
        xp = namespace(state.pulls)
        bonus = self.scale * xp.sqrt(2 * xp.log(state.rounds + 1) / xp.maximum(state.pulls, 1))
        return xp.where(state.pulls == 0, xp.inf, state.means + bonus)
