"""Where tables keep what belongs to a round, an arm's pulls and its ones."""

from typing import Any

import numpy as np

LONGEST = 400  # rounds of a table with a bit for each state of two arms: 130 megabytes


def place(t: Any, pulls: Any, ones: Any) -> Any:
    """The entry for `ones` in `pulls` pulls of an arm before round t, with ones ≤ pulls ≤ t.

    Rounds come first: a round of play reads one slice of (t + 1)(t + 2)/2 entries, which stays in a core's
    cache. Numbers and arrays of any kind will do; 32-bit integers up to t = 1600.
    """
    return t * (t + 1) // 2 * (t + 2) // 3 + pulls * (pulls + 1) // 2 + ones


def size(horizon: int) -> int:
    """Entries of a table for n rounds."""
    return horizon * (horizon + 1) * (horizon + 2) // 6


def cell(t: Any, pulls: Any, ones: Any, other_ones: Any) -> Any:
    """The number of a state of two arms among those before round t: of an arm `ones` in `pulls` pulls, and
    of the other `other_ones` in the rest. Pulls come first, then ones.

    >>> [cell(2, pulls, 0, 0) for pulls in (0, 1, 2)]
    [0, 3, 7]
    """
    before = (t + 2) * (pulls * (pulls + 1) // 2) - pulls * (pulls + 1) * (2 * pulls + 1) // 6
    return before + ones * (t - pulls + 1) + other_ones


def byte_starts(rounds: int) -> np.ndarray:
    """Where a round's bits begin, in bytes, in a table of one bit for each state of two arms, and its end.

    >>> byte_starts(3)
    array([0, 1, 2, 4])
    """
    t = np.arange(rounds, dtype=np.int64)
    states = (t + 1) * (t + 2) * (t + 3) // 6
    return np.concatenate([[0], np.cumsum(-(-states // 8))])
