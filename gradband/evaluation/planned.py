"""The results of a plan: sizes of tests, how policies do in each, and how long a test should run."""

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core import figures
from gradband.core.errors import number
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean
from gradband.evaluation.compare_with_defaults import EQUAL_SPLIT
from gradband.evaluation.endings import Endings
from gradband.policies.policy_file import Learned

if TYPE_CHECKING:
    from matplotlib.axes import Axes


TOLERANCE = 0.01  # how far a recommended arm may be below the best, as a share of its mean


@dataclasses.dataclass(frozen=True)
class Errors:
    """How often the z-test at the end declares a difference between two arms."""

    traffic: str
    """who divides the pulls: an equal split, or a policy"""
    power: Mean
    """if means come from the prior"""
    type_1: Mean
    """if both means are equal"""
    exact: bool
    """whether it was enumerated, not simulated"""

    def as_texts(self) -> list[str]:
        def percent(value: Mean) -> str:
            return f"{100 * value.mean:.2f}" + (f" ± {100 * value.se:.2f}" if value.se else "")

        return [self.traffic, percent(self.power), percent(self.type_1), "yes" if self.exact else "no"]

    def as_dict(self) -> dict[str, Any]:
        return {
            "traffic": self.traffic,
            "power": vars(self.power),
            "type_1_error": vars(self.type_1),
            "exact": self.exact,
        }


@dataclasses.dataclass(frozen=True, repr=False)
class Cell:
    """A size of test, and how well policies do there."""

    arms: int
    horizon: int
    pulls_per_round: int
    ours: Endings
    rivals: dict[str, Endings]
    """ends of the same tests, or of the first of them"""
    errors: tuple[Errors, ...] = ()
    """of the test of a difference, for two arms"""

    @property
    def instances(self) -> int:
        return len(self.ours.arm)

    def _pair(self, over: str) -> tuple[np.ndarray, np.ndarray]:
        theirs = self.rivals[over].rewards
        return self.ours.rewards[: len(theirs)], theirs

    def gain(self, over: str) -> Mean:
        """Successes per thousand pulls more than another policy, paired by test."""
        ours, theirs = self._pair(over)
        return Mean.of(1000 / self.horizon * (ours - theirs))

    def percent(self, over: str) -> Mean:
        """The gain in percent of the other policy's successes."""
        return _percent(*self._pair(over))

    @cached_property
    def rival(self) -> str:
        """The best of the other policies."""
        return min(self.rivals, key=lambda name: self.gain(name).mean)

    @property
    def ends_on_best(self) -> Mean:
        """The chance that the recommended arm is the best one."""
        return Mean.of((self.ours.recommended == self.ours.best).astype(float))

    @property
    def inferior(self) -> Mean:
        """The share of pulls of arms that are not the best."""
        return Mean.of(self.ours.inferior)

    @property
    def loss(self) -> Mean:
        """How far the recommended arm's mean is below the best arm's, in percent of it."""
        below = _percent(self.ours.recommended, self.ours.best)
        return Mean(-below.mean, below.se)

    def reward_with(self, audience: int) -> Mean:
        """Successes per thousand people: those in the test, and those after it with the recommended arm."""
        total = self.ours.rewards + (audience - self.horizon) * self.ours.recommended
        return Mean.of(1000 / audience * total)

    def __str__(self) -> str:
        batches = f" by {self.pulls_per_round}" if self.pulls_per_round > 1 else ""
        return f"{self.arms} arms, {self.horizon}{batches}"

    def as_texts(self) -> list[str]:
        """The cell as a row of a table of text."""
        gains = self.gain(EQUAL_SPLIT), self.gain(self.rival)
        return [
            str(self),
            *(f"{gain.mean:+.3f} ± {gain.se:.3f}" for gain in gains),
            self.rival,
            f"{100 * self.ends_on_best.mean:.0f} %",
            f"{100 * self.inferior.mean:.0f} %",
            f"{self.loss.mean:.1f} ± {self.loss.se:.1f} %",
        ]

    def as_record(self) -> dict[str, Any]:
        """The cell as a row of a table."""
        row: dict[str, Any] = {
            "arms": self.arms,
            "horizon": self.horizon,
            "pulls_per_round": self.pulls_per_round,
            "instances": self.instances,
            "best_rival": self.rival,
        }
        numbers = {
            "gain_over_equal_split": self.gain(EQUAL_SPLIT),
            "percent_over_equal_split": self.percent(EQUAL_SPLIT),
            "gain_over_best_rival": self.gain(self.rival),
            "percent_over_best_rival": self.percent(self.rival),
            "ends_on_best_arm": self.ends_on_best,
            "pulls_of_inferior_arms": self.inferior,
            "percent_below_best_arm": self.loss,
        }
        for errors in self.errors:
            who = "equal_split" if errors.traffic == EQUAL_SPLIT else "policy"
            numbers |= {f"power_of_{who}": errors.power, f"type_1_error_of_{who}": errors.type_1}
        for name, value in numbers.items():
            row |= {name: value.mean, f"{name}_se": value.se}
        return row

    def as_dict(self) -> dict[str, Any]:
        return self.as_record() | {"errors": [errors.as_dict() for errors in self.errors]}


