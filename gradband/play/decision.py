"""What a player returns: an arm, or the number of pulls of each, with an id for the rewards."""

from collections.abc import Sequence
from typing import Any


class Decision(int):
    """The number of the chosen arm, with the decision's `id` and the probability of choosing it."""

    id: str
    propensity: float
    label: str
    """the arm's name, or its number as a string"""
    returning: bool
    """whether the decision was made before, for the same id or unit"""

    def __new__(
        cls, arm: int, id: str, propensity: float, label: str | None = None, returning: bool = False
    ) -> "Decision":
        made = super().__new__(cls, arm)
        made.id, made.propensity, made.returning = id, propensity, returning
        made.label = str(arm) if label is None else label
        return made

    def __reduce__(self) -> tuple[Any, ...]:  # so that it can be copied
        return Decision, (int(self), self.id, self.propensity, self.label, self.returning)

    def __repr__(self) -> str:
        name = "" if self.label == str(int(self)) else f", label={self.label!r}"
        return f"Decision({int(self)}, id={self.id!r}, propensity={self.propensity:.6g}{name})"


class Batch(tuple[int, ...]):
    """How often to pull each arm, with the batch's `id` and the arms' `propensities`."""

    id: str
    propensities: tuple[float, ...]

    def __new__(cls, pulls: Sequence[int], id: str, propensities: Sequence[float]) -> "Batch":
        made = super().__new__(cls, pulls)
        made.id, made.propensities = id, tuple(propensities)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (tuple(self), self.id, self.propensities)
