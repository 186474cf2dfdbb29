"""Sums over decisions, from which a report is made."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from gradband.play.reporting.allocation import Allocation, pad
from gradband.play.reporting.scores import (
    ARM_SUMS,
    VALUE_SUMS,
    Played,
    arm_sums,
    lead_sums,
    plug_in_means,
    value_sums,
)
from gradband.play.reporting.series import Bins

AT_ONCE = 256  # decisions that are summed together
ROUNDED = 1e-6  # logged probabilities have six digits
MOST_PAIRS = 40_000  # of arms whose lead over each other is tracked: 200 arms


@dataclasses.dataclass(slots=True)
class Logged:
    """A decision or a batch, as it was logged."""

    time: float | None
    pulls: "int | list[int]"  # the arm, or how often each was pulled
    propensity: "float | list[float]"
    shares: list[float] | None  # probabilities of all arms
    active: np.ndarray
    known: np.ndarray  # pulls and sums of the arms when it was made [2, K]
    reward: "float | list[float] | None" = None
    over: bool = False  # no reward is expected any more


class Counted(NamedTuple):
    """A decision or a batch that counts, with its rewards."""

    made: Logged
    known: np.ndarray
    reward: Any  # of a batch, the sums
    default: bool


class Totals:
    """Everything that is summed up."""

    def __init__(self, arms: int, default: float) -> None:
        self.default = default  # reward
        self.counts = np.zeros((3, arms))  # pulls, sums of rewards, sums of their squares
        self.scores = np.zeros((len(ARM_SUMS), arms))
        self.leads = np.zeros((arms, arms))
        self.value = np.zeros(len(VALUE_SUMS))
        self.drawn, self.rewarded = Allocation.of(arms), Allocation.of(arms)
        self.shares, self.rates = Bins(1, arms), Bins(2, arms)

    @property
    def arms(self) -> int:
        return self.counts.shape[1]

    @property
    def pulls(self) -> np.ndarray:
        return self.counts[0]

    @property
    def sums(self) -> np.ndarray:
        return self.counts[1]

    @property
    def squares(self) -> np.ndarray:
        return self.counts[2]

    def widen(self, arms: int) -> None:
        """Makes room for new arms."""
        for name in ("counts", "scores"):
            setattr(self, name, pad(getattr(self, name), arms))
        if arms**2 <= MOST_PAIRS:
            self.leads = pad(pad(self.leads, arms).T, arms).T
        for part in (self.drawn, self.rewarded, self.shares, self.rates):
            part.widen(arms)

    def add_drawn(self, made: "list[Logged]") -> None:
        """Adds decisions to the check of allocation and to the shares over time."""
        shares, pulls = self._shares(made), self._pulls(made)
        known = np.array([entry.shares is not None for entry in made])
        if known.any():
            self.drawn.add(shares[known], pulls[known])
        count = pulls.sum(1, keepdims=True)
        self.shares.add(_times(made), np.where(known[:, None], count * shares, pulls)[:, None])

    def add_counted(self, counted: "list[Counted]", contexts: bool, unit: bool) -> int:
        """Adds decisions that count to all other sums, and returns how many had no logged probabilities.

        Args:
            counted: The decisions.
            contexts: Whether arms were chosen by contexts.
            unit: Whether all rewards so far are in [0, 1].
        """
        made = [entry.made for entry in counted]
        pulls, shares = self._pulls(made), self._shares(made)
        sums, squares = self._by_arm(made, [entry.reward for entry in counted]), self._squares(counted)
        self.rates.add(_times(made), np.stack([pulls, sums], axis=1))
        known = np.array([entry.shares is not None for entry in made])
        active = self._padded([entry.active for entry in made]).astype(bool)
        means = plug_in_means(*(self._padded([entry.known[i] for entry in counted]) for i in range(2)))
        exact = np.where(pulls > 0, self._propensities(made), np.where(shares > 0, shares, 1))
        # Without the other arms' probabilities: they had a chance unless this arm was certain.
        guess = np.where(known[:, None], shares, active * (exact.min(1, keepdims=True) < 1))
        guess = np.where(pulls > 0, np.where(known[:, None], shares, exact), guess)
        guess = np.where(guess < ROUNDED / 2, 0, guess)  # a logged probability that was rounded to 0
        played = Played(guess, exact, means, pulls, sums, squares)
        self.value = self.value + value_sums(played, active).sum(1)
        if known.any():
            played = Played(*(getattr(played, field.name)[known] for field in dataclasses.fields(Played)))
            # A weight may depend on the past, but not on the context: it would prefer some visitors.
            alike = active[known].astype(float) if contexts else None
            self.scores = self.scores + arm_sums(played, alike).sum(1)
            if unit and self.arms**2 <= MOST_PAIRS:
                self.leads = self.leads + _leads(played)
            self.rewarded.add(played.shares, played.pulls)
        return int(pulls[~known].sum())

    def _shares(self, made: list[Logged]) -> np.ndarray:
        return self._padded([entry.shares or [0.0] for entry in made])

    def _pulls(self, made: list[Logged]) -> np.ndarray:
        return self._by_arm(made, [1 if isinstance(entry.pulls, int) else entry.pulls for entry in made])

    def _propensities(self, made: list[Logged]) -> np.ndarray:
        """The exact probability of each arm that was pulled, and 1 for others."""
        found = self._by_arm(made, [entry.propensity for entry in made], 1.0)
        return np.where(found > 0, found, 1)

    def _squares(self, counted: list[Counted]) -> np.ndarray:
        """Sums of the squared rewards of each arm."""
        found = [
            reward * reward
            if isinstance(made.pulls, int)
            else self.squares_of(np.array(made.pulls, float), np.array(reward), default)
            for made, _, reward, default in counted
        ]
        return self._by_arm([entry.made for entry in counted], found)

    def _by_arm(self, made: list[Logged], values: list[Any], others: float = 0.0) -> np.ndarray:
        """Rows [n, K] from a value for the pulled arm of each decision, or the values of a batch."""
        found = np.full((len(made), self.arms), others)
        for row, entry, value in zip(found, made, values, strict=True):
            if isinstance(entry.pulls, int):
                row[entry.pulls] = value
            else:
                row[: len(value)] = value
        return found

    def _padded(self, rows: "list[list[float]] | list[np.ndarray]") -> np.ndarray:
        """Rows [n, K], with zeros for arms that were added later."""
        if all(len(row) == self.arms for row in rows):
            return np.array(rows, float)
        return np.array([pad(np.asarray(row, float), self.arms) for row in rows])

    def squares_of(self, pulls: np.ndarray, sums: np.ndarray, defaults: bool) -> np.ndarray:
        """Sums of the squared rewards of a batch, which are 0 or 1, or all the default."""
        return self.default**2 * pulls if defaults else sums


def _leads(played: Played) -> np.ndarray:
    """The sum of `lead_sums`, some decisions at a time."""
    rows, arms = played.shares.shape
    step = max(1, (1 << 20) // arms**2)
    total = np.zeros((arms, arms))
    for start in range(0, rows, step):
        part = (getattr(played, field.name)[start : start + step] for field in dataclasses.fields(Played))
        total += lead_sums(Played(*part)).sum(0)
    return total


def _times(made: list[Logged]) -> np.ndarray:
    return np.array([np.nan if entry.time is None else entry.time for entry in made], float)
