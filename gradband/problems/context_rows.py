"""Past experiments whose rows have features: of arms, or of visitors."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np

from gradband.core import tensor_file
from gradband.core.errors import InputError, shown
from gradband.core.feature_names import INTERCEPT
from gradband.problems import frames, past_experiments
from gradband.problems.past_experiments import Columns, Experiments

MOST_FEATURES = 20
MOST_VALUES = 20  # of a column of text
MOST_ROWS = 200  # of an experiment
FEWEST = 4  # experiments


@dataclasses.dataclass(frozen=True)
class ContextRows(Experiments):
    """Experiments whose rows have features; several rows may belong to the same arm."""

    arm: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, int))
    """the arm of each row [A], by number"""
    features: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 1)))
    """[A, d], the first of which is 1"""
    columns: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    """values of text that have no column, such as device=app"""

    def mapped(self, starts: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> Self:
        arm, features = function(self.arm), function(self.features)
        return dataclasses.replace(super().mapped(starts, function), arm=arm, features=features)

    @property
    def by_arm(self) -> bool:
        """Whether features are those of visitors: some arm has several rows."""
        pairs = np.stack([self.owner, self.arm])
        return len(np.unique(pairs, axis=1).T) < len(self.arm)

    @property
    def arms(self) -> np.ndarray:
        """How many arms each experiment has [E]."""
        pairs = np.unique(np.stack([self.owner, self.arm]), axis=1)
        return np.bincount(pairs[0], minlength=len(self))


def read(data: Any, columns: Columns, context: tuple[str, ...]) -> ContextRows:
    """Rows of past experiments with features, from a file or any table that `frames.find` knows.

    A row has pulls and successes, or pulls, mean and variance, of an arm or of a segment of its visitors.
    Columns of text become columns of 0 and 1, one for each value but the first.
    """
    source = frames.find(data, (*dataclasses.astuple(columns.with_moments()), *context))
    measured = columns.asked or columns.successes not in source.columns
    asked, columns = columns.asked, columns.with_moments()
    given = (columns.mean, columns.variance) if measured else (columns.successes,)
    wanted = [columns.experiment, columns.arm, columns.pulls, *given, *context]
    if len({*wanted}) < len(wanted):
        raise InputError(f"columns must be different, not {', '.join(wanted)}")
    if missing := [repr(name) for name in wanted if name not in source.columns]:
        if not asked and measured and not {*given} & {*source.columns}:
            missing = [*(name for name in missing if name[1:-1] not in given), repr(columns.successes)]
        raise InputError(
            f"{source.name} has no column {', '.join(missing)}: it has {', '.join(source.columns[:20])}; "
            "name your columns with experiment, arm, pulls and successes (or mean and variance), and those "
            "with features with context"
        )
    frame = source.take(wanted)
    experiment, arm = (_numbered(frame[name]) for name in (columns.experiment, columns.arm))
    pulls, *numbers = (_numbers(frame[name]) for name in (columns.pulls, *given))
    frames.refuse((pulls < 1) | (pulls % 1 != 0), f"no whole number of at least 1 in {columns.pulls!r}")
    if measured:
        frames.refuse(numbers[1] < 0, f"a negative number in {columns.variance!r}")
        successes, variances = pulls * numbers[0], numbers[1]
    else:
        successes, variances = numbers[0], None
        wrong = (successes < 0) | (successes > pulls) | (successes % 1 != 0)
        frames.refuse(wrong, f"no whole number from 0 to the pulls in {columns.successes!r}")
    names, features, bases = [INTERCEPT], [np.ones(len(frame))], []
    for name in context:
        base, encoded = _encoded(frame[name])
        bases += [base] if base else []
        for label, values in encoded:
            names.append(label)
            features.append(values)
    if len(names) > MOST_FEATURES:
        raise InputError(f"there may be at most {MOST_FEATURES - 1} features, not {len(names) - 1}")
    order = np.argsort(experiment, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(experiment))])
    found = ContextRows(
        starts,
        pulls[order],
        successes[order],
        variances=None if variances is None else variances[order],
        arm=arm[order],
        features=np.stack(features, axis=1)[order],
        columns=tuple(names),
        bases=tuple(bases),
    )
    return _checked(found)


def _checked(found: ContextRows) -> ContextRows:
    """The experiments with at least two arms, or an error if they are too few or too large."""
    kept = np.flatnonzero(found.arms > 1)
    found, alone = found.only(kept), len(found) - len(kept)
    if len(found) < FEWEST:
        raise InputError(f"{len(found)} experiments with at least two arms are too few to learn from")
    if found.sizes.max() > MOST_ROWS:
        what = f"an experiment has {found.sizes.max()} rows, but at most {MOST_ROWS} are allowed"
        raise InputError(f"{what}: add up the pulls of visitors who are alike")
    spread = found.features[:, 1:].std(0)
    scaled = (found.features[:, 1:] - found.features[:, 1:].mean(0)) / np.where(spread > 0, spread, 1)
    if np.linalg.matrix_rank(scaled) < scaled.shape[1]:
        raise InputError(
            f"the columns {', '.join(found.columns[1:])} are not independent: leave out those that are "
            "constant, or follow from others"
        )
    notes = (f"left out: {alone} experiments with a single arm",) if alone else ()
    return dataclasses.replace(found, notes=notes)


def _numbered(column: Any) -> np.ndarray:
    """Names by their ranks."""
    names = frames.as_names(column)
    frames.refuse((names.str.strip_chars() == "").to_numpy(), f"nothing in {column.name!r}")
    ranks: np.ndarray = names.rank("dense").to_numpy().astype(np.int64) - 1
    return ranks


def _numbers(column: Any) -> np.ndarray:
    values: np.ndarray = frames.as_numbers(column).fill_null(np.nan).to_numpy()
    frames.refuse(~(np.abs(values) < 1e15), f"no finite number in {column.name!r}")
    return values


def _encoded(column: Any) -> tuple[str, list[tuple[str, np.ndarray]]]:
    """A column of numbers, or one of text as columns of 0 and 1, with the value that has none."""
    values = frames.as_numbers(column)
    if values.drop_nulls().is_nan().all():
        ranks, names = _numbered(column), frames.as_names(column).unique().sort().to_list()
        if len(names) > MOST_VALUES:
            raise InputError(f"{column.name!r} has {len(names)} values: at most {MOST_VALUES} are allowed")
        labels = [f"{column.name}={name}" for name in names]
        return labels[0], [(label, (ranks == i) * 1.0) for i, label in enumerate(labels) if i]
    return "", [(column.name, _numbers(column))]


def load(path: Path, part: str, columns: list[str]) -> ContextRows:
    """The stored experiments of a part, with features."""
    plain = past_experiments.load(path, part)
    arrays, _ = tensor_file.load(path, "experiments")
    try:
        arm, features = (arrays[f"{part}.{name}"] for name in past_experiments.STORED_OF_CONTEXTS)
    except KeyError as error:
        raise InputError(f"{path} has no {error}") from None
    shapes = arm.shape == plain.pulls.shape and features.shape == (*arm.shape, len(columns))
    if not shapes or arm.dtype.kind not in "iu" or features.dtype.kind != "f":
        raise InputError(f"{path} must have an arm and {len(columns)} features for each row")
    if not np.isfinite(features).all() or (features[:, 0] != 1).any():
        raise InputError(f"{path} must have finite features, the first of which is 1")
    own: dict[str, Any] = {"arm": arm.astype(np.int64), "features": features.astype(np.float64)}
    return ContextRows(**vars(plain), **own, columns=tuple(columns))


def names_of(context: Any) -> tuple[str, ...]:
    """The columns with features, given as a list or as text with commas."""
    names = context.split(",") if isinstance(context, str) else context
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"context must be a list of columns, not {shown(context)}")
    return tuple(names)
