"""Variance-based information-directed sampling (Russo and Van Roy, 2018)."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Array
from gradband.policies.ids import BestArmBelief, InformationDirected


@dataclasses.dataclass(frozen=True, kw_only=True)
class VarianceDirected(InformationDirected):
    """As `ids`, with the variance of E(μ_i | which arm is best) in place of the information."""

    name: ClassVar[str] = "v-ids"

    def gains(self, belief: BestArmBelief) -> Array:
        return belief.variances
