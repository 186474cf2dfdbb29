"""Past experiments: read from CSV or Parquet, checked row by row, split, and stored."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from gradband.core import files, parquet, tensor_file
from gradband.core.errors import InputError, number, unknown
from gradband.core.extras import needs
from gradband.problems import delimited

if TYPE_CHECKING:
    import polars

SHOWN = 5  # rows that an error lists
PARTS = ("fitted", "held-out")
STORED = ("starts", "pulls", "successes")
MOST = 1e15  # pulls of an arm: whole numbers that float64 holds exactly


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of columns: `pulls` and `successes` if rows are counts, `reward` if they are single pulls."""

    experiment: str = "experiment"
    arm: str = "arm"
    pulls: str = "pulls"
    successes: str = "successes"
    reward: str = "reward"


USUAL = Columns()


@dataclasses.dataclass(frozen=True)
class Experiments:
    """E experiments; experiment e has the arms starts[e] to starts[e + 1] − 1, with pulls and successes.

    Successes are sums of rewards in [0, 1], whole numbers if rewards are 0 and 1.
    """

    starts: np.ndarray
    pulls: np.ndarray
    successes: np.ndarray
    labels: tuple[str, ...] = ()
    """names of the arms, in the same order in every experiment, if it matters which arm is which"""
    notes: tuple[str, ...] = ()
    """what was skipped in reading them"""

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
        return self.with_arms(starts, moved + np.arange(starts[-1]))

    def with_arms(self, starts: np.ndarray, chosen: np.ndarray) -> Self:
        """The chosen arms, in this order, with experiments beginning at `starts`."""
        pulls, successes = self.pulls[chosen], self.successes[chosen]
        return dataclasses.replace(self, starts=starts, pulls=pulls, successes=successes)

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
    path: Path,
    columns: Columns = USUAL,
    arms_matter: bool = False,
    drop: bool = False,
    add_up: bool = False,
) -> Experiments:
    """Past experiments from a CSV or Parquet file, one row per arm or one row per pull.

    Experiments keep the order of their first rows. Invalid rows raise an error with their row numbers (the
    first row below the header is 1), or are skipped with `drop`. Several rows of one experiment and arm are
    an error, or are added up with `add_up`. Experiments with a single arm say nothing about differences
    and are skipped.
    """
    frame = _frame(path, columns)
    table = _Rows(frame, columns, _are_counts(path, frame, columns), add_up)
    notes = []
    if table.faults:
        words = "; ".join(_rows(rows, what) for what, rows in table.faults.items())
        if not drop:
            raise InputError(
                f"{path.name} has errors: {words}. Fix them, or skip these rows with --drop-bad"
            )
        notes.append(f"left out: {words}")
    found, alone = _grouped(table, arms_matter)
    if alone:
        notes.append(f"left out: {alone} experiments with a single arm")
    if len(found) < 2:
        what = f"{len(found)} experiments with at least two arms"
        raise InputError(f"{path.name} has {what}: too few to learn from")
    if not found.successes.any() or (found.successes == found.pulls).all():
        what = "failure" if found.successes.any() else "success"
        raise InputError(f"{path.name} has no {what} at all: there is nothing to learn from")
    return dataclasses.replace(found, notes=tuple(notes))


def _are_counts(path: Path, frame: "polars.DataFrame", columns: Columns) -> bool:
    """Whether rows are counts rather than single pulls; an error that names missing columns."""
    there = frame.columns
    asked = columns.reward != USUAL.reward
    counted = columns.pulls in there and columns.successes in there
    counts = not asked and (counted or columns.reward not in there)
    needed = [columns.experiment, columns.arm]
    needed += [columns.pulls, columns.successes] if counts else [columns.reward]
    missing = [repr(name) for name in needed if name not in there]
    if not missing:
        return counts
    options = "--experiment, --arm, --pulls and --successes, or --reward for rows that are single pulls"
    hint = f"; name your columns with {options}" if counts else ""
    several = "columns" if len(missing) > 1 else "column"
    shown = ", ".join(name[:40] for name in there[:20]) + (", …" if len(there) > 20 else "")
    raise InputError(f"{path.name} has no {several} {', '.join(missing)}: it has {shown}{hint}")


def _frame(path: Path, columns: Columns) -> "polars.DataFrame":
    """The file as it is, all columns of a CSV as text."""
    try:
        import polars
    except ImportError:
        raise needs("reading past experiments", "data") from None
    try:
        if path.suffix.lower() == ".parquet":
            files.read(path, delimited.SIZE_LIMIT, only=4)
            return parquet.read(path)
        return delimited.read(path, dataclasses.astuple(columns))
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror or error}") from None
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} is not a readable table: {first}") from None


