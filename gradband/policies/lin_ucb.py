"""LinUCB (Li, Chu, Langford and Schapire, 2010)."""

import dataclasses
from typing import Annotated, ClassVar

from gradband.policies.base import Array, Params, in_range, namespace
from gradband.policies.beliefs import Seen
from gradband.policies.linear_policy import LinearIndex


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinUCB(LinearIndex):
    """The arm with the greatest xᵢᵀm + `width` √(xᵢᵀ Σ xᵢ), with the covariance Σ of θ.

    By default, with sd and within of 1, m is ridge regression with the penalty 1, and Σ the inverse of its
    matrix.
    """

    name: ClassVar[str] = "lin-ucb"
    takes_prior: ClassVar[bool] = False
    width: Annotated[float, in_range(0)] = 1.0
    within: float = 1.0
    sd: float = 1.0

    def index(self, params: Params, state: Seen) -> Array:
        return state.mean + self.width * namespace(state.mean).sqrt(state.variance)
