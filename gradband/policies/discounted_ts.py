"""Discounted Thompson sampling (Raj and Kalyani, 2017)."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Policy
from gradband.policies.forgetting import Forgetting
from gradband.policies.thompson import ThompsonSampling


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscountedTS(Forgetting, ThompsonSampling):
    """Thompson sampling with Beta(a + S, b + F) posteriors, where S and F are discounted ones and zeros.

    With each pull, S and F of all arms shrink by γ = 1 − λ, so what is known of an arm that was not pulled
    for long returns to the prior. λ is the `forgetting`, as given, or found by `learn`. It is found by
    playing values of λ on common instances: samples have no density to differentiate.
    """

    name: ClassVar[str] = "discounted-ts"
    still: ClassVar[type[Policy]] = ThompsonSampling
    trainer: ClassVar[str] = "search"
