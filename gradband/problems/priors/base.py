"""The shape that all priors share."""

import dataclasses
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from jax import Array

from gradband.core.arrays import pick
from gradband.core.errors import LARGEST, InputError
from gradband.problems import rewards as laws

Instance = Any
"""One bandit: whatever `sample` of its prior returns, a pytree of arrays."""


def checksum(*arrays: np.ndarray) -> str:
    """A checksum that identifies the contents of a file."""
    found = 0
    for array in arrays:
        found = zlib.crc32(np.ascontiguousarray(array).tobytes(), found)
    return f"{found:08x}"


class Prior:
    """A distribution over problem instances P with `arms` arms. Here an instance is its means [K]."""

    kind: ClassVar[str]
    knows_means: ClassVar[bool] = True
    arms: int
    rewards: laws.Reward

    @property
    def label(self) -> str:
        """What a report calls it."""
        return self.kind

    @property
    def unit(self) -> bool:
        """Whether all rewards lie in [0, 1]."""
        return self.rewards.unit

    @property
    def size(self) -> int | None:
        """How many instances there are, if they have an order."""
        return None

    def sample(self, key: Array) -> Instance:
        """An instance."""
        raise NotImplementedError

    def nth(self, index: Array, key: Array) -> Instance:
        """The index-th instance of a batch: sampled with its key, unless they have an order."""
        return self.sample(key)

    def means(self, instance: Instance) -> Array:
        """Mean rewards μ [K] of an instance."""
        return instance

    def reward(self, key: Array, instance: Instance, arm: Array, t: Array) -> Array:
        """The reward Y[arm, t]; the same key gives all arms the same noise."""
        return self.rewards.draw(key, pick(self.means(instance), arm))

    def fresh(self) -> "Prior":
        """The prior to evaluate on: itself, as new keys give new instances."""
        return self

    def check_horizon(self, horizon: int) -> None:
        """Raises an error for a horizon that the prior does not support."""

    @classmethod
    def keys(cls) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Keys that a problem file must give and those that it may: fields without and with a default."""
        given = [field for field in _fields(cls) if field.init and field.name != "rewards"]
        optional = [field.name for field in given if field.default is not dataclasses.MISSING]
        return tuple(field.name for field in given if field.name not in optional), tuple(optional)

    @classmethod
    def read(cls, given: dict[str, Any], rewards: laws.Reward | None, find: Callable[[Any], Path]) -> Self:
        """The prior that a problem file says.

        Args:
            given: What the file says, with the prior's `keys`.
            rewards: The file's rewards, or None for the usual ones.
            find: The path of a file that the problem file names.
        """
        return cls(**given, **({} if rewards is None else {"rewards": rewards}))

    def describe(self) -> dict[str, Any]:
        """This prior as a table of a problem file."""
        required, optional = self.keys()
        found = {name: np.asarray(getattr(self, name)).tolist() for name in (*required, *optional)}
        return {"kind": self.kind, **found}


def _fields(prior: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(prior)


def trained_on(count: int, held_out: float) -> int:
    """How many of a list of instances are for training; the last ones, a share `held_out`, are not.

    >>> trained_on(10, 0.2), trained_on(3, 0.01), trained_on(5, 0)
    (8, 2, 5)
    """
    return count - int(np.clip(round(count * held_out), held_out > 0, count - 1))


def numbers(what: str, values: Any, axes: int) -> np.ndarray:
    """Finite numbers with this many axes, none of them empty, or an error that names them."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be numbers in rows of equal length") from None
    if array.dtype.kind not in ("fiub" if isinstance(values, np.ndarray) else "fiu"):
        raise InputError(f"{what} must be numbers in rows of equal length")
    array = array.astype(np.float64)
    if array.ndim != axes or 0 in array.shape:
        raise InputError(f"{what} must have {axes} axes, none of them empty, not the shape {array.shape}")
    fine = np.abs(array) <= LARGEST
    if not fine.all():
        first = tuple(int(i) for i in np.argwhere(~fine)[0])
        raise InputError(f"{what} must be finite, but entry {list(first)} is {array[first]}")
    return array