class _Rows:
    """Rows of a table as arrays, and which of them are invalid."""

    def __init__(self, frame: "polars.DataFrame", columns: Columns, counts: bool, add_up: bool) -> None:
        self.good = np.ones(len(frame), bool)
        self.faults: dict[str, np.ndarray] = {}
        self.experiment, _ = self._names(frame, columns.experiment)
        self.arm, self.labels = self._names(frame, columns.arm)
        if counts:
            self.pulls = self._numbers(frame, columns.pulls)
            self.successes = self._numbers(frame, columns.successes)
            self._refuse_fractions(columns.successes, self.successes)
            self._refuse_fractions(columns.pulls, self.pulls)
            negative = (self.pulls < 0) | (self.successes < 0)
            self._mark(f"negative {columns.pulls} or {columns.successes}", negative)
            self._mark(f"more {columns.successes} than {columns.pulls}", self.successes > self.pulls)
            if add_up:
                self.good &= self.pulls > 0  # a day on which nothing was shown
            else:
                self._mark(f"no {columns.pulls}", self.pulls == 0)
                both = f"{columns.experiment} and {columns.arm}"
                self._mark(f"the {both} of an earlier row, which --sum would add up", self._repeated())
        else:
            self.successes = self._numbers(frame, columns.reward)
            self.pulls = np.ones(len(frame))
            outside = (self.successes < 0) | (self.successes > 1)
            self._mark(f"{columns.reward} outside [0, 1]", outside)

    def _mark(self, what: str, bad: np.ndarray) -> None:
        """Marks rows as invalid, unless they already are."""
        bad = bad & self.good
        if bad.any():
            self.faults[what] = np.flatnonzero(bad) + 1
            self.good &= ~bad

    def _refuse_fractions(self, name: str, values: np.ndarray) -> None:
        """Raises an error for rates or percentages: they concern the whole file, not single rows."""
        good = np.flatnonzero(self.good)
        rows = good[values[good] % 1 != 0] + 1
        if len(rows):
            raise InputError(
                f"{name} must be counts, but {_rows(rows, 'a fraction')}, such as {values[rows[0] - 1]:g}: "
                "give neither rates nor percentages, and no point as thousands separator"
            )

    def _names(self, frame: "polars.DataFrame", name: str) -> tuple[np.ndarray, "polars.Series"]:
        """The rank of each row's name among all names, and these in order.

        Names stay in Polars: in NumPy all would be as long as the longest.
        """
        import polars

        column = _plain(frame[name], dates=True).cast(polars.String, strict=False).fill_null("")
        self._mark(f"no {name}", (column.str.strip_chars() == "").to_numpy())
        return column.rank("dense").to_numpy().astype(np.int64) - 1, column.unique().sort()

    def _numbers(self, frame: "polars.DataFrame", name: str) -> np.ndarray:
        import polars

        column = _plain(frame[name])
        if column.dtype == polars.String:
            column = delimited.whole_text(column.str.strip_chars())
            self._mark(f"no {name}", (column.fill_null("") == "").to_numpy())
        else:
            self._mark(f"no {name}", column.is_null().to_numpy())
        values = column.cast(polars.Float64, strict=False).fill_null(np.nan).to_numpy()
        self._mark(f"no number in {name}", ~np.isfinite(values))
        return values

    def _repeated(self) -> np.ndarray:
        """Rows with the same experiment and arm as an earlier row."""
        pairs = self.experiment * len(self.labels) + self.arm
        repeated = np.ones(len(pairs), bool)
        repeated[np.unique(pairs, return_index=True)[1]] = False
        return repeated


def _rows(rows: np.ndarray, what: str) -> str:
    """How many rows have something, and which."""
    named = ", ".join(map(str, rows[:SHOWN])) + (", …" if len(rows) > SHOWN else "")
    return f"{len(rows)} {'row has' if len(rows) == 1 else 'rows have'} {what} ({named})"


def _plain(column: "polars.Series", dates: bool = False) -> "polars.Series":
    """A column of text or numbers, or with `dates` of dates or times; an error for any other."""
    import polars

    kind = column.dtype
    if kind in (polars.Categorical, polars.Enum):
        return column.cast(polars.String)
    fine = kind in (polars.String, polars.Boolean, polars.Null) or kind.is_numeric()
    if not fine and not (dates and kind in (polars.Date, polars.Datetime, polars.Time)):
        raise InputError(f"the column {column.name!r} must hold text or numbers, not {kind}")
    return column


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
    found = Experiments(np.concatenate([[0], np.cumsum(sizes)]), pulls, successes)
    if arms_matter and len({len(labels), *sizes.tolist()}) > 1:
        raise InputError(
            f"with --arms-matter every experiment must have the same arms: there are {len(labels)}, and "
            f"{int((sizes != len(labels)).sum())} experiments lack some"
        )
    texts = tuple(table.labels.gather(labels).to_list()) if arms_matter else ()
    kept = found.only(np.flatnonzero(sizes > 1))
    return dataclasses.replace(kept, labels=texts), int((sizes == 1).sum())


def save(path: Path, parts: dict[str, Experiments]) -> None:
    """Stores experiments by the part they belong to."""
    arrays = {f"{part}.{name}": getattr(found, name) for part, found in parts.items() for name in STORED}
    tensor_file.save(path, "experiments", arrays, {"parts": list(parts)})


def load(path: Path, part: str) -> Experiments:
    """The stored experiments of a part."""
    if part not in PARTS:
        raise unknown("part", part, PARTS)
    arrays, _ = tensor_file.load(path, "experiments")
    try:
        starts, pulls, successes = (arrays[f"{part}.{name}"] for name in STORED)
    except KeyError as error:
        raise InputError(f"{path} has no {error}") from None
    if any(array.ndim != 1 or array.dtype.kind not in "fiu" for array in (starts, pulls, successes)):
        raise InputError(f"{path} must contain rows of numbers")
    rise = np.concatenate([starts[:1] == 0, starts[1:] > starts[:-1], starts[-1:] == len(pulls)])
    if len(starts) < 2 or not rise.all():
        raise InputError(f"{path}: starts must rise from 0 to the number of arms, {len(pulls)}")
    fine = len(successes) == len(pulls) and ((successes >= 0) & (successes <= pulls) & (pulls < MOST)).all()
    if not fine:
        raise InputError(f"{path}: successes must match pulls one to one, and lie between 0 and the pulls")
    return Experiments(starts.astype(np.int64), pulls.astype(np.float64), successes.astype(np.float64))
