"""Counts: what most policies remember."""

from typing import Any, NamedTuple

import numpy as np

from gradband.core.arrays import Array, add_at, namespace


class Counts(NamedTuple):
    """Pulls T [K] and sums of rewards [K] of the arms."""

    pulls: Array
    sums: Array
    gone: Array | None = None
    """pulls of retired arms, if there are any"""
    left: Array | None = None
    """rounds left, this one included, if the horizon does not tell"""

    @classmethod
    def zeros(cls, arms: int, xp: Any = np) -> "Counts":
        return cls(xp.zeros(arms), xp.zeros(arms))

    @property
    def means(self) -> Array:
        """Empirical means [K], 0 for arms not yet pulled."""
        return self.sums / namespace(self.pulls).maximum(self.pulls, 1)

    @property
    def rounds(self) -> Array:
        return self.pulls.sum() if self.gone is None else self.pulls.sum() + self.gone

    def rounds_left(self, horizon: int) -> Array:
        """How many rounds are left, this one included; 0 or less beyond the horizon."""
        return horizon - self.rounds if self.left is None else self.left

    def as_integers(self) -> tuple[Array, Array, Array]:
        """Pulls [K], sums [K] and rounds, to look up a table with."""
        return tuple(x.astype(np.int32) for x in (self.pulls, self.sums, self.rounds))

    def add(self, arm: Array, reward: Array) -> "Counts":
        return Counts(add_at(self.pulls, arm, 1), add_at(self.sums, arm, reward), self.gone)

    def add_many(self, pulls: Array, sums: Array) -> "Counts":
        return Counts(self.pulls + pulls, self.sums + sums, self.gone)

    def miss(self, rounds: float) -> "Counts":
        return Counts(self.pulls, self.sums, np.asarray((self.gone or 0.0) + rounds))

    def where(self, condition: Array, other: "Counts") -> "Counts":
        """These counts if the condition holds, else the others."""
        where = namespace(self.pulls).where
        pulls, sums = (where(condition, *pair) for pair in zip(self[:2], other[:2], strict=True))
        return Counts(pulls, sums, self.gone)
