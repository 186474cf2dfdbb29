"""Policies that see contexts: the features of a round's arms, or of its visitor."""

import dataclasses
from typing import ClassVar

import numpy as np

from gradband.core.arrays import Array
from gradband.core.errors import InputError, number_of_dims
from gradband.policies.policy import Params, Policy, State

MOST_NUMBERS = 10_000_000  # in the memory of a policy that is played


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seeing(Policy):
    """A policy whose decisions depend on features: of every arm [K, d], or of the visitor [d].

    Subclasses define `see`, and set `takes_arms`, `takes_visitor` or both. `update` may use only those of
    the pulled arm, or of the visitor: a player keeps no others until the reward comes.
    """

    takes_arms: ClassVar[bool] = False
    """Takes features of every arm [K, d]."""
    takes_visitor: ClassVar[bool] = False
    """Takes features of the visitor [d]."""
    dims: int = 0
    """d, set by the problem that it plays"""

    def check(self) -> None:
        super().check()
        if not (self.takes_arms or self.takes_visitor):
            raise InputError(f"{self.name} must set takes_arms or takes_visitor: whose features?")
        number_of_dims(f"dims of {self.name}", self.dims, least=0)

    def check_play(self) -> None:
        super().check_play()
        if not self.dims:
            raise InputError(f"{self.name} needs dims, the number of features")
        if self.numbers > MOST_NUMBERS:
            raise InputError(
                f"the belief of {self.name} has {self.numbers:,} numbers for {self.dims} features and "
                f"{self.arms} arms: at most {MOST_NUMBERS:,} can be played"
            )

    def check_features(self, features: np.ndarray) -> None:
        """Raises an error for features [K, d] or [d] that have the right shape, but cannot be taken."""

    @property
    def numbers(self) -> int:
        """About how many numbers it remembers."""
        return self.dims * self.arms

    def see_pulled(self, params: Params, state: State, x: Array, arm: Array) -> tuple[State, Array]:
        """What `see` says of a pulled arm with the features x [d] alone, and the arm's place there."""
        if self.takes_visitor:
            return self.see(params, state, x), arm
        return self.see(params, state, x[None]), 0 * arm
