"""Errors that a user can act on: one sentence that says what is wrong, what is allowed, what was given."""

import difflib
import math
from collections.abc import Iterable
from typing import Any


class InputError(ValueError):
    """Bad input, noticed before anything is compiled."""


def unknown(what: str, given: str, allowed: Iterable[str]) -> InputError:
    """The error for a name that is not among the allowed ones, with the nearest of them.

    >>> print(unknown("baseline", "slef", ["none", "self"]))
    unknown baseline 'slef': did you mean 'self'? Known: none, self
    """
    names = list(allowed)
    near = difflib.get_close_matches(str(given), names, n=1, cutoff=0.5)
    hint = f" did you mean '{near[0]}'?" if near else ""
    return InputError(f"unknown {what} '{given}':{hint} Known: {', '.join(names)}")


def whole(what: str, value: Any, least: int = 1) -> int:
    """A whole number that is at least `least`, or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{what} must be a whole number of at least {least}, not {value!r}")
    return value


def number(what: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number in [low, high], or an error that names it."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (math.isfinite(value) and low <= value <= high)
    ):
        bounds = f" in [{low:g}, {high:g}]" if (low, high) != (-math.inf, math.inf) else ""
        raise InputError(f"{what} must be a finite number{bounds}, not {value!r}")
    return float(value)
