"""Tables with one row per experiment, and columns of pulls and successes for each arm."""

import re
from typing import TYPE_CHECKING

import numpy as np

from gradband.core.errors import InputError
from gradband.problems import frames

if TYPE_CHECKING:
    import polars

BETWEEN = (
    " _-.:/|()[]"  # between an arm's name and what is counted, as in pulls_A, "A: pulls" or "pulls (A)"
)
ROW = "row of the table"
Pairs = dict[str, tuple[str, str]]


def pairs_of(there: tuple[str, ...], pulls: str, successes: str) -> Pairs:
    """Columns of pulls and successes by arm; empty if there are not two arms.

    >>> pairs_of(("test", "pulls_A", "wins_A", "pulls_B", "wins_B"), "pulls", "wins")
    {'A': ('pulls_A', 'wins_A'), 'B': ('pulls_B', 'wins_B')}
    """
    shown, won = ({_arm(name, word): name for name in there} for word in (pulls, successes))
    found = {arm: (shown[arm], won[arm]) for arm in shown if arm and arm in won}
    if len(found) < 2:
        return {}
    single = [name for arm, name in (shown | won).items() if arm and arm not in found]
    if single:
        raise InputError(
            f"the column {single[0]!r} has no partner: each arm needs one of {pulls} and one of {successes}"
        )
    return found


def _arm(name: str, word: str) -> str:
    """The arm in a column's name, or "" if the column does not count this word."""
    around = re.escape(BETWEEN)
    after = re.fullmatch(rf"{re.escape(word)}(?=[{around}\dA-Z])[{around}]*(.+?)[{around}]*", name)
    before = re.fullmatch(rf"[{around}]*(.+?)[{around}]+{re.escape(word)}", name)
    match = after or before
    return match[1] if match else ""


def unpivot(
    frame: "polars.DataFrame", pairs: Pairs, names: tuple[str, str, str, str]
) -> tuple["polars.DataFrame", np.ndarray]:
    """One row per arm, and the row of the table [N] that each comes from.

    `names` are those of the columns with experiments, arms, pulls and successes. An arm that is empty or
    was never shown in an experiment is not part of it.
    """
    import polars

    pieces = []
    for arm, columns in pairs.items():
        pulls, successes = (frame[name] for name in columns)
        seen = [frames.as_numbers(column) for column in (pulls, successes)]
        absent = np.all([values.fill_null(0).fill_nan(1).to_numpy() == 0 for values in seen], axis=0)
        labels = polars.Series([arm]).new_from_index(0, len(frame))
        columns_here = zip(names, (frame[names[0]], labels, pulls, successes), strict=True)
        piece = polars.DataFrame([column.alias(name) for name, column in columns_here])
        pieces.append(piece.with_row_index(ROW, 1).filter(polars.Series(~absent)))
    texts = [name for name in names[2:] if any(piece[name].dtype == polars.String for piece in pieces)]
    alike = [piece.with_columns(polars.col(texts).cast(polars.String)) for piece in pieces]
    found = polars.concat(alike, how="vertical_relaxed").sort(ROW, maintain_order=True)
    return found.drop(ROW), found[ROW].to_numpy()
