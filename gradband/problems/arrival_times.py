"""Delays measured in past experiments: how many pulls came between a decision and its reward."""

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core.errors import InputError
from gradband.problems import frames
from gradband.problems.delay import MeasuredDelay

if TYPE_CHECKING:
    import polars

POINTS = 40  # of the distribution

UNITS = 1_000_000  # a second, in the microseconds of Polars


def measure_delay(data: Any, experiment: str, decided: str, rewarded: str) -> tuple[MeasuredDelay, str]:
    """The delay in a table with one row per pull, and a sentence about it.

    A reward that came before the next decision of the same experiment came within one pull, and so on.
    After the last decision, time is converted at the experiment's mean rate. Rows without the time of a
    reward only count in that rate: their rewards are assumed to be as late as others.

    Args:
        data: A table in any form that `frames.find` knows.
        experiment: Column with the experiment.
        decided: Column with the time of the decision: dates with times, or seconds.
        rewarded: Column with the time at which the reward was known; empty where it never was.
    """
    source = frames.find(data, (experiment, decided, rewarded))
    missing = [repr(name) for name in (experiment, decided, rewarded) if name not in source.columns]
    if missing:
        raise InputError(f"{source.name} has no column {', '.join(missing)}: a delay needs both times")
    frame = source.take([experiment, decided, rewarded])
    start, end = (_seconds(frame[name]) for name in (decided, rewarded))
    frames.refuse(np.isnan(start), f"no time in {decided}", source.name)
    frames.refuse(end < start, f"an earlier time in {rewarded} than in {decided}", source.name)
    known = ~np.isnan(end)
    if not known.any():
        raise InputError(f"{source.name} has no time in {rewarded} at all: there is no delay to measure")
    owner = frames.as_names(frame[experiment]).rank("dense").to_numpy().astype(np.int64)
    late = _in_pulls(owner, start, end)[known]
    words = f"Half of the rewards come within {np.median(late):.0f} pulls, 90 % of them within "
    words += f"{np.quantile(late, 0.9):.0f}."
    if not known.all():
        words += f" {100 * (~known).mean():.0f} % of the rows have no time of a reward."
    return _distribution(late), words


def _in_pulls(owner: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The delay of each row in pulls, NaN without the time of a reward."""
    found = np.full(len(start), np.nan)
    order = np.lexsort((start, owner))
    edges = np.flatnonzero(np.diff(owner[order], prepend=-1, append=-1))
    for first, after in zip(edges[:-1], edges[1:], strict=True):
        rows = order[first:after]
        times, ends = start[rows], end[rows]
        length = times[-1] - times[0]
        rate = (len(rows) - 1) / length if length > 0 else 0.0
        later = np.searchsorted(times, ends, "right") - 1 - np.arange(len(rows))
        found[rows] = 1 + np.maximum(later, 0) + rate * np.maximum(ends - times[-1], 0.0)
    return np.where(np.isnan(end), np.nan, found)


def _distribution(late: np.ndarray) -> MeasuredDelay:
    """The distribution of these delays, by some of its quantiles."""
    shares = np.arange(1, POINTS + 1) / POINTS
    pulls = np.quantile(late, shares, method="inverted_cdf").round(1)
    last = np.append(np.diff(pulls) > 0, True)  # of equal quantiles the greatest share
    return MeasuredDelay(tuple(pulls[last].tolist()), tuple(shares[last].tolist()))


def _seconds(column: "polars.Series") -> np.ndarray:
    """Times as seconds, NaN where none is given; an error for text that is no time."""
    import polars

    if column.dtype in (polars.Date, polars.Datetime):
        return column.dt.timestamp("us").cast(polars.Float64).to_numpy() / UNITS
    if column.dtype == polars.String:
        text = column.str.strip_chars()
        text = text.set(text == "", None)
        with contextlib.suppress(polars.exceptions.ComputeError):  # not dates: seconds, or an error below
            times = text.str.to_datetime(strict=False, time_unit="us")
            if times.null_count() == text.null_count():
                return _seconds(times)
    numbers = frames.as_numbers(column)
    if numbers.is_nan().any():
        row = int(np.flatnonzero(numbers.is_nan().fill_null(value=False).to_numpy())[0]) + 1
        raise InputError(
            f"the column {column.name!r} must hold times such as 2024-05-01 13:45:00, or seconds: row "
            f"{row} does not"
        )
    return numbers.fill_null(float("nan")).to_numpy()
