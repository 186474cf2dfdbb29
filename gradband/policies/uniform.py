"""Uniformly random arms."""

import dataclasses
import math
from typing import ClassVar

from gradband.policies.base import Array, Counting, Counts, Params, namespace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Uniform(Counting):
    """p_i = 1/K in every round: an equal split, which recommends the arm with the greatest μ̂_i."""

    name: ClassVar[str] = "uniform"

    def log_probs(self, params: Params, state: Counts) -> Array:
        return namespace(state.pulls).full(self.arms, -math.log(self.arms))
