"""Past experiments: read from a table or a file, checked row by row, split, and stored."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gradband.core import tensor_file
from gradband.core.errors import InputError, number, unknown
from gradband.problems import frames
from gradband.problems.counted_rows import USUAL as USUAL
from gradband.problems.counted_rows import Columns as Columns
from gradband.problems.counted_rows import Rows, rows_of

if TYPE_CHECKING:
    pass

PARTS = ("fitted", "held-out")
STORED = ("starts", "pulls", "successes")
STORED_OF_REVENUE = ("variances", "buyers")
STORED_OF_CONTEXTS = ("arm", "features")
BY_ARM = ("pulls", "successes", "variances", "buyers")
MOST_PULLS = 1e15  # pulls of an arm: whole numbers that float64 holds exactly


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
    with_context: bool = False,
) -> Experiments:
    """Past experiments from a file or any table that `frames.find` knows.

    There is one row per arm, or one row per pull, or one row per experiment with columns for each arm.
    Experiments keep the order of their first rows. Invalid rows raise an error with their row numbers (the
    first row below the header is 1), or are skipped with `drop`. Several rows of one experiment and arm are
    an error, or are added up with `add_up`. Experiments with a single arm say nothing about differences
    and are skipped. With `any_size`, rewards of single pulls may be outside [0, 1]; without it, they are
    taken as such only if that is clearly no mistake. Errors mention that columns may be features if the
    caller takes them `with_context`.
    """
    source = frames.find(data, dataclasses.astuple(columns.with_moments()))
    table = rows_of(source, columns, add_up, any_size)
    notes = [*table.notes]
    if table.faults:
        words = "; ".join(table.faults)
        if not drop:
            hint = "Fix them, or skip these rows with drop_bad (--drop-bad)"
            if with_context and table.repeated:
                hint += _about_features(source, columns)
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


def _about_features(source: frames.Table, columns: Columns) -> str:
    """What to do if rows of an arm are repeated because visitors have features, if there are any."""
    used = dataclasses.astuple(columns.with_moments())
    others = [name[:40] for name in source.columns if name not in used]
    if not others:
        return ""
    shown = ", ".join(others[: frames.SHOWN]) + (", …" if len(others) > frames.SHOWN else "")
    return f". If other columns are features ({shown}), name them with context (--context)"


def _variances(table: Rows, place: np.ndarray, pulls: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Variances of arms [A] from those of their rows, and from the spread of rows' means."""
    assert table.variances is not None
    keep, centre = table.good, sums.sum() / max(pulls.sum(), 1)
    rows = table.pulls[keep]
    off = table.successes[keep] / rows - centre
    squares = np.bincount(place, (rows - 1) * table.variances[keep] + rows * off**2, len(pulls))
    return np.maximum(squares - pulls * (sums / pulls - centre) ** 2, 0) / np.maximum(pulls - 1, 1)


def _grouped(table: Rows, arms_matter: bool) -> tuple[Experiments, int]:
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
    names = (*STORED, *STORED_OF_REVENUE, *STORED_OF_CONTEXTS)
    found = {f"{part}.{name}": getattr(each, name, None) for part, each in parts.items() for name in names}
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
    if not fine or not (pulls < MOST_PULLS).all():
        raise InputError(f"{path}: successes and buyers must lie between 0 and the pulls")
    return Experiments(starts, **numbers)
