"""SoftElim that forgets."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Policy
from gradband.policies.forgetting import Forgetting
from gradband.policies.softelim import SoftElim


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscountedSoftElim(Forgetting, SoftElim):
    """SoftElim on discounted counts: p_i ∝ exp(−2 (max_j μ̂_j − μ̂_i)² T_i / θ).

    With each pull, pulls T and sums of rewards shrink by a factor 1 − λ. θ and λ, the `forgetting`, are
    learned. An arm that was not pulled for long has few pulls left, and so is tried again.
    """

    name: ClassVar[str] = "discounted-softelim"
    still: ClassVar[type[Policy]] = SoftElim
