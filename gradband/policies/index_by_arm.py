"""Index network that knows which arm is which, for priors under which arms differ."""

import dataclasses
import math
from typing import ClassVar

from gradband.policies.base import Array, Counts, Params, Spec, namespace
from gradband.policies.index_network import FEATURES, IndexNetwork


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndexByArm(IndexNetwork):
    """The index network with a learned embedding for each arm, which is added in its first layer.

    The index network treats all arms alike. Under a prior that does not, an arm's number says what its
    counts mean, for itself and for others. The embeddings are random at first, but the network's output is
    0: learning starts from KL-SoftElim here too. The weights serve only the K that they were learned for.
    """

    name: ClassVar[str] = "index-by-arm"
    flexible: ClassVar[bool] = False

    def specs(self) -> dict[str, Spec]:
        return super().specs() | {"w0": Spec((self.hidden, FEATURES + self.arms))}

    def init(self, key: Array) -> Params:
        params = super().init(key)
        # The other inputs keep the scale that they have in the index network.
        scale = math.sqrt((FEATURES + self.arms) / FEATURES)
        return params | {"w0": scale * params["w0"]}

    def inputs_and_doubt(self, counts: Counts) -> tuple[Array, Array]:
        """The network's inputs for each arm [8 + K, K], which end in the arm's number as 0 and 1."""
        seen, doubt = super().inputs_and_doubt(counts)
        xp = namespace(seen)
        return xp.concatenate([seen, xp.eye(self.arms, dtype=seen.dtype)]), doubt
