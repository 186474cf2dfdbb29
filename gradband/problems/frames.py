"""Tables from anywhere as columns of Polars: data frames, relations, arrays, CSV and Parquet files.

Wherever a table comes from, its columns have the same values and the same missing values, so that fits and
errors are the same.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from datetime import time
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core import files, parquet
from gradband.core.errors import InputError, shown
from gradband.core.extras import needs
from gradband.problems import delimited

if TYPE_CHECKING:
    import polars

SHOWN = 5  # invalid rows that an error lists
ALLOWED = (
    "the path of a CSV or Parquet file, a data frame (pandas, Polars, PyArrow, DuckDB or another that "
    "narwhals knows), a structured array, or a dictionary of columns"
)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that was found: what errors call it, its columns, and a function that takes some of them."""

    name: str
    columns: tuple[str, ...]
    take: Callable[[list[str]], "polars.DataFrame"]


def find(
    data: Any, likely: tuple[str, ...] = (), what: str = f"past experiments must be {ALLOWED}"
) -> Table:
    """The table that is given, in any of the forms `ALLOWED`.

    Columns that are `likely` to be there help to find a CSV's separator. Errors say `what` is allowed.
    """
    try:
        import polars
    except ImportError:
        raise needs("reading past experiments", "data") from None
    if isinstance(data, str | Path):
        path = Path(data)
        frame = _from_file(path, likely)
        return _of_polars(path.name, frame)
    if isinstance(data, np.ndarray) and data.dtype.names:
        data = {name: data[name] for name in data.dtype.names}
    if isinstance(data, Mapping):
        return _of_arrays(data)
    if isinstance(data, polars.DataFrame):
        return _of_polars("the table", data)
    return _of_frame(data, what)


def _from_file(path: Path, likely: tuple[str, ...]) -> "polars.DataFrame":
    """The file as it is, all columns of a CSV as text."""
    import polars

    try:
        if path.suffix.lower() == ".parquet":
            files.read(path, delimited.SIZE_LIMIT, only=4)
            return parquet.read(path)
        return delimited.read(path, likely)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror or error}") from None
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} is not a readable table: {first}") from None


def _of_polars(name: str, frame: "polars.DataFrame") -> Table:
    return Table(name, tuple(frame.columns), lambda names: _plain_objects(frame.select(names)))


def _of_arrays(given: Mapping[Any, Any]) -> Table:
    """A dictionary of lists or arrays, one for each column."""

    def take(names: list[str]) -> "polars.DataFrame":
        import polars

        found = []
        for name in names:
            found.append(_of_values(name, _plain_values(name, given[name])))
        lengths = {column.name: len(column) for column in found}
        if len({*lengths.values()}) > 1:
            words = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise InputError(f"columns must be equally long: {words}")
        return polars.DataFrame(found)

    for name, values in given.items():
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise InputError(f"the column {shown(name)} must be a list or an array, not {shown(values)}")
    return Table("the table", tuple(name for name in given if isinstance(name, str)), take)


def _plain_values(name: str, values: Any) -> Any:
    """Numbers as an array, everything else as a list."""
    if not isinstance(values, np.ndarray):
        return list(values)
    if values.ndim != 1:
        raise InputError(f"the column {name!r} must have one dimension, not {values.ndim}")
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if isinstance(values, np.ma.MaskedArray) or values.dtype.kind in "OU":
        return values.tolist()
    return np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))


def _of_frame(data: Any, what: str) -> Table:
    """A data frame or relation that narwhals knows, read lazily where that is possible."""
    try:
        import narwhals
    except ImportError:
        raise needs("reading a data frame", "data") from None
    try:
        found = narwhals.from_native(_with_index(data))
        columns = found.collect_schema().names()
    except narwhals.exceptions.DuplicateError as error:
        raise InputError(f"the table has several columns of the same name: {_in_line(error)}") from None
    except TypeError:
        raise InputError(f"{what}, not {shown(data)}") from None

    def take(names: list[str]) -> "polars.DataFrame":
        import polars

        chosen: Any = found.select(names)
        if chosen.implementation.is_pandas_like():
            return polars.DataFrame([_of_series(name, chosen[name]) for name in names])
        native = narwhals.to_native(chosen)
        if isinstance(native, polars.LazyFrame):
            native = native.collect()
        elif not isinstance(native, polars.DataFrame):
            native = polars.DataFrame(_as_stream(chosen))
        return _plain_objects(native)

    return Table("the table", tuple(name for name in columns if isinstance(name, str)), take)


def _as_stream(chosen: Any) -> Any:
    """A table that Polars reads through Arrow's interface, without PyArrow if possible."""
    native = chosen.to_native()
    if hasattr(native, "__arrow_c_stream__"):
        return native
    return (chosen.collect() if hasattr(chosen, "collect") else chosen).to_arrow()


