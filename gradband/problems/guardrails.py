"""Guardrails of a problem: minimum and maximum probabilities of the arms in every round."""

import dataclasses
from typing import Any

import numpy as np

from gradband.core.errors import InputError, number, shown, whole
from gradband.problems.priors.base import set_fields


@dataclasses.dataclass(frozen=True)
class Guardrails:
    """Limits within which probabilities of a round are kept, as `gb.Settings` has them for a player.

    A policy with the probabilities w pulls arm i with f_i + (1 − Σf) w_i, at most `cap`, where f_i is the
    `floor`, and for the control at least its `control_share`.

    >>> Guardrails(floor=0.05, control_share=0.2).floors(3).tolist()
    [0.2, 0.05, 0.05]
    """

    floor: float = 0.0
    """minimum probability of every arm"""
    control_share: float = 0.0
    """minimum probability of the control"""
    cap: float = 1.0
    """maximum probability of an arm"""
    control: int = 0
    """the number of the control"""

    def __post_init__(self) -> None:
        for name in ("floor", "control_share", "cap"):
            set_fields(self, **{name: number(name, getattr(self, name), 0.0, 1.0)})
        set_fields(self, control=whole("control", self.control, 0))
        if not self.cap > 0:
            raise InputError("cap must be above 0, not 0")
        if max(self.floor, self.control_share) > self.cap:
            raise InputError(f"floor and control_share cannot exceed the cap, {self.cap:g}")
        if max(self.floor, self.control_share) == 0 and self.cap == 1:
            raise InputError("guardrails need a floor, a control_share or a cap")

    @classmethod
    def read(cls, given: Any) -> "Guardrails":
        """Guardrails as given, or from a table of a problem file."""
        if isinstance(given, cls):
            return given
        known = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(given, dict) or not set(given) <= set(known):
            raise InputError(f"guardrails must be a table with {', '.join(known)}, not {shown(given)}")
        return cls(**given)

    def check(self, arms: int) -> None:
        """Raises an error if a problem with this many arms cannot have these guardrails."""
        if self.control >= arms:
            raise InputError(f"the control is one of the arms 0 to {arms - 1}, not {self.control}")
        total = float(self.floors(arms).sum())
        if total > 1 + 1e-12:
            raise InputError(
                f"{arms} arms with a floor of {self.floor:g} and a control_share of {self.control_share:g} "
                f"sum to {total:g}: at most 1 is allowed"
            )

    def floors(self, arms: int) -> np.ndarray:
        """Minimum probabilities of the arms [K]."""
        floors = np.full(arms, self.floor)
        floors[self.control] = max(self.floor, self.control_share)
        return floors

    def describe(self) -> dict[str, Any]:
        """What differs from the defaults, as in a problem file."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }
