"""Rows of a table of past experiments, checked one by one."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradband.core.errors import InputError
from gradband.problems import frames, wide

if TYPE_CHECKING:
    import polars


FEW_TYPOS = 0.05  # of the rewards other than 0: if so few are not 1, they are errors
MANY_ZEROS = 0.2  # of the rewards: with fewer, revenue has no model of who buys


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of columns: `pulls` and `successes` if rows are counts, `reward` if they are single pulls.

    Rewards of any size have `pulls`, `mean` and `variance`, and maybe `successes`, the pulls that had any
    reward. If the names of means and variances are not given, they are found only where there are neither
    successes nor rewards.
    """

    experiment: str = "experiment"
    arm: str = "arm"
    pulls: str = "pulls"
    successes: str = "successes"
    reward: str = "reward"
    mean: str = ""
    variance: str = ""

    @property
    def asked(self) -> bool:
        """Whether means and variances are asked for."""
        return bool(self.mean or self.variance)

    def with_moments(self) -> "Columns":
        """With the names of means and variances, which are usually just that."""
        return dataclasses.replace(self, mean=self.mean or "mean", variance=self.variance or "variance")


USUAL = Columns()


def rows_of(source: frames.Table, columns: Columns, add_up: bool, any_size: bool) -> "Rows":
    """The rows of a table, by what its columns say that they are."""
    there = source.columns
    if _are_measured(columns, there):
        columns = columns.with_moments()
        needed = [columns.experiment, columns.arm, columns.pulls, columns.mean, columns.variance]
        if missing := [repr(name) for name in needed if name not in there]:
            raise _without_columns(source, missing, True)
        needed += [columns.successes] if columns.successes in there else []
        return MeasuredRows(source.take(needed), columns, True, add_up)
    asked = columns.reward != USUAL.reward
    counted = columns.pulls in there and columns.successes in there
    by_arm = not asked and columns.arm not in there and columns.experiment in there
    if by_arm and (pairs := wide.pairs_of(there, columns.pulls, columns.successes)):
        names = [columns.experiment, *(name for pair in pairs.values() for name in pair)]
        long = (columns.experiment, columns.arm, columns.pulls, columns.successes)
        frame, rows = wide.unpivot(source.take(names), pairs, long)
        return Rows(frame, columns, True, add_up, rows)
    counts = not asked and (counted or columns.reward not in there)
    needed = [columns.experiment, columns.arm]
    needed += [columns.pulls, columns.successes] if counts else [columns.reward]
    missing = [repr(name) for name in needed if name not in there]
    if missing:
        raise _without_columns(source, missing, counts)
    frame = source.take(needed)
    if not counts and (any_size or _is_revenue(frames.as_numbers(frame[columns.reward]).to_numpy())):
        return MeasuredRows(frame, columns, False, add_up)
    return Rows(frame, columns, counts, add_up)


def _are_measured(columns: Columns, there: tuple[str, ...]) -> bool:
    """Whether rows have means and variances: if these are named, or if there is nothing else."""
    others = columns.successes in there or columns.reward in there or columns.reward != USUAL.reward
    named = columns.with_moments()
    return columns.asked or (not others and {named.pulls, named.mean, named.variance} <= {*there})


def _is_revenue(rewards: np.ndarray) -> bool:
    """Whether rewards are of any size, and not 0 and 1 with a few errors."""
    paid = rewards[np.isfinite(rewards) & (rewards != 0)]
    outside = (paid < 0) | (paid > 1)
    return bool(outside.any()) and not (outside.mean() <= FEW_TYPOS and (paid[~outside] == 1).all())


def _without_columns(source: frames.Table, missing: list[str], counts: bool) -> InputError:
    """The error for missing columns, which names those that are there."""
    options = "experiment, arm, pulls and successes (or mean and variance), or reward for single pulls"
    hint = f"; name your columns with {options}" if counts else ""
    several = "columns" if len(missing) > 1 else "column"
    there = source.columns
    shown = ", ".join(name[:40] for name in there[:20]) + (", …" if len(there) > 20 else "")
    return InputError(f"{source.name} has no {several} {', '.join(missing)}: it has {shown}{hint}")


