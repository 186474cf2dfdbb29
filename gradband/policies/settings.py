"""Types of settings that say which values are allowed, as in `share: Share = 0.5`."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Annotated, Any

from gradband.core.errors import flag, number, positive, unknown, whole

Check = Callable[[str, Any], Any]
"""takes a setting's name for messages and its value, and raises an error if it is not allowed"""


def in_range(low: float, high: float = math.inf) -> Check:
    """Allows numbers in [low, high]."""
    return lambda what, value: number(what, value, low, high)


def one_of(*known: str) -> Check:
    """Allows one of these words."""

    def check(what: str, value: Any) -> None:
        if value not in known:
            raise unknown(what, value, known)

    return check


Flag = Annotated[bool, flag]
Number = Annotated[float, number]
Positive = Annotated[float, positive]
Share = Annotated[float, in_range(0, 1)]
Count = Annotated[int, functools.partial(whole, least=0)]
Whole = Annotated[int, whole]


def check_settings(given: Any, owner: str) -> None:
    """Raises an error for the first setting of a dataclass with a value that its type does not allow."""
    for name, check in _checks(given.__class__):
        check(f"{name} of {owner}", getattr(given, name))


@functools.cache
def _checks(kind: Any) -> list[tuple[str, Check]]:
    """The settings of a class with their checks; another default in a subclass keeps those of the base."""
    bases = filter(dataclasses.is_dataclass, reversed(kind.__mro__))
    types = [(field.name, field.type) for base in bases for field in dataclasses.fields(base)]
    found = [(name, check) for name, given in types for check in getattr(given, "__metadata__", ())]
    return list(dict.fromkeys(entry for entry in found if callable(entry[1])))
