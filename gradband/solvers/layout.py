"""Where tables keep the entry of a round, an arm's pulls and its ones; the check of beta shapes."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from gradband.core.errors import positive

LONGEST = 400  # rounds of a table with one bit per state of two arms: 130 megabytes


def check_shapes(a: Iterable[float], b: Iterable[float]) -> None:
    """Raises an error unless all parameters of the arms' beta priors are positive."""
    for name, values in (("a", a), ("b", b)):
        for value in values:
            positive(f"{name} of a beta prior", value)


def code(pulls: Any, ones: Any) -> Any:
    """The number of an arm's state, with ones ≤ pulls.

    >>> [code(pulls, ones) for pulls in range(3) for ones in range(pulls + 1)]
    [0, 1, 2, 3, 4, 5]
    """
    return pulls * (pulls + 1) // 2 + ones


def states_up_to(most: int) -> tuple[np.ndarray, np.ndarray]:
    """Pulls and ones of all states with up to so many pulls, by their code."""
    pulls = np.repeat(np.arange(most + 1), np.arange(1, most + 2))
    return pulls, np.arange(len(pulls)) - code(pulls, 0)


def place(t: Any, pulls: Any, ones: Any) -> Any:
    """The entry for `ones` in `pulls` pulls of an arm before round t, with ones ≤ pulls ≤ t.

    Rounds come first: a round of play reads one slice of (t + 1)(t + 2)/2 entries, which stays in a core's
    cache. Takes numbers and arrays of any kind; 32-bit integers suffice up to t = 1600.
    """
    return t * (t + 1) // 2 * (t + 2) // 3 + pulls * (pulls + 1) // 2 + ones


def size(horizon: int) -> int:
    """Entries of a table for n rounds."""
    return horizon * (horizon + 1) * (horizon + 2) // 6


def pair_place(t: Any, pulls: Any) -> Any:
    """The entry for so many pulls of an arm before round t, with pulls ≤ t, where rewards don't matter.

    >>> [pair_place(t, pulls) for t in range(3) for pulls in range(t + 1)]
    [0, 1, 2, 3, 4, 5]
    """
    return t * (t + 1) // 2 + pulls


def pairs(horizon: int) -> int:
    """Entries of such a table for n rounds."""
    return horizon * (horizon + 1) // 2


def cell(t: Any, pulls: Any, ones: Any, other_ones: Any) -> Any:
    """The number of a state of two arms before round t: one arm has `ones` in `pulls` pulls, the other has
    `other_ones` in the rest. Ordered by pulls, then by ones.

    >>> [cell(2, pulls, 0, 0) for pulls in (0, 1, 2)]
    [0, 3, 7]
    """
    before = (t + 2) * (pulls * (pulls + 1) // 2) - pulls * (pulls + 1) * (2 * pulls + 1) // 6
    return before + ones * (t - pulls + 1) + other_ones


def starts(rounds: int) -> np.ndarray:
    """Where each round begins in a table with one entry per state of two arms, and the end.

    >>> starts(3)
    array([ 0,  1,  5, 15])
    """
    t = np.arange(rounds, dtype=np.int64)
    return np.concatenate([[0], np.cumsum((t + 1) * (t + 2) * (t + 3) // 6)])


def byte_starts(rounds: int) -> np.ndarray:
    """The byte where each round's bits begin in a table with one bit per state of two arms, and the end.

    >>> byte_starts(3)
    array([0, 1, 2, 4])
    """
    t = np.arange(rounds, dtype=np.int64)
    states = (t + 1) * (t + 2) * (t + 3) // 6
    return np.concatenate([[0], np.cumsum(-(-states // 8))])
