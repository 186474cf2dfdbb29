"""Index network on linear beliefs: one small network that scores each arm, for any K, d and n."""

import dataclasses
from typing import ClassVar

import numpy as np

from gradband.core.arrays import Array, namespace, nn
from gradband.policies.beliefs import Seen, relief
from gradband.policies.contextual import Contextual
from gradband.policies.index_network import ArmNetwork
from gradband.policies.lin_softelim import LEAST

FAR = 10.0  # a gap in standard deviations; beyond it, gaps are alike to the network
DOUBT = 3.0  # the weight of evidence that LinSoftElim has with a = .58


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeliefIndex(ArmNetwork, Contextual):
    """p is a softmax of the arms' scores, which depend on the belief about them and the remaining rounds.

    An arm's score is that of LinSoftElim, −w gᵢ² / vᵢ, plus the output of a network for its features (see
    `features`), as in `index`. Nothing depends on the order of arms, on K or on d, and features have no
    unit, so the same weights can play other problems. The network's output is 0 at first: learning starts
    from LinSoftElim.
    """

    name: ClassVar[str] = "belief-index"
    inputs: ClassVar[int] = 10
    hidden: int = 16

    def features(self, state: Seen) -> tuple[Array, Array]:
        """The network's inputs for each arm [10, K], and 3 gᵢ² / vᵢ [K]."""
        seen, xp = state, namespace(state.mean)
        noise, left = self.noise(seen), xp.maximum(self.horizon - seen.belief.rewards, 1)
        least = np.float32(LEAST) * noise
        v, apart = xp.maximum(seen.variance, least), xp.maximum(seen.apart, least)
        gap, same = seen.gap, xp.ones_like(v)
        rivals = nn(gap).softmax(-(gap**2) / apart)
        told = xp.maximum(relief(seen, rivals, noise), least)
        x = (
            xp.minimum(gap / xp.sqrt(v), FAR) / 2 - 1,
            xp.minimum(gap / xp.sqrt(apart), FAR) / 2 - 1,
            xp.log(v / noise) / 4,
            xp.log(v / v.max()) / 2,
            xp.log1p(left * v / noise) / 2 - 1,
            xp.log(left) / 4 - 1,
            2 * left / self.horizon * same - 1,
            xp.maximum(xp.log(told / told.max()) / 4, -FAR / 2),
            xp.minimum(xp.log1p(gap**2 / told) / 2, FAR) - 1,
            2 * rivals - 1,
        )
        return xp.stack([xp.broadcast_to(each, v.shape) for each in x]), DOUBT * gap**2 / v