def _with_index(data: Any) -> Any:
    """A pandas frame whose named index levels are columns, and whose columns have one level.

    Both come from `groupby` and `pivot`.
    """
    names = getattr(getattr(data, "index", None), "names", None)
    if names is not None and hasattr(data, "reset_index") and hasattr(data, "columns"):
        if any(isinstance(name, str) and name not in data.columns for name in names):
            data = data.reset_index()
        if getattr(data.columns, "nlevels", 1) > 1:
            flat = ["_".join(str(part) for part in label if part != "") for label in data.columns]
            data = data.set_axis(flat, axis=1)
    return data


def _of_series(name: str, series: Any) -> "polars.Series":
    """A column of a pandas-like frame. NaN, NaT and NA are missing."""
    import narwhals
    import polars

    missing = series.is_null().to_numpy()
    kind = series.dtype
    if kind.is_float() or (kind.is_integer() and not missing.any()):
        return _without_nan(polars.Series(name, np.ascontiguousarray(series.to_numpy())))
    if kind == narwhals.Datetime:
        if kind.time_zone:
            series = series.dt.replace_time_zone(None)
        return polars.Series(name, series.to_numpy())
    return _of_values(
        name, [None if gone else value for gone, value in zip(missing, series.to_list(), strict=True)]
    )


def _of_values(name: str, values: Any) -> "polars.Series":
    """A list or an array as a column; values of several kinds become text."""
    import polars

    try:
        column = polars.Series(name, values)
    except (TypeError, ValueError, OverflowError, polars.exceptions.PolarsError):
        column = polars.Series(name, [_text(name, value) for value in values], polars.String)
    if column.dtype == polars.Object:
        column = polars.Series(name, [_text(name, value) for value in values], polars.String)
    return _without_nan(column)


def _text(name: str, value: Any) -> str | None:
    """A single value as text, or None if it is missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float | Decimal) and value != value:
        return None
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Real | Decimal) or not isinstance(value, Iterable):
        return str(value)  # or a UUID, a date, a period
    raise InputError(f"the column {name!r} must hold text or numbers, not {type(value).__name__}")


def _plain_objects(frame: "polars.DataFrame") -> "polars.DataFrame":
    """The frame with objects as text and NaN as missing."""
    import polars

    columns = [
        _of_values(column.name, column.to_list()) if column.dtype == polars.Object else _without_nan(column)
        for column in frame
    ]
    return polars.DataFrame(columns)


def _without_nan(column: "polars.Series") -> "polars.Series":
    """The column with missing values where it has NaN, as a CSV has them."""
    return column.fill_nan(None) if column.dtype.is_float() else column


def plain(column: "polars.Series", dates: bool = False) -> "polars.Series":
    """A column of text or numbers, or with `dates` of dates or times; an error for any other."""
    import polars

    kind = column.dtype
    if kind in (polars.Categorical, polars.Enum):
        return column.cast(polars.String)
    fine = kind in (polars.String, polars.Boolean, polars.Null) or kind.is_numeric()
    if not fine and not (dates and kind in (polars.Date, polars.Datetime, polars.Time)):
        raise InputError(f"the column {column.name!r} must hold text or numbers, not {kind}")
    return column


def as_names(column: "polars.Series") -> "polars.Series":
    """The column as text, "" where nothing is given; the same for 3, 3.0 and "3"."""
    import polars

    column = plain(column, dates=True)
    if column.dtype.is_float() or column.dtype.is_decimal():
        values = column.cast(polars.Float64)
        whole = (values % 1 == 0).all() and (values.abs() < 2**53).all()
        column = column.cast(polars.Int64) if whole else column
    if column.dtype == polars.Datetime and (column.dt.time() == time(0)).all():
        column = column.dt.date()
    return column.cast(polars.String, strict=False).fill_null("")


def as_numbers(column: "polars.Series") -> "polars.Series":
    """The column as floating-point numbers: null where nothing is given, NaN for anything else."""
    import polars

    column = plain(column)
    if column.dtype == polars.String:
        column = delimited.plain_text(column)
    values = column.cast(polars.Float64, strict=False)
    return values.set(values.is_null() & column.is_not_null(), float("nan"))


def _in_line(error: Exception) -> str:
    return " ".join(str(error).split())


def refuse(bad: np.ndarray, what: str, name: str = "") -> None:
    """Raises an error if rows have something invalid. They are counted from 1; `name` is the table's."""
    rows = np.flatnonzero(bad) + 1
    if len(rows):
        listed = list_rows([str(row) for row in rows[:SHOWN]], len(rows), what)
        raise InputError(f"{name}: {listed}" if name else listed)


def list_rows(first: list[str], count: int, what: str) -> str:
    """So many rows with something invalid, of which the first are named.

    >>> list_rows(["1", "5"], 2, "no reward")
    '2 rows have no reward (1, 5)'
    """
    more = ", …" if count > len(first) else ""
    return f"{count} {'row has' if count == 1 else 'rows have'} {what} ({', '.join(first)}{more})"
