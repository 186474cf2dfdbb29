"""Index network for rewards of any size, with normal beliefs."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Array, Counts, namespace
from gradband.policies.index_network import ArmNetwork, relative
from gradband.policies.normal import Normal


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianIndexNetwork(ArmNetwork, Normal):
    """As `index`, with normal posteriors in place of counts of ones: the same in any unit of rewards.

    The belief about an arm is N(mean, within²) at first, and rewards have the standard deviation `sd`.
    Means and spreads are in units of `within`, and counts include the (sd / within)² rewards that the prior
    is worth. The network's output is 0 at first: learning starts from p_i ∝ exp(−5 T_i g_i² / sd²), where
    g_i is the gap of the arm's posterior mean to the greatest.
    """

    name: ClassVar[str] = "index-gaussian"

    def inputs_and_doubt(self, counts: Counts) -> tuple[Array, Array]:
        """The network's inputs for each arm [8, K], and 5 T_i (max_j m_j − m_i)² / sd² [K]."""
        xp = namespace(counts.pulls)
        pulls, left = counts.pulls, xp.maximum(counts.rounds_left(self.horizon), 0)
        total = pulls + (self.sd / self.within) ** 2
        means, spread = self.posterior(counts)
        gap = means.max() - means
        inputs = (
            (means - self.mean) / self.within,
            spread / self.within,
            *relative(gap, spread, total, left, self.horizon),
        )
        return xp.stack(inputs), 5 * pulls * (gap / self.sd) ** 2
