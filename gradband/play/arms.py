"""The arms of a test: their numbers and names, which are active, and which must be tried first."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from gradband.core.errors import InputError, shown
from gradband.play.settings import check_label


class Arms:
    """Arms are numbered from 0 and keep their numbers, which are also their names by default."""

    def __init__(self, count: int, labels: Sequence[str] | None, opens: bool) -> None:
        self.first = count  # arms that were there from the start
        self.ever = count
        self.active = list(range(count))  # numbers of the arms in the policy's state, in its order
        self.fresh = list(self.active) if opens else []  # arms that must be tried first
        self.labels = list(map(str, self.active)) if labels is None else list(labels)

    def add(self, label: str | None, opens: bool) -> None:
        """Adds the arm with the next number."""
        new = self.ever
        self.active.append(new)
        self.labels.append(str(new) if label is None else label)
        self.fresh += [new] if opens else []
        self.ever = new + 1

    def retire(self, arm: int) -> int:
        """Removes an arm and returns the place that it had in the policy's state."""
        place = self.active.index(arm)
        del self.active[place]
        self.fresh = [other for other in self.fresh if other != arm]
        return place

    def tried(self, arms: Sequence[int]) -> None:
        self.fresh = [arm for arm in self.fresh if arm not in arms]

    def number(self, arm: Any) -> int | None:
        """The number of an arm, given by its number or name, if there was ever one."""
        if isinstance(arm, str):
            return self.labels.index(arm) if arm in self.labels else None
        return int(arm) if is_whole(arm) and 0 <= arm < self.ever else None

    def find_retirable(self, arm: Any) -> int:
        """The number of an active arm that is not the last."""
        found = self.number(arm)
        if found is None or found not in self.active:
            names = ", ".join(self.labels[number] for number in self.active)
            raise InputError(f"there is no arm {shown(arm)} to retire: the arms are {names}")
        if len(self.active) == 1:
            raise InputError(f"arm {arm} is the last one, and cannot be retired")
        return found

    def check_new(self, label: Any) -> str:
        """The name of a new arm, which no arm had before."""
        if check_label(label) in self.labels:
            raise InputError(f"an arm {shown(label)} exists already")
        return label

    def load(self, state: dict[str, Any]) -> None:
        """Loads a checked state."""
        self.ever, self.first = state["arms"], state["first"]
        self.active, self.fresh = list(state["active"]), list(state["fresh"])
        self.labels = list(state["labels"])

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Values of the active arms, by number, with 0 for retired arms."""
        if len(values) == self.ever:
            return values.copy()
        spread = np.zeros(self.ever)
        spread[self.active] = values
        return spread

    def known(self, values: Sequence[float]) -> np.ndarray:
        """Values by number, for the active arms; 0 for arms that were added later."""
        return np.array([values[arm] if arm < len(values) else 0.0 for arm in self.active])

    def pulls_of_added(self, decision: dict[str, Any]) -> dict[int, int]:
        """How often a decision or a batch pulls each added arm."""
        if "arm" in decision:
            return {decision["arm"]: 1} if decision["arm"] >= self.first else {}
        return dict(enumerate(decision["arms"][self.first :], self.first))


def is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral)
