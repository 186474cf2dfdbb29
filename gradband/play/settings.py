"""Settings of a test: names of the arms, how long to wait for rewards, guardrails, files of the journal."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from gradband.core.errors import InputError, number, positive, shown, whole

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
LONGEST_LABEL = 256
STORAGE = ("compact_every", "keep_segments", "keep_bytes")
"""settings of the journal's files, which may differ each time it is opened"""
GUARDRAILS = ("floor", "control", "control_share", "cap")


class Options(TypedDict, total=False):
    """The settings as keywords of `Player`."""

    arms: Sequence[str] | None
    wait: str | float | None
    default: float
    floor: float
    control: str | int | None
    control_share: float
    cap: float
    window: int
    compact_every: int | None
    keep_segments: int | None
    keep_bytes: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What a test is played with, besides its policy.

    >>> Settings(wait="24h").wait
    86400.0
    """

    arms: Sequence[str] | None = None
    """Names of the arms, in the order of their numbers."""
    wait: str | float | None = None
    """How long a decision waits for its reward: seconds, or a string such as "24h"; None: forever."""
    default: float = 0.0
    """The reward of a decision that has waited that long."""
    floor: float = 0.0
    """Minimum probability of every arm."""
    control: str | int | None = None
    """The name or number of the control."""
    control_share: float = 0.0
    """Minimum probability of the control."""
    cap: float = 1.0
    """Maximum probability of an arm."""
    window: int = 100_000
    """How many finished decisions are remembered, and how many units."""
    compact_every: int | None = 100_000
    """Number of events after which the journal starts a new file with a snapshot; None: never."""
    keep_segments: int | None = None
    """How many of the journal's older files are kept; None: all."""
    keep_bytes: int | None = None
    """Maximum total size of the journal's older files, in bytes; None: no limit."""

    def __post_init__(self) -> None:
        fill = object.__setattr__  # the dataclass is frozen
        if self.arms is not None:
            fill(self, "arms", _check_labels(self.arms))
        if self.wait is not None:
            fill(self, "wait", seconds(self.wait))
        for name, high in (("floor", 1.0), ("control_share", 1.0), ("cap", 1.0)):
            fill(self, name, number(name, getattr(self, name), 0.0, high))
        fill(self, "default", number("default", self.default))
        whole("window", self.window)
        for name, least in (("compact_every", 1), ("keep_segments", 0), ("keep_bytes", 0)):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least, 2**63 - 1)
        if not self.cap > 0:
            raise InputError("cap must be above 0, not 0")
        if max(self.floor, self.control_share) > self.cap:
            raise InputError(f"floor and control_share cannot exceed the cap, {self.cap:g}")
        if self.control is None and self.control_share:
            raise InputError("control_share needs control: the name or number of an arm")
        if not isinstance(self.control, str | None):
            fill(self, "control", whole("control", self.control, 0))

    @property
    def guarded(self) -> bool:
        """Whether probabilities differ from the policy's."""
        return self.floor > 0 or self.control_share > 0 or self.cap < 1

    @property
    def wait_seconds(self) -> float | None:
        """`wait` in seconds."""
        return self.wait if isinstance(self.wait, float) else None

    def floors(self, arms: Sequence[int], control: int | None) -> np.ndarray:
        """Minimum probabilities of these arms, given by number."""
        shares = [max(self.floor, self.control_share) if arm == control else self.floor for arm in arms]
        return np.array(shares)

    def check_room(self, arms: Sequence[int], control: int | None) -> None:
        """Raises an error if the minimum probabilities of these arms sum to more than 1."""
        total = float(self.floors(arms, control).sum())
        if total > 1 + 1e-12:
            raise InputError(
                f"{len(arms)} arms with a floor of {self.floor:g} and a control_share of "
                f"{self.control_share:g} sum to {total:g}: at most 1 is allowed"
            )

    def as_dict(self) -> dict[str, Any]:
        """The settings without those of the journal's files, ready for JSON."""
        given = dataclasses.asdict(self)
        found = {name: value for name, value in given.items() if name not in STORAGE}
        return found | {"arms": None if self.arms is None else list(self.arms)}

    @classmethod
    def from_dict(cls, given: Any) -> "Settings":
        """Settings from what `as_dict` returned; missing ones have their defaults."""
        known = {field.name for field in dataclasses.fields(cls)} - set(STORAGE)
        if not isinstance(given, dict) or not set(given) <= known:
            raise InputError(f"settings must be among {', '.join(sorted(known))}, not {shown(given)}")
        return cls(**given)

    def guarded_as_learned(self, learned: Any) -> "Settings":
        """These settings with the guardrails of the problem that a policy was learned on, if it had any.

        The problem knows the control by its number, which becomes a name if arms have names.
        """
        if learned is None:
            return self
        if not isinstance(learned, dict) or not set(learned) <= set(GUARDRAILS):
            raise InputError(f"guardrails must be among {', '.join(GUARDRAILS)}, not {shown(learned)}")
        given = dict(learned)
        if given.get("control_share"):
            control = whole("control", given.get("control", 0), 0)
            named = self.arms is not None and control < len(self.arms)
            given["control"] = self.arms[control] if named and self.arms is not None else control
        return dataclasses.replace(self, **given)

    def stored_as(self, other: "Settings") -> "Settings":
        """These settings, with the other's settings of the journal's files."""
        return dataclasses.replace(self, **{name: getattr(other, name) for name in STORAGE})


def seconds(given: Any) -> float:
    """A time in seconds, given as a number or with a unit.

    >>> seconds("24h"), seconds("1.5m"), seconds(90)
    (86400.0, 90.0, 90.0)
    """
    if not isinstance(given, str):
        return positive("wait", given)
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([smhdw]?)\s*", given)
    if not found:
        raise InputError(f'a time must be seconds or like "90s", "30m", "24h", "7d", not {shown(given)}')
    return positive("wait", float(found[1]) * SECONDS[found[2] or "s"])


def _check_labels(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InputError(f"arms must be a list of names, not {shown(given)}")
    for label in given:
        check_label(label)
    if len(set(given)) < len(given):
        raise InputError(f"arms must have different names, not {shown(list(given))}")
    return tuple(given)


def check_label(label: Any) -> str:
    """The name of an arm, or an error."""
    if not isinstance(label, str) or not 0 < len(label) <= LONGEST_LABEL:
        raise InputError(
            f"an arm's name must be a string of 1 to {LONGEST_LABEL} characters, not {shown(label)}"
        )
    return label
