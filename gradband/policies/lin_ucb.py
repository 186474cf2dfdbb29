"""LinUCB (Li, Chu, Langford and Schapire, 2010)."""

import dataclasses
from typing import ClassVar

from gradband.core.arrays import Array, namespace
from gradband.core.errors import number
from gradband.policies.base import Params
from gradband.policies.beliefs import Seen
from gradband.policies.contextual import ContextualIndex


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinUCB(ContextualIndex):
    """The arm with the greatest xᵢᵀm + `width` √(xᵢᵀ Σ xᵢ), with the covariance Σ of θ.

    By default, with sd and within of 1, m is ridge regression with the penalty 1, and Σ the inverse of its
    matrix.
    """

    name: ClassVar[str] = "lin-ucb"
    takes_prior: ClassVar[bool] = False
    width: float = 1.0
    within: float = 1.0
    sd: float = 1.0

    def check(self) -> None:
        super().check()
        number(f"width of {self.name}", self.width, 0)

    def index(self, params: Params, state: Seen) -> Array:
        return state.mean + self.width * namespace(state.mean).sqrt(state.variance)
