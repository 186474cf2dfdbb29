"""Past experiments: read from CSV or Parquet with distrust, checked row by row, split, and stored."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband import files, parquet
from gradband.errors import InputError, number, unknown

if TYPE_CHECKING:
    import polars

SIZE_LIMIT = 4 << 30  # bytes of a file
COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"\x28\xb5\x2f\xfd")  # gzip, zlib, zstd
SHOWN = 5  # rows that an error names
PARTS = ("fitted", "held-out")


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of columns: `pulls` and `successes` where rows are counts, `reward` where they are outcomes."""

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
    """of the arms, in their order, the same in every experiment, where the order of arms matters"""
    notes: tuple[str, ...] = ()
    """what was left out in reading them"""

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

    def only(self, chosen: np.ndarray) -> "Experiments":
        """The experiments of these numbers, in this order."""
        arms = [np.arange(self.starts[e], self.starts[e + 1]) for e in chosen]
        flat = np.concatenate(arms) if arms else np.zeros(0, int)
        starts = np.concatenate([[0], np.cumsum(self.sizes[chosen])])
        return dataclasses.replace(
            self, starts=starts, pulls=self.pulls[flat], successes=self.successes[flat]
        )

    def split(self, held_out: float, seed: int = 0) -> tuple["Experiments", "Experiments"]:
        """Those to fit on, and a random share that is held out."""
        number("held_out", held_out, 0, 0.9)
        count = round(len(self) * held_out)
        if not 1 <= count < len(self) - 1:
            raise InputError(
                f"{len(self)} experiments are too few to hold {held_out:g} of them out: at least one must "
                "be held out, and two fitted"
            )
        order = np.random.default_rng(seed).permutation(len(self))
        return self.only(np.sort(order[count:])), self.only(np.sort(order[:count]))


def read(
    path: Path, columns: Columns = USUAL, arms_matter: bool = False, drop: bool = False
) -> Experiments:
    """Past experiments from a CSV or Parquet file, one row an arm, or one row a pull.

    Faults are told with the numbers of their rows, the first below the header being 1, and refused, or
    left out with `drop`. Experiments with a single arm tell nothing of differences, and are left out.
    """
    frame = _frame(path)
    counts = columns.reward not in frame.columns
    needed = [columns.experiment, columns.arm]
    needed += [columns.pulls, columns.successes] if counts else [columns.reward]
    for name in needed:
        if name not in frame.columns:
            hint = (
                "; name them with --pulls and --successes, or --reward for a row a pull" if counts else ""
            )
            raise InputError(f"{path.name} has no column {name!r}: it has {', '.join(frame.columns)}{hint}")
    table = _Rows(frame, columns, counts)
    notes = []
    if table.faults:
        words = "; ".join(table.described())
        if not drop:
            raise InputError(
                f"{path.name} has faults: {words}. Mend them, or leave these rows out: --drop-bad"
            )
        notes.append(f"left out: {words}")
    found, alone = _grouped(table, arms_matter)
    if alone:
        notes.append(f"left out: {alone} experiments with a single arm")
    if len(found) < 2:
        raise InputError(
            f"{path.name} has {len(found)} experiments with two arms or more: too few to learn from"
        )
    return dataclasses.replace(found, notes=tuple(notes))


def _frame(path: Path) -> "polars.DataFrame":
    """The file as it is, all columns of a CSV as text."""
    try:
        import polars
    except ImportError:
        raise InputError("reading past experiments needs polars: pip install 'gradband[data]'") from None
    begin = files.read(path, SIZE_LIMIT, only=4)
    try:
        if path.suffix.lower() == ".parquet":
            return parquet.read(path)
        if begin.startswith(COMPRESSED):  # what Polars would unpack, however much it is
            raise InputError(f"{path} is compressed: unpack it first")
        return polars.read_csv(path, infer_schema=False, glob=False)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror or error}") from None
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} is not a readable table: {first}") from None


