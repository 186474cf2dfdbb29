"""Variance-based information-directed sampling with normal beliefs (Russo and Van Roy, 2018)."""

import dataclasses
from typing import ClassVar

import numpy as np

from gradband.core.special import normal_cdf, normal_density
from gradband.policies.base import Counts, namespace
from gradband.policies.ids import CELLS, BestArmBelief, Directed, believe
from gradband.policies.normal import Normal

REACH = 5.0  # standard deviations of a posterior


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianVarianceDirected(Directed, Normal):
    """Minimises (expected regret)² / variance of E(μ_i | which arm is best), in every round.

    The belief about an arm is N(mean, within²) at first, and rewards have the standard deviation `sd`.
    """

    name: ClassVar[str] = "v-ids-gaussian"

    def belief(self, state: Counts) -> BestArmBelief:
        """The belief about the best arm, on cells where the greatest mean can be."""
        means, sds = self.posterior(state)
        xp = namespace(means)
        low, high = (means - REACH * sds).max(), (means + REACH * sds).max()
        shares = xp.asarray(np.linspace(0, 1, CELLS + 1), means.dtype)
        edges = low + (high - low) * shares
        z = (edges[None] - means[:, None]) / sds[:, None]
        below, density = normal_cdf(z), normal_density(z)
        partial = means[:, None] * below - sds[:, None] * density
        middle, middle_partial = ((values[:, 1:] + values[:, :-1]) / 2 for values in (below, partial))
        x = (edges[1:] + edges[:-1]) / 2
        return believe(below[:, 1:] - below[:, :-1], middle, middle_partial, x, means)
