"""Rows of features with labels, from data frames, arrays and files."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core.errors import InputError, shown, unknown
from gradband.problems import frames

if TYPE_CHECKING:
    import polars

MOST_CLASSES = 200
MOST_FEATURES = 1000
ALLOWED = (
    "rows with labels must be an array [N, d] of features with the labels as the next argument, or "
    f"{frames.ALLOWED}"
)


@dataclasses.dataclass(frozen=True)
class LabelledRows:
    """Features [N, d], classes [N] by number, and what both are called."""

    features: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    columns: tuple[str, ...]


def read(data: Any, label: Any, columns: Any = ()) -> LabelledRows:
    """Reads rows whose features are numbers.

    Args:
        data: What `gb.fit` takes (a data frame, a file and so on), or an array [N, d].
        label: The column with the class; with an array [N, d], the labels [N] or a column's number.
        columns: The columns with features, by default all others.
    """
    if isinstance(data, np.ndarray) and data.dtype.names is None:
        data, label = _of_array(data, label)
    if not isinstance(label, str):
        raise InputError(f"label must be the name of a column, not {shown(label)}")
    table = frames.find(data, (label,), ALLOWED)
    if label not in table.columns:
        raise unknown("column", label, table.columns)
    wanted = _wanted(columns, table.columns, label)
    frame = table.take([label, *wanted])
    names = frames.as_names(frame[label])
    frames.refuse((names.str.strip_chars() == "").to_numpy(), f"no class in {label!r}")
    classes = names.unique().sort()
    if not 2 <= len(classes) <= MOST_CLASSES:
        found = f"{len(classes)} in {len(names)} rows"
        raise InputError(f"{label!r} must have from 2 to {MOST_CLASSES} classes, but there are {found}")
    labels = names.rank("dense").to_numpy().astype(np.int32) - 1
    features = np.stack([_numbers(frame[name]) for name in wanted], axis=1)
    return LabelledRows(features, labels, tuple(classes.to_list()), wanted)


def _of_array(features: np.ndarray, label: Any) -> tuple[dict[str, Any], str]:
    """Columns of an array [N, d], named after their numbers, and the label's name."""
    if features.ndim != 2 or 0 in features.shape:
        raise InputError(f"features must be an array [rows, columns], not of the shape {features.shape}")
    columns: dict[str, Any] = {f"{number}": features[:, number] for number in range(features.shape[1])}
    if isinstance(label, int | np.integer) and not isinstance(label, bool):
        if not 0 <= label < features.shape[1]:
            raise InputError(f"label must be a column from 0 to {features.shape[1] - 1}, not {label}")
        return columns, f"{label}"
    labels = np.asarray(label)
    if labels.shape != (len(features),):
        raise InputError(
            f"labels must be one per row [{len(features)}], or a column's number, not of the shape "
            f"{labels.shape}"
        )
    return {**columns, "label": labels}, "label"


def _wanted(columns: Any, known: tuple[str, ...], label: str) -> tuple[str, ...]:
    if not isinstance(columns, list | tuple) or not all(isinstance(name, str) for name in columns):
        raise InputError(f"features must be a list of columns, not {shown(columns)}")
    wanted = tuple(columns) or tuple(name for name in known if name != label)
    for name in wanted:
        if name not in known:
            raise unknown("column", name, known)
    if label in wanted or len({*wanted}) < len(wanted):
        raise InputError(f"features must be different columns, without the label {label!r}")
    if not 1 <= len(wanted) <= MOST_FEATURES:
        raise InputError(f"there must be from 1 to {MOST_FEATURES} features, not {len(wanted)}")
    return wanted


def _numbers(column: "polars.Series") -> np.ndarray:
    """A column of features, or an error that names its invalid rows."""
    values = frames.as_numbers(column)
    frames.refuse(values.is_null().to_numpy(), f"no number in {column.name!r}")
    found: np.ndarray = values.to_numpy()
    text = f"no finite number in {column.name!r}, where text must be columns of 0 and 1"
    frames.refuse(~(np.abs(found) < 1e30), text)
    return found


def read_file(path: Path, label: Any, columns: Any = ()) -> LabelledRows:
    """Reads a CSV or Parquet file beside a problem file."""
    if not path.is_file():
        raise InputError(f"there is no file {path.name} beside the problem file")
    return read(path, label, columns)
