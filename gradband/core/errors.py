"""Errors that a user can act on: one sentence that says what is wrong, what is allowed, what was given."""

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

LARGEST = 3.4e38  # about the largest float32
MOST = 2**31 - 1  # the largest 32-bit integer
MOST_ARMS = 1_000_000
MOST_DIMS = 10_000


class InputError(ValueError):
    """Invalid input, detected before anything is compiled."""


class StoppedError(RuntimeError):
    """An orderly interruption, with the exit status that reports it."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class OthersEndedError(RuntimeError):
    """Another process of a distributed run has ended, so this one must stop."""


def unknown(what: str, given: Any, allowed: Iterable[str]) -> InputError:
    """The error for an unknown name, with the closest allowed one.

    >>> print(unknown("baseline", "slef", ["none", "self"]))
    unknown baseline 'slef': did you mean 'self'? Known: none, self
    """
    import difflib  # here: a player that meets no error starts sooner

    names = list(allowed)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.5) if isinstance(given, str) else []
    hint = f"did you mean '{near[0]}'? Known" if near else "known"
    return InputError(f"unknown {what} {shown(given)}: {hint}: {', '.join(names)}")


def shown(value: Any) -> str:
    """The value on one short line, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write out integers of more than 4300 digits
        text = "a huge number"
    except RecursionError:
        text = "something deeply nested"
    text = " ".join(line.strip() for line in text.splitlines())
    return text if len(text) <= 80 else f"{text[:77]}..."


def whole(what: str, value: Any, least: int = 1, most: int = MOST) -> int:
    """A whole number from `least` to `most`, or an error that names it."""
    found = int(value) if not isinstance(value, bool) and isinstance(value, Integral) else None
    if found is None or not least <= found <= most:
        limit = f" and at most {most}" if found is not None and found > most else ""
        raise InputError(f"{what} must be a whole number of at least {least}{limit}, not {shown(value)}")
    return found


def flag(what: str, value: Any) -> bool:
    """True or False, or an error that names it."""
    if not isinstance(value, bool):
        raise InputError(f"{what} must be true or false, not {shown(value)}")
    return value


def number_of_arms(value: Any, least: int = 1) -> int:
    """A whole number, small enough for arrays with an entry per arm."""
    return whole("arms", value, least, MOST_ARMS)


def number_of_dims(what: str, value: Any, least: int = 1) -> int:
    """A whole number of features, small enough for a belief's covariance."""
    return whole(what, value, least, MOST_DIMS)


def positive(what: str, value: Any) -> float:
    """A finite number above 0, or an error that names it."""
    if number(what, value) <= 0:
        raise InputError(f"{what} must be above 0, not {shown(value)}")
    return float(value)


def number(what: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number in [low, high], or an error that names it."""
    found: Any = value if not isinstance(value, bool) and isinstance(value, Real) else math.nan
    # Compared before it is converted: Python's integers may be larger than any float.
    if not (-LARGEST <= found <= LARGEST and low <= found <= high):
        least = "" if low == -math.inf else f" of at least {low:g}"
        bounds = least if high == math.inf else f" in [{low:g}, {high:g}]"
        raise InputError(f"{what} must be a finite number{bounds}, not {shown(value)}")
    return float(found)
