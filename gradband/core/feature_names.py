"""What features are called, and how values by these names become numbers in their order."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from gradband.core.errors import InputError, number, shown, unknown

MOST = 10_000
INTERCEPT = "intercept"


@dataclasses.dataclass(frozen=True)
class FeatureNames:
    """Names of features in their order; if the first is `intercept`, it is always 1.

    A name as `device=web` is that of a 1 if the value of `device` is `web`, and a 0 if not. With `centre`
    and `spread`, numbers for all names but the intercept, a feature is (value − centre) / spread.

    >>> names = FeatureNames(("intercept", "age", "device=web"), ("device=app",))
    >>> names.encode({"age": 3, "device": "web"})
    [1.0, 3.0, 1.0]
    >>> FeatureNames(("age",), centre=(40,), spread=(10,)).encode({"age": 65})
    [2.5]
    """

    columns: tuple[str, ...]
    bases: tuple[str, ...] = ()
    """values of text that have no feature of their own, such as device=app"""
    centre: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()

    @classmethod
    def read(cls, given: Any) -> Self:
        """From what `describe` returns, such as a table of a problem file."""
        if isinstance(given, cls):
            return given
        found = given if isinstance(given, dict) and "columns" in given else {}
        entries = [field.name for field in dataclasses.fields(cls)]
        if other := [entry for entry in found if entry not in entries]:
            raise unknown("entry of features", other[0], entries)
        lists = [found.get(name, []) for name in ("columns", "bases")]
        fine = all(isinstance(each, list | tuple) and len(each) <= MOST for each in lists) and lists[0]
        if not fine or not all(isinstance(name, str) and name for each in lists for name in each):
            raise InputError(f"features must be lists of names, columns and bases, not {shown(given)}")
        if len({name for each in lists for name in each}) < sum(map(len, lists)):
            raise InputError("features must have different names")
        names = cls(*map(tuple, lists))
        units = (_units(name, found.get(name, []), len(names.varying)) for name in ("centre", "spread"))
        names = cls(names.columns, names.bases, *units)
        if len(names.centre) != len(names.spread) or not all(each > 0 for each in names.spread):
            raise InputError("features need a centre and a spread above 0 for each name, or neither")
        return names

    def describe(self) -> dict[str, list[Any]]:
        """Ready for JSON or TOML."""
        units = {"centre": list(self.centre), "spread": list(self.spread)} if self.centre else {}
        return {"columns": list(self.columns), "bases": list(self.bases)} | units

    @property
    def varying(self) -> tuple[str, ...]:
        """The names of all features but the intercept."""
        return self.columns[self.columns[0] == INTERCEPT :]

    @property
    def names(self) -> frozenset[str]:
        """Of the values that `encode` takes."""
        return frozenset(name.partition("=")[0] for name in (*self.varying, *self.bases))

    def encode(self, given: Mapping[str, Any]) -> list[float]:
        """The features in their order, from values by the names of the columns."""
        known = dict.fromkeys(self.varying, 0.0)
        if {*given} != self.names:
            wanted, had = (", ".join(sorted(map(str, each))) for each in (self.names, given))
            raise InputError(f"features need values of {wanted}, not of {had[:200]}")
        for name, value in given.items():
            if name in known:
                known[name] = number(name, value)
            elif f"{name}={value}" in known:
                known[f"{name}={value}"] = 1.0
            elif f"{name}={value}" not in self.bases:
                values = [each for each in (*self.bases, *known) if each.startswith(f"{name}=")]
                raise InputError(f"no experiment has {name}={value}: it is one of {', '.join(values)}")
        found = list(known.values())
        if self.centre:
            units = zip(found, self.centre, self.spread, strict=True)
            found = [(value - centre) / spread for value, centre, spread in units]
        return [1.0] * (self.columns[0] == INTERCEPT) + found


def _units(what: str, given: Any, count: int) -> tuple[float, ...]:
    """Numbers for all names, or none."""
    if not isinstance(given, list | tuple) or len(given) not in (0, count):
        raise InputError(f"{what} of features must be {count} numbers, one per name, not {shown(given)}")
    return tuple(number(f"{what} of features", each) for each in given)
