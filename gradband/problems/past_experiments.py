"""Past experiments: read from a table or a file, checked row by row, split, and stored."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gradband.core import tensor_file
from gradband.core.errors import InputError, number, unknown
from gradband.problems import frames, wide

if TYPE_CHECKING:
    import polars

SHOWN = 5  # rows that an error lists
PARTS = ("fitted", "held-out")
STORED = ("starts", "pulls", "successes")
STORED_OF_REVENUE = ("variances", "buyers")
FEW_TYPOS = 0.05  # of the rewards other than 0: if so few are not 1, they are errors
MANY_ZEROS = 0.2  # of the rewards: with fewer, revenue has no model of who buys
BY_ARM = ("pulls", "successes", "variances", "buyers")
MOST = 1e15  # pulls of an arm: whole numbers that float64 holds exactly


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


@dataclasses.dataclass(frozen=True)
class Experiments:
    """E experiments; experiment e has the arms starts[e] to starts[e + 1] − 1, with pulls and successes.

    Successes are sums of rewards in [0, 1], whole numbers if rewards are 0 and 1. With `variances`, rewards
    are of any size, and successes are their sums.
    """

    starts: np.ndarray
    pulls: np.ndarray
    successes: np.ndarray
    labels: tuple[str, ...] = ()
    """names of the arms, in the same order in every experiment, if it matters which arm is which"""
    notes: tuple[str, ...] = ()
    """what was skipped in reading them"""
    variances: np.ndarray | None = None
    """of each arm's rewards, if they are of any size"""
    buyers: np.ndarray | None = None
    """pulls of each arm with a reward above 0, if all others have none"""
    names: tuple[str, ...] = ()
    """of the experiments, if they are known"""

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> np.ndarray:
        """Arms of each experiment [E]."""
        return np.diff(self.starts)

    @property
    def owner(self) -> np.ndarray:
        """The experiment of each arm [A]."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def only(self, chosen: np.ndarray) -> Self:
        """The experiments with these numbers, in this order."""
        sizes = self.sizes[chosen]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        moved = np.repeat(self.starts[chosen] - starts[:-1], sizes)
        names = tuple(self.names[place] for place in chosen) if self.names else ()
        found = self.with_arms(starts, moved + np.arange(starts[-1]))
        return dataclasses.replace(found, names=names)

    def with_arms(self, starts: np.ndarray, chosen: np.ndarray) -> Self:
        """The chosen arms, in this order, with experiments beginning at `starts`."""
        return self.mapped(starts, lambda numbers: numbers[chosen])

    def mapped(self, starts: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> Self:
        """Other arms, whose numbers are a function of those of these arms."""
        found = {name: getattr(self, name) for name in BY_ARM}
        changed: dict[str, Any] = {
            name: function(numbers) for name, numbers in found.items() if numbers is not None
        }
        return dataclasses.replace(self, starts=starts, **changed)

    def split(self, held_out: float, seed: int = 0, last: bool = False) -> tuple[Self, Self]:
        """Those to fit on, and a share that is held out: at random, or the last ones."""
        number("held_out", held_out, 0, 0.9)
        count = round(len(self) * held_out)
        if not 1 <= count < len(self) - 1:
            what = f"cannot hold out {held_out:g} of {len(self)} experiments"
            raise InputError(f"{what}: at least one must be held out, and two fitted")
        order = np.arange(len(self))[::-1] if last else np.random.default_rng(seed).permutation(len(self))
        return self.only(np.sort(order[count:])), self.only(np.sort(order[:count]))


def read(
    data: Any,
    columns: Columns = USUAL,
    arms_matter: bool = False,
    drop: bool = False,
    add_up: bool = False,
    any_size: bool = False,
) -> Experiments:
    """Past experiments from a file or any table that `frames.find` knows.

    There is one row per arm, or one row per pull, or one row per experiment with columns for each arm.
    Experiments keep the order of their first rows. Invalid rows raise an error with their row numbers (the
    first row below the header is 1), or are skipped with `drop`. Several rows of one experiment and arm are
    an error, or are added up with `add_up`. Experiments with a single arm say nothing about differences
    and are skipped. Rewards of single pulls may be of `any_size`; without it, they may be if that is no
    mistake.
    """
    source = frames.find(data, dataclasses.astuple(columns.with_moments()))
    table = _rows_of(source, columns, add_up, any_size)
    notes = [*table.notes]
    if table.faults:
        words = "; ".join(table.faults)
        if not drop:
            hint = "Fix them, or skip these rows with drop_bad (--drop-bad)"
            raise InputError(f"{source.name} has errors: {words}. {hint}")
        notes.append(f"left out: {words}")
    found, alone = _grouped(table, arms_matter)
    if alone:
        notes.append(f"left out: {alone} experiments with a single arm")
    if len(found) < 2:
        what = f"{len(found)} experiments with at least two arms"
        raise InputError(f"{source.name} has {what}: too few to learn from")
    if found.variances is not None:
        if not found.variances.any():
            raise InputError(
                f"{source.name} has the same reward for all pulls of an arm: nothing to learn from"
            )
    elif not found.successes.any() or (found.successes == found.pulls).all():
        what = "failure" if found.successes.any() else "success"
        raise InputError(f"{source.name} has no {what} at all: there is nothing to learn from")
    return dataclasses.replace(found, notes=tuple(notes))


def _rows_of(source: frames.Table, columns: Columns, add_up: bool, any_size: bool) -> "_Rows":
    """The rows of a table, by what its columns say that they are."""
    there = source.columns
    if _are_measured(columns, there):
        columns = columns.with_moments()
        needed = [columns.experiment, columns.arm, columns.pulls, columns.mean, columns.variance]
        if missing := [repr(name) for name in needed if name not in there]:
            raise _without_columns(source, missing, True)
        needed += [columns.successes] if columns.successes in there else []
        return _MeasuredRows(source.take(needed), columns, True, add_up)
    asked = columns.reward != USUAL.reward
    counted = columns.pulls in there and columns.successes in there
    by_arm = not asked and columns.arm not in there and columns.experiment in there
    if by_arm and (pairs := wide.pairs_of(there, columns.pulls, columns.successes)):
        names = [columns.experiment, *(name for pair in pairs.values() for name in pair)]
        long = (columns.experiment, columns.arm, columns.pulls, columns.successes)
        frame, rows = wide.unpivot(source.take(names), pairs, long)
        return _Rows(frame, columns, True, add_up, rows)
    counts = not asked and (counted or columns.reward not in there)
    needed = [columns.experiment, columns.arm]
    needed += [columns.pulls, columns.successes] if counts else [columns.reward]
    missing = [repr(name) for name in needed if name not in there]
    if missing:
        raise _without_columns(source, missing, counts)
    frame = source.take(needed)
    if not counts and (any_size or _is_revenue(frames.as_numbers(frame[columns.reward]).to_numpy())):
        return _MeasuredRows(frame, columns, False, add_up)
    return _Rows(frame, columns, counts, add_up)


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


class _Rows:
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
            self._mark(f"the {both} of an earlier row, which add_up (--sum) adds up", self._repeated())

    def _mark(self, what: str, bad: np.ndarray) -> None:
        """Marks rows as invalid, unless they already are."""
        bad = bad & self.good
        if bad.any():
            self.faults.append(self._listed(np.flatnonzero(bad), what))
            self.good &= ~bad

    def _listed(self, found: np.ndarray, what: str) -> str:
        """How many rows have something, and which."""
        named = [str(row) for row in self.rows[found[:SHOWN]]]
        if self.arm_of_row is not None:
            named = [f"{row} {self.arm_of_row[int(i)]}" for row, i in zip(named, found, strict=False)]
        listed = ", ".join(named) + (", …" if len(found) > SHOWN else "")
        return f"{len(found)} {'row has' if len(found) == 1 else 'rows have'} {what} ({listed})"

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


class _MeasuredRows(_Rows):
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


def _variances(table: _Rows, place: np.ndarray, pulls: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Variances of arms [A] from those of their rows, and from the spread of rows' means."""
    assert table.variances is not None
    keep, centre = table.good, sums.sum() / max(pulls.sum(), 1)
    rows = table.pulls[keep]
    off = table.successes[keep] / rows - centre
    squares = np.bincount(place, (rows - 1) * table.variances[keep] + rows * off**2, len(pulls))
    return np.maximum(squares - pulls * (sums / pulls - centre) ** 2, 0) / np.maximum(pulls - 1, 1)


