"""Tempered KL-SoftElim that forgets."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Policy
from gradband.policies.forgetting import Forgetting
from gradband.policies.kl_softelim import KLSoftElim


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscountedKLSoftElim(Forgetting, KLSoftElim):
    """KL-SoftElim on discounted counts: with each pull they shrink by a factor 1 − λ.

    θ, the pseudo-counts a and b, and λ, the `forgetting`, are learned. What is known of an arm that was not
    pulled for long returns to a / (a + b).
    """

    name: ClassVar[str] = "discounted-kl-softelim"
    still: ClassVar[type[Policy]] = KLSoftElim
