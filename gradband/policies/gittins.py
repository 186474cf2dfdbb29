"""The Gittins index of a finite horizon (Gittins, 1979)."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np

from gradband.core import resources
from gradband.policies.base import Array, Believing, Counts, Index, InputError, Params, Spec
from gradband.solvers.layout import place, size

LONGEST = 1400  # rounds: a table of a gigabyte

_last: dict[tuple[Any, ...], np.ndarray] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndexTable(Index):
    """A policy with a table of indices, which is computed once and kept in the user's cache folder."""

    bounded: ClassVar[bool] = True
    trained: ClassVar[bool] = False
    quick: ClassVar[int]
    """the longest horizon whose table takes only a few seconds"""

    def key(self) -> dict[str, Any]:
        """What the table depends on."""
        raise NotImplementedError

    def compute(self, progress: Callable[[float], None] | None) -> np.ndarray:
        """The table itself."""
        raise NotImplementedError

    def table(self, progress: Callable[[float], None] | None = None) -> np.ndarray:
        """The last table again, a stored one, or a new one."""
        from gradband.solvers.store import stored

        key = self.key()
        place = self.name, *key.values()
        if place not in _last:
            found = stored(self.name, key, lambda: self.compute(progress))
            _last.clear()
            _last[place] = found
        return _last[place]

    def init(self, key: Array) -> Params:
        import jax.numpy as jnp

        return {"table": jnp.asarray(self.table())}

    def prepare(self, progress: Callable[[float], None]) -> None:
        self.table(progress)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gittins(IndexTable, Believing):
    """The arm with the greatest Gittins index for the remaining rounds; ties are broken at random.

    An arm's belief is Beta(a + ones, b + zeros); rewards strictly between 0 and 1 are rounded at random.
    For a finite horizon without discounting, the index policy is an excellent heuristic but not optimal.

    >>> policy = Gittins().bind(arms=2, horizon=10)
    >>> policy.init(None)["table"].shape
    (220,)
    """

    name: ClassVar[str] = "gittins"
    quick: ClassVar[int] = 400

    def check(self) -> None:
        super().check()
        if self.horizon > LONGEST:
            needed = resources.in_bytes(2 * size(self.horizon))
            raise InputError(
                f"the table of Gittins indices for {self.horizon} rounds would take {needed}: the longest "
                f"horizon is {LONGEST}"
            )

    def compiled(self) -> Self:
        return dataclasses.replace(self, a=1.0, b=1.0)  # only the table depends on them

    def specs(self) -> dict[str, Spec]:
        return {"table": Spec((size(self.horizon),), np.uint16)}

    def key(self) -> dict[str, Any]:
        from gradband.solvers import gittins

        return {"a": float(self.a), "b": float(self.b), "horizon": self.horizon, **gittins.SETTINGS}

    def compute(self, progress: Callable[[float], None] | None) -> np.ndarray:
        from gradband.solvers import gittins

        needed = 4 * size(self.horizon)
        resources.require(needed, "this table of Gittins indices", "choose a shorter horizon")
        return gittins.finite_horizon(self.a, self.b, self.horizon, resources.cores(), progress)[0]

    def index(self, params: Params, state: Counts) -> Array:
        pulls, ones, t = state.as_integers()
        return params["table"][place(t, pulls, ones)].astype(np.int32)
