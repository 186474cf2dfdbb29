"""Where tables keep what belongs to a round, an arm's pulls and its ones."""

from typing import Any


def place(t: Any, pulls: Any, ones: Any) -> Any:
    """The entry for `ones` in `pulls` pulls of an arm before round t, with ones ≤ pulls ≤ t.

    Rounds come first: a round of play reads one slice of (t + 1)(t + 2)/2 entries, which stays in a core's
    cache. Numbers and arrays of any kind will do; 32-bit integers up to t = 1600.
    """
    return t * (t + 1) // 2 * (t + 2) // 3 + pulls * (pulls + 1) // 2 + ones


def size(horizon: int) -> int:
    """Entries of a table for n rounds."""
    return horizon * (horizon + 1) * (horizon + 2) // 6