class _Rows:
    """Rows of a table as arrays, those with faults marked."""

    def __init__(self, frame: "polars.DataFrame", columns: Columns, counts: bool) -> None:
        self.good = np.ones(len(frame), bool)
        self.faults: dict[str, np.ndarray] = {}
        self.experiment, _ = self._names(frame, columns.experiment)
        self.arm, self.labels = self._names(frame, columns.arm)
        if counts:
            self.pulls = self._numbers(frame, columns.pulls)
            self.successes = self._numbers(frame, columns.successes)
            self._mark(
                f"negative {columns.pulls} or {columns.successes}", (self.pulls < 0) | (self.successes < 0)
            )
            self._mark(f"more {columns.successes} than {columns.pulls}", self.successes > self.pulls)
            self._mark(f"no {columns.pulls}", self.pulls == 0)
            self._mark(f"the {columns.experiment} and {columns.arm} of an earlier one", self._repeated())
        else:
            self.successes = self._numbers(frame, columns.reward)
            self.pulls = np.ones(len(frame))
            outside = (self.successes < 0) | (self.successes > 1)
            self._mark(f"{columns.reward} outside [0, 1]", outside)

    def _mark(self, what: str, bad: np.ndarray) -> None:
        """Notes rows with a fault, unless they have another already."""
        bad = bad & self.good
        if bad.any():
            self.faults[what] = np.flatnonzero(bad) + 1
            self.good &= ~bad

    def _names(self, frame: "polars.DataFrame", name: str) -> tuple[np.ndarray, "polars.Series"]:
        """The place of each row's name among all names, and these in their order.

        Names stay in Polars: in NumPy all would be as long as the longest.
        """
        import polars

        column = _plain(frame[name], dates=True).cast(polars.String, strict=False)
        self._mark(
            f"no {name}", (column.is_null() | (column.str.strip_chars() == "")).fill_null(True).to_numpy()
        )
        column = column.fill_null("")
        return column.rank("dense").to_numpy().astype(np.int64) - 1, column.unique().sort()

    def _numbers(self, frame: "polars.DataFrame", name: str) -> np.ndarray:
        import polars

        column = _plain(frame[name])
        if column.dtype == polars.String:
            column = column.str.strip_chars()
            self._mark(f"no {name}", (column.is_null() | (column == "")).fill_null(True).to_numpy())
        else:
            self._mark(f"no {name}", column.is_null().to_numpy())
        values = column.cast(polars.Float64, strict=False).fill_null(np.nan).to_numpy()
        self._mark(f"no number in {name}", ~np.isfinite(values))
        return values

    def _repeated(self) -> np.ndarray:
        """Rows whose experiment and arm an earlier row has."""
        pairs = self.experiment * len(self.labels) + self.arm
        repeated = np.ones(len(pairs), bool)
        repeated[np.unique(pairs, return_index=True)[1]] = False
        return repeated

    def described(self) -> Iterator[str]:
        """Each fault, with how many rows have it and which."""
        for what, rows in self.faults.items():
            named = ", ".join(map(str, rows[:SHOWN])) + (", …" if len(rows) > SHOWN else "")
            yield f"{len(rows)} {'row has' if len(rows) == 1 else 'rows have'} {what} ({named})"


def _plain(column: "polars.Series", dates: bool = False) -> "polars.Series":
    """A column of text or numbers, or of dates as names; others are refused."""
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
    names, owner = np.unique(table.experiment[keep], return_inverse=True)
    labels, arm = np.unique(table.arm[keep], return_inverse=True)
    cell = owner.astype(np.int64) * len(labels) + arm
    cells, place = np.unique(cell, return_inverse=True)
    pulls = np.bincount(place, table.pulls[keep], len(cells))
    successes = np.bincount(place, table.successes[keep], len(cells))
    sizes = np.bincount(cells // len(labels), minlength=len(names))
    found = Experiments(np.concatenate([[0], np.cumsum(sizes)]), pulls, successes)
    if arms_matter and len({len(labels), *sizes.tolist()}) > 1:
        raise InputError(
            f"arms that matter must be the same in every experiment: there are {len(labels)} of them, and "
            f"{int((sizes != len(labels)).sum())} experiments lack some"
        )
    several = np.flatnonzero(sizes > 1)
    kept = found.only(several)
    texts = tuple(table.labels.gather(labels).to_list()) if arms_matter else ()
    return dataclasses.replace(kept, labels=texts), int((sizes == 1).sum())


def save(path: Path, parts: dict[str, Experiments]) -> None:
    """Stores experiments by the part they belong to."""
    arrays: dict[str, np.ndarray] = {}
    for part, found in parts.items():
        arrays |= {f"{part}.{name}": getattr(found, name) for name in ("starts", "pulls", "successes")}
    files.save(path, "experiments", arrays, {"parts": list(parts)})


def load(path: Path, part: str) -> dict[str, Any]:
    """The arrays of a part that was stored: starts, pulls and successes."""
    if part not in PARTS:
        raise unknown("part", part, PARTS)
    arrays, _ = files.load(path, "experiments")
    try:
        return {name: arrays[f"{part}.{name}"] for name in ("starts", "pulls", "successes")}
    except KeyError as error:
        raise InputError(f"{path} has no {error}") from None
