"""Bayes-UCB on linear beliefs (Kaufmann, Cappé and Garivier, 2012)."""

import dataclasses
from typing import ClassVar

from gradband.core.special import upper_quantile
from gradband.policies.base import Array, Params, namespace
from gradband.policies.beliefs import Seen
from gradband.policies.linear_policy import LinearIndex


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinBayesUCB(LinearIndex):
    """The arm whose expected reward has the greatest 1 − 1 / (t + 1) quantile in round t = 1, 2, …"""

    name: ClassVar[str] = "lin-bayes-ucb"

    def index(self, params: Params, state: Seen) -> Array:
        sds = namespace(state.mean).sqrt(state.variance)
        return state.mean + sds * upper_quantile(1 / (state.belief.rewards + 2))
