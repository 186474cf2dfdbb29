"""Tables of realised rewards."""

import dataclasses
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core.errors import InputError
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Instance, Prior, check_checksum, numbers, set_fields, trained_on
from gradband.problems.reward_tables import read_table


@pytree("table", dropped=("file",))
@dataclasses.dataclass(frozen=True, eq=False)
class Table(Prior):
    """Realised rewards [N, K, n] of past instances, whose means are unknown.

    Training draws instances from the table. With `held_out` = .2, the last fifth of them is kept
    for evaluation, which uses each instance once, in order.
    """

    kind: ClassVar[str] = "table"
    knows_means: ClassVar[bool] = False
    table: Any
    held_out: float = 0.2
    file: str = ""
    rewards: laws.Reward = laws.Realised()
    arms: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        table = numbers("the reward table", self.table, axes=3)
        set_fields(self, table=table.astype(np.float32), arms=table.shape[1])
        trained_on(len(table), self.held_out)

    @property
    def trained_on(self) -> int:
        """How many instances `sample` draws from; the others are held out."""
        return trained_on(len(self.table), self.held_out)

    @property
    def checksum(self) -> str:
        """A checksum that identifies the contents of the table."""
        return f"{zlib.crc32(np.ascontiguousarray(self.table).tobytes()):08x}"

    @property
    def unit(self) -> bool:
        return bool((self.table >= 0).all() and (self.table <= 1).all())

    def sample(self, key: Array) -> Array:
        """The number of an instance, drawn with equal probabilities."""
        return jax.random.randint(key, (), 0, self.trained_on)

    def means(self, instance: Instance) -> Array:
        raise InputError("the means of a reward table are unknown")

    def reward(self, key: Array, instance: Instance, arm: Array, t: Array) -> Array:
        return jnp.asarray(self.table)[instance, arm, t]

    def fresh(self) -> "Table":
        rest = self.table[self.trained_on :] if self.held_out > 0 else self.table
        return HeldOut(rest, held_out=0)

    def check_horizon(self, horizon: int) -> None:
        if horizon > self.table.shape[2]:
            raise InputError(f"the reward table has {self.table.shape[2]} rounds, the horizon is {horizon}")

    @classmethod
    def keys(cls) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("file",), ("held_out", "checksum")

    @classmethod
    def read(cls, given: dict[str, Any], rewards: laws.Reward | None, find: Callable[[Any], Path]) -> Self:
        if rewards is not None:
            raise InputError("a table prior contains its rewards: remove [rewards]")
        prior = cls(read_table(find(given["file"])), given.get("held_out", cls.held_out), given["file"])
        check_checksum(prior, given)
        return prior

    def describe(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("kind", "file", "held_out", "checksum")}


@pytree("table", dropped=("file",))
@dataclasses.dataclass(frozen=True, eq=False)
class HeldOut(Table):
    """The instances of a table that were kept for evaluation, in their order."""

    @property
    def size(self) -> int:
        return len(self.table)

    def nth(self, index: Array, key: Array) -> Array:
        return index % self.size
