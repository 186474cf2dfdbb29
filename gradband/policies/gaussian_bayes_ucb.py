"""Bayes-UCB with normal beliefs (Kaufmann, Cappé and Garivier, 2012)."""

import dataclasses
from typing import ClassVar

from gradband.core.special import upper_quantile
from gradband.policies.base import Array, Counts, Index, Params, namespace
from gradband.policies.normal import Normal


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianBayesUCB(Index, Normal):
    """The arm whose normal posterior has the greatest 1 − 1/t quantile in round t.

    The belief about an arm is N(mean, within²) at first, and rewards have the standard deviation `sd`.
    """

    name: ClassVar[str] = "bayes-ucb-gaussian"

    def index(self, params: Params, state: Counts) -> Array:
        means, sds = self.posterior(state)
        return means + sds * upper_quantile(1 / namespace(means).maximum(state.rounds + 1, 2))