def _grouped(table: _Rows, arms_matter: bool) -> tuple[Experiments, int]:
    """Rows as experiments, and how many of them had a single arm."""
    keep = table.good
    names, first, owner = np.unique(table.experiment[keep], return_index=True, return_inverse=True)
    owner = np.argsort(np.argsort(first))[owner]  # numbered in order of their first rows
    labels, arm = np.unique(table.arm[keep], return_inverse=True)
    cell = owner.astype(np.int64) * len(labels) + arm
    cells, place = np.unique(cell, return_inverse=True)
    pulls = np.bincount(place, table.pulls[keep], len(cells))
    successes = np.bincount(place, table.successes[keep], len(cells))
    sizes = np.bincount(cells // len(labels), minlength=len(names))
    called = tuple(table.names.gather(names[np.argsort(first)]).to_list())
    found = Experiments(np.concatenate([[0], np.cumsum(sizes)]), pulls, successes, names=called)
    if table.variances is not None:
        buyers = None if table.buyers is None else np.bincount(place, table.buyers[keep], len(cells))
        variances = _variances(table, place, pulls, successes)
        found = dataclasses.replace(found, variances=variances, buyers=buyers)
    if arms_matter and len({len(labels), *sizes.tolist()}) > 1:
        raise InputError(
            "with arms_matter (--arms-matter) every experiment must have the same arms: there are "
            f"{len(labels)}, and {int((sizes != len(labels)).sum())} experiments lack some"
        )
    texts = tuple(table.labels.gather(labels).to_list()) if arms_matter else ()
    kept = found.only(np.flatnonzero(sizes > 1))
    return dataclasses.replace(kept, labels=texts), int((sizes == 1).sum())


def save(path: Path, parts: dict[str, Experiments]) -> None:
    """Stores experiments by the part they belong to."""
    names = (*STORED, *STORED_OF_REVENUE)
    found = {f"{part}.{name}": getattr(each, name) for part, each in parts.items() for name in names}
    arrays = {name: numbers for name, numbers in found.items() if numbers is not None}
    tensor_file.save(path, "experiments", arrays, {"parts": list(parts)})


def load(path: Path, part: str) -> Experiments:
    """The stored experiments of a part."""
    if part not in PARTS:
        raise unknown("part", part, PARTS)
    arrays, _ = tensor_file.load(path, "experiments")
    try:
        stored = {name: arrays[f"{part}.{name}"] for name in STORED}
    except KeyError as error:
        raise InputError(f"{path} has no {error}") from None
    stored |= {name: arrays[f"{part}.{name}"] for name in STORED_OF_REVENUE if f"{part}.{name}" in arrays}
    if any(array.ndim != 1 or array.dtype.kind not in "fiu" for array in stored.values()):
        raise InputError(f"{path} must contain rows of numbers")
    starts = stored.pop("starts").astype(np.int64)
    numbers: dict[str, Any] = {name: array.astype(np.float64) for name, array in stored.items()}
    pulls = numbers["pulls"]
    rise = np.concatenate([starts[:1] == 0, starts[1:] > starts[:-1], starts[-1:] == len(pulls)])
    if len(starts) < 2 or not rise.all():
        raise InputError(f"{path}: starts must rise from 0 to the number of arms, {len(pulls)}")
    if any(len(array) != len(pulls) for array in numbers.values()):
        raise InputError(f"{path}: successes must match pulls one to one")
    if "variances" in numbers:
        fine = (pulls > 0).all() and np.isfinite(numbers["successes"]).all()
        if not fine or not ((numbers["variances"] >= 0) & (numbers["variances"] < np.inf)).all():
            raise InputError(
                f"{path}: rewards must have finite sums and variances, and arms must have pulls"
            )
    counts = numbers.get("buyers") if "variances" in numbers else numbers["successes"]
    fine = counts is None or ((counts >= 0) & (counts <= pulls)).all()
    if not fine or not (pulls < MOST).all():
        raise InputError(f"{path}: successes and buyers must lie between 0 and the pulls")
    return Experiments(starts, **numbers)