class Rows:
    """Rows of a table as arrays, and which of them are invalid."""

    def __init__(
        self,
        frame: "polars.DataFrame",
        columns: Columns,
        counts: bool,
        add_up: bool,
        rows: np.ndarray | None = None,
    ) -> None:
        """`rows` are those of a table with one row per experiment, where a fault also names the arm."""
        self.good = np.ones(len(frame), bool)
        self.faults: list[str] = []
        self.rows = np.arange(1, len(frame) + 1) if rows is None else rows
        self.arm_of_row = None if rows is None else frame[columns.arm]
        self.experiment, self.names = self._names(frame, columns.experiment)
        self.arm, self.labels = self._names(frame, columns.arm)
        self.notes: tuple[str, ...] = ()
        self.repeated = False  # whether several rows of an arm should have been one
        self.variances: np.ndarray | None = None
        self.buyers: np.ndarray | None = None
        self._take(frame, columns, counts, add_up)

    def _take(self, frame: "polars.DataFrame", columns: Columns, counts: bool, add_up: bool) -> None:
        """Reads pulls and successes."""
        if counts:
            self.pulls = self._numbers(frame, columns.pulls)
            self.successes = self._numbers(frame, columns.successes)
            self._refuse_fractions(columns.successes, self.successes)
            self._refuse_fractions(columns.pulls, self.pulls)
            negative = (self.pulls < 0) | (self.successes < 0)
            self._mark(f"negative {columns.pulls} or {columns.successes}", negative)
            self._mark(f"more {columns.successes} than {columns.pulls}", self.successes > self.pulls)
            self._mark_repeated(columns, add_up)
        else:
            self.successes = self._numbers(frame, columns.reward)
            self.pulls = np.ones(len(frame))
            outside = (self.successes < 0) | (self.successes > 1)
            insist = "which the prior hierarchical-gaussian allows"
            self._mark(f"{columns.reward} outside [0, 1], {insist}", outside)

    def _mark_repeated(self, columns: Columns, add_up: bool) -> None:
        """Marks rows without pulls, and several of the same arm, unless they are added up."""
        if add_up:
            self.good &= self.pulls > 0  # a day on which nothing was shown
        else:
            self._mark(f"no {columns.pulls}", self.pulls == 0)
            both = f"{columns.experiment} and {columns.arm}"
            what = f"the {both} of an earlier row, which add_up (--sum) adds up"
            self.repeated = self._mark(what, self._repeated())

    def _mark(self, what: str, bad: np.ndarray) -> bool:
        """Marks rows as invalid, unless they already are; returns whether there were any."""
        bad = bad & self.good
        if found := bool(bad.any()):
            self.faults.append(self._listed(np.flatnonzero(bad), what))
            self.good &= ~bad
        return found

    def _listed(self, found: np.ndarray, what: str) -> str:
        """How many rows have something, and which."""
        named = [str(row) for row in self.rows[found[: frames.SHOWN]]]
        if self.arm_of_row is not None:
            named = [f"{row} {self.arm_of_row[int(i)]}" for row, i in zip(named, found, strict=False)]
        return frames.list_rows(named, len(found), what)

    def _refuse_fractions(self, name: str, values: np.ndarray) -> None:
        """Raises an error for rates or percentages: they concern the whole file, not single rows."""
        good = np.flatnonzero(self.good)
        found = good[values[good] % 1 != 0]
        if len(found):
            raise InputError(
                f"{name} must be counts, but {self._listed(found, 'a fraction')}, such as "
                f"{values[found[0]]:g}: give neither rates nor percentages, and no point as thousands "
                "separator"
            )

    def _names(self, frame: "polars.DataFrame", name: str) -> tuple[np.ndarray, "polars.Series"]:
        """The rank of each row's name among all names, and these in order.

        Names stay in Polars: in NumPy all would be as long as the longest.
        """
        column = frames.as_names(frame[name])
        self._mark(f"no {name}", (column.str.strip_chars() == "").to_numpy())
        return column.rank("dense").to_numpy().astype(np.int64) - 1, column.unique().sort()

    def _numbers(self, frame: "polars.DataFrame", name: str) -> np.ndarray:
        column = frames.as_numbers(frame[name])
        self._mark(f"no {name}", column.is_null().to_numpy())
        values = column.fill_null(np.nan).to_numpy()
        self._mark(f"no number in {name}", ~np.isfinite(values))
        return values

    def _repeated(self) -> np.ndarray:
        """Rows with the same experiment and arm as an earlier row."""
        pairs = self.experiment * len(self.labels) + self.arm
        repeated = np.ones(len(pairs), bool)
        repeated[np.unique(pairs, return_index=True)[1]] = False
        return repeated


class MeasuredRows(Rows):
    """Rows with rewards of any size: their means and variances, or single rewards."""

    def _take(self, frame: "polars.DataFrame", columns: Columns, counts: bool, add_up: bool) -> None:
        if not counts:
            self.successes = self._numbers(frame, columns.reward)
            self.pulls, self.variances = np.ones(len(frame)), np.zeros(len(frame))
            paid = self.successes[self.good]
            none = (paid == 0).mean() if len(paid) else 0.0
            self.buyers = (self.successes > 0) * 1.0 if none >= MANY_ZEROS and (paid >= 0).all() else None
            seen = "" if self.buyers is None else f"; {100 * none:.1f} % are 0, the others above it"
            self.notes = (f"{columns.reward} is not 0 and 1, and fitted as revenue{seen}",)
            return
        self.pulls = self._numbers(frame, columns.pulls)
        self._refuse_fractions(columns.pulls, self.pulls)
        mean, self.variances = (self._numbers(frame, name) for name in (columns.mean, columns.variance))
        self.successes = np.where(self.good, self.pulls * mean, 0)
        negative = (self.pulls < 0) | (self.variances < 0)
        self._mark(f"negative {columns.pulls} or {columns.variance}", negative)
        if columns.successes in frame.columns:
            self.buyers = self._numbers(frame, columns.successes)
            self._refuse_fractions(columns.successes, self.buyers)
            outside = (self.buyers < 0) | (self.buyers > self.pulls)
            self._mark(f"negative {columns.successes}, or more than {columns.pulls}", outside)
            nothing = (mean < 0) | ((mean > 0) != (self.buyers > 0))
            self._mark(f"a {columns.mean} that is negative, or without {columns.successes}", nothing)
        self._mark_repeated(columns, add_up)