@dataclasses.dataclass(frozen=True)
class Length:
    """How long a test with so many arms should run."""

    arms: int
    pulls_per_round: int
    horizon: int | None
    """the recommended number of pulls; None if every test of the plan is too short"""
    reason: str

    def __str__(self) -> str:
        run = f"run {self.horizon} pulls" if self.horizon else "run longer"
        return f"{self.arms} arms, {self.pulls_per_round} per round: {run}; {self.reason}"

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {}


@dataclasses.dataclass(frozen=True, repr=False)
class Plan(Result):
    """Sizes of tests, and what a policy would gain in each."""

    cells: tuple[Cell, ...]
    policy: Any
    """the policy that plays all of them"""
    afterwards: int = 0
    """people after the longest test"""
    what: str = "successes"
    """what is gained"""

    def how_long(self, tolerance: float = TOLERANCE) -> tuple[Length, ...]:
        """How long tests should run, for each number of arms and of pulls per round.

        With people `afterwards`, the audience is the longest test's pulls plus these people. A shorter test
        leaves more of them to the arm that it recommends; the recommended length has the most successes in
        the whole audience. Without, it is the shortest test whose recommended arm is on average at most
        `tolerance` worse than the best arm, as a share of the best arm's mean.

        Args:
            tolerance: That share; 0.01 is 1 %.
        """
        number("tolerance", tolerance, 0, 1)
        groups: dict[tuple[int, int], list[Cell]] = {}
        for cell in sorted(self.cells, key=lambda cell: cell.horizon):
            groups.setdefault((cell.arms, cell.pulls_per_round), []).append(cell)
        decide = self._by_audience if self.afterwards else _by_loss
        return tuple(Length(*size, *decide(cells, tolerance)) for size, cells in sorted(groups.items()))

    def _by_audience(self, cells: list[Cell], tolerance: float) -> tuple[int, str]:
        audience = cells[-1].horizon + self.afterwards
        best = max(cells, key=lambda cell: cell.reward_with(audience).mean)
        value = best.reward_with(audience)
        return best.horizon, (
            f"{value.mean:.3f} ± {value.se:.3f} {self.what} per thousand of all {audience} people, the "
            "most of these lengths"
        )

    def records(self) -> list[dict[str, Any]]:
        """A row for each size of test; those of more than two arms have no power."""
        rows = [cell.as_record() for cell in self.cells]
        names = dict.fromkeys(name for row in rows for name in row)
        return [{name: row.get(name) for name in names} for row in rows]

    def tables(self, tolerance: float = TOLERANCE) -> list[TextTable]:
        """A row for each size, the errors of the z-test for two arms, and how long tests should run."""
        lengths = [f"{length}." for length in self.how_long(tolerance)]
        sizes = TextTable(
            f"Gain per thousand pulls, and how a test ends; {self.cells[0].instances} tests each",
            ["test", "over equal split", "over best rival", "rival", "best arm", "inferior", "below best"],
            [cell.as_texts() for cell in self.cells],
        )
        errors = TextTable(
            "Two arms: a two-sided z-test at 5 % in the end, in percent",
            ["test", "shared out by", "power", "type I error", "exact"],
            [[str(cell), *found.as_texts()] for cell in self.cells for found in cell.errors],
            texts=2,
        )
        found = [sizes, *([errors] if errors.rows else [])]
        return [*found[:-1], dataclasses.replace(found[-1], notes="\n".join(lengths))]

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the gain over an equal split in each size of test, with standard errors.

        Args:
            ax: Where to draw; new Axes by default.
        """
        gains = [cell.gain(EQUAL_SPLIT) for cell in self.cells]
        axes = figures.axes_for(ax, (7.5, figures.height_of_bars(len(gains))))
        names = [str(cell) for cell in self.cells]
        figures.points(axes, names, [gain.mean for gain in gains], [gain.se for gain in gains], color="C0")
        axes.axvline(0, color="0.5", linewidth=1, linestyle=":")
        axes.set(xlabel=f"{self.what} gained per thousand pulls, ± se", title="Gain over an equal split")
        return axes

    def as_dict(self) -> dict[str, Any]:
        """The output of `gradband plan --json`."""
        return {
            "policy": name_of(self.policy),
            "afterwards": self.afterwards,
            "cells": [cell.as_dict() for cell in self.cells],
            "how_long": [length.as_dict() for length in self.how_long()],
        }

    def __repr__(self) -> str:
        return f"Plan({name_of(self.policy)}, {len(self.cells)} sizes of tests)"


def _by_loss(cells: list[Cell], tolerance: float) -> tuple[int | None, str]:
    for cell in cells:
        if cell.loss.mean <= 100 * tolerance:
            return cell.horizon, (
                f"the recommended arm is {cell.loss.mean:.2f} ± {cell.loss.se:.2f} % below the best: the "
                f"shortest of these lengths with at most {100 * tolerance:g} %"
            )
    loss = cells[-1].loss
    return None, (
        f"after {cells[-1].horizon} pulls the recommended arm is still {loss.mean:.2f} ± {loss.se:.2f} % "
        f"below the best: {100 * tolerance:g} % takes more"
    )


def name_of(policy: Any) -> str:
    return policy.policy.name if isinstance(policy, Learned) else str(policy.name)


def _percent(ours: np.ndarray, theirs: np.ndarray) -> Mean:
    """How much more one sum is than another, in percent, with the error of a ratio."""
    base = max(float(theirs.mean()), 1e-30)
    ratio = float(ours.mean()) / base
    return Mean(100 * (ratio - 1), Mean.of(100 / base * (ours - ratio * theirs)).se)
