"""Index network on linear beliefs: one small network that scores each arm, for any K, d and n."""

import dataclasses
from typing import ClassVar

import numpy as np

from gradband.core.arrays import Array, namespace, nn
from gradband.policies.base import Params, Spec
from gradband.policies.beliefs import Seen, relief
from gradband.policies.index_network import ArmNetwork
from gradband.policies.lin_softelim import LEAST
from gradband.policies.pretrained_linear import FAR, PretrainedLinear


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeliefIndex(ArmNetwork, PretrainedLinear):
    """p is a softmax of the arms' scores, which depend on the belief about them and the remaining rounds.

    An arm's score is that of `pretrained-linear`, plus the output of a network for its features (see
    `inputs_of`), as in `index`. Nothing depends on the order of arms, on K or on d, and features have no
    unit, so the same weights play other problems. The network's output is 0 at first: learning starts
    from `pretrained-linear`.
    """

    name: ClassVar[str] = "belief-index"
    inputs: ClassVar[int] = 10
    hidden: int = 16

    def specs(self) -> dict[str, Spec]:
        network = {name: spec for name, spec in super().specs().items() if name != "doubt"}
        return network | PretrainedLinear.specs(self)

    def init(self, key: Array) -> Params:
        network = super().init(key)
        return {name: network[name] for name in self.specs()} | PretrainedLinear.init(self, key)

    def stored(self) -> None:
        """The network's weights are drawn."""

    def scores(self, params: Params, state: Seen) -> Array:
        noise = self.noise(state)
        left = namespace(state.mean).maximum(self.horizon - state.belief.rewards, 1)
        known = PretrainedLinear.scores(self, params, state)
        return known + self.output(params, self.inputs_of(state, noise, left))

    def inputs_of(self, seen: Seen, noise: Array | float, left: Array) -> Array:
        """The network's inputs for each arm [10, K], with noise variances σ² and m rounds left."""
        xp, gap = namespace(seen.mean), seen.gap
        least = np.float32(LEAST) * noise
        v, apart = xp.maximum(seen.variance, least), xp.maximum(seen.apart, least)
        rivals = nn(gap).softmax(-(gap**2) / apart)
        told = xp.maximum(relief(seen, rivals, noise), least)
        x = (
            xp.minimum(gap / xp.sqrt(v), FAR) / 2 - 1,
            xp.minimum(gap / xp.sqrt(apart), FAR) / 2 - 1,
            xp.log(v / noise) / 4,
            xp.log(v / v.max()) / 2,
            xp.log1p(left * v / noise) / 2 - 1,
            xp.log(left) / 4 - 1,
            2 * left / self.horizon - 1,
            xp.maximum(xp.log(told / told.max()) / 4, -FAR / 2),
            xp.minimum(xp.log1p(gap**2 / told) / 2, FAR) - 1,
            2 * rivals - 1,
        )
        return xp.stack([xp.broadcast_to(each, v.shape) for each in x])
