"""An index network that forgets."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Policy, Spec
from gradband.policies.forgetting import Forgetting
from gradband.policies.index_network import IndexNetwork


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscountedIndexNetwork(Forgetting, IndexNetwork):
    """The index network on discounted counts: with each pull they shrink by a factor 1 − λ.

    λ, the `forgetting`, is learned with the weights.
    """

    name: ClassVar[str] = "discounted-index"
    still: ClassVar[type[Policy]] = IndexNetwork

    def specs(self) -> dict[str, Spec]:
        return IndexNetwork.specs(self) | {"forgetting": Spec()}
