"""Delays: how many pulls later a reward is observed.

A reward counts when its arm is pulled; the policy observes it later. Time is counted in pulls: a reward
with no delay is known before the next decision, one pull later. Within a batch, pulls come in random
order, so the same delay may be over before the next batch or not.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gradband.core.errors import InputError, number, shown, unknown
from gradband.problems.priors.base import set_fields

GONE = 1e-9  # a smaller share of the rewards may be taken to have arrived
MOST_POINTS = 1000
EXAMPLE = '{kind = "geometric", mean = 500}'


class Hazards(NamedTuple):
    """The chances that a reward which has not arrived does so before the next decision, by age."""

    chances: np.ndarray
    """[A]; age 0 is that of the pulls that were just made"""
    lasting: bool
    """whether the last chance is that of all greater ages too; otherwise nothing more arrives"""


class Delay:
    """A distribution of delays. Subclasses define `within` and `describe`."""

    kind: ClassVar[str]

    def within(self, pulls: np.ndarray) -> np.ndarray:
        """The shares of the rewards that are observed this many pulls later, or sooner."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """The delay as a table of a problem file."""
        raise NotImplementedError

    def hazards(self, pulls_per_round: int, rounds: int) -> Hazards:
        """The chances of an arrival by age in rounds, for decisions about so many pulls."""
        steps = np.arange(1, rounds * pulls_per_round + 1)
        arrived = self.within(steps.astype(float)).reshape(rounds, pulls_per_round).mean(1)
        before = np.concatenate([[0.0], arrived[:-1]])
        left = 1 - before
        chances = np.where(left > GONE, (arrived - before) / np.maximum(left, GONE), 1.0)
        last = int(np.flatnonzero(chances * (left > GONE))[-1]) if (chances > 0).any() else 0
        chances = np.clip(chances[: last + 1], 0.0, 1.0)
        return Hazards(np.append(chances, 0.0) if len(chances) == 1 else chances, lasting=False)


@dataclasses.dataclass(frozen=True)
class GeometricDelay(Delay):
    """Every pull a waiting reward arrives with the same chance, 1 / (1 + mean).

    >>> GeometricDelay(mean=500).within(np.array([1.0, 347.0])).round(3).tolist()
    [0.002, 0.5]
    """

    kind: ClassVar[str] = "geometric"
    mean: float
    """the mean delay in pulls; 0 for rewards that are observed at once"""

    def __post_init__(self) -> None:
        set_fields(self, mean=number("delay.mean", self.mean, 0.0))

    def within(self, pulls: np.ndarray) -> np.ndarray:
        return -np.expm1(-pulls * np.log1p(1 / self.mean)) if self.mean else np.ones_like(pulls)

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "mean": self.mean}

    def hazards(self, pulls_per_round: int, rounds: int) -> Hazards:
        first = self.within(np.arange(1.0, pulls_per_round + 1)).mean()
        later = self.within(np.array(float(pulls_per_round)))
        chances = np.array([later]) if pulls_per_round == 1 else np.array([first, later])
        return Hazards(chances, lasting=True)


@dataclasses.dataclass(frozen=True)
class MeasuredDelay(Delay):
    """Shares of rewards that were observed within some numbers of pulls; in between, shares rise evenly.

    If the last share is below 1, the rest never arrives.

    >>> MeasuredDelay(pulls=(100, 1000), shares=(0.5, 0.9)).within(np.array([50.0, 100.0, 5000.0])).tolist()
    [0.25, 0.5, 0.9]
    """

    kind: ClassVar[str] = "measured"
    pulls: tuple[float, ...]
    """numbers of pulls, which rise"""
    shares: tuple[float, ...]
    """the share of all rewards that is observed within each of them"""

    def __post_init__(self) -> None:
        for name, high in (("pulls", np.inf), ("shares", 1.0)):
            given = getattr(self, name)
            if not isinstance(given, list | tuple) or not 0 < len(given) <= MOST_POINTS:
                raise InputError(
                    f"delay.{name} must be a list of 1 to {MOST_POINTS} numbers, not {shown(given)}"
                )
            found = tuple(number(f"an entry of delay.{name}", entry, 0.0, high) for entry in given)
            set_fields(self, **{name: found})
        if len(self.pulls) != len(self.shares):
            raise InputError(
                f"delay needs one share for each of its {len(self.pulls)} pulls, not {len(self.shares)}"
            )
        if (np.diff(self.pulls) <= 0).any() or (np.diff(self.shares) < 0).any():
            raise InputError("delay.pulls must rise, and delay.shares must not fall")
        if not self.shares[-1] > 0:
            raise InputError("delay.shares must end above 0, or no reward would ever be observed")

    def within(self, pulls: np.ndarray) -> np.ndarray:
        return np.interp(pulls, (0.0, *self.pulls), (0.0, *self.shares))

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "pulls": list(self.pulls), "shares": list(self.shares)}


DELAYS: dict[str, type[GeometricDelay] | type[MeasuredDelay]] = {
    each.kind: each for each in (GeometricDelay, MeasuredDelay)
}


def read_delay(given: Any) -> Delay:
    """A delay as given, or from a table of a problem file."""
    if isinstance(given, Delay):
        return given
    if not isinstance(given, dict):
        raise InputError(f"a delay must be a table such as {EXAMPLE}, not {shown(given)}")
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in DELAYS:
        raise unknown("delay.kind", kind, DELAYS)
    names = [field.name for field in dataclasses.fields(DELAYS[kind])]
    for key in given:
        if key not in ("kind", *names):
            raise unknown("key", f"delay.{key}", [f"delay.{name}" for name in names])
    for name in names:
        if name not in given:
            raise InputError(f"the key 'delay.{name}' is missing")
    return DELAYS[kind](**{name: given[name] for name in names})
