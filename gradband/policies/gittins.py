"""The Gittins index of a finite horizon (Gittins, 1979)."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np

from gradband.core import resources
from gradband.policies.base import Array, Believing, Counts, Index, InputError, Params, Spec
from gradband.solvers.layout import place, size

LONGEST = 1400  # rounds: a table of a gigabyte
QUICK = 400  # rounds: a table takes a few seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gittins(Index, Believing):
    """The arm with the greatest Gittins index for the remaining rounds; ties are broken at random.

    An arm's belief is Beta(a + ones, b + zeros); rewards strictly between 0 and 1 are rounded at random.
    For a finite horizon without discounting, the index policy is an excellent heuristic but not optimal.
    Its table of indices is computed once and kept in the user's cache folder.

    >>> policy = Gittins().bind(arms=2, horizon=10)
    >>> policy.init(None)["table"].shape
    (220,)
    """

    name: ClassVar[str] = "gittins"
    bounded: ClassVar[bool] = True
    trained: ClassVar[bool] = False

    def check(self) -> None:
        super().check()
        if self.horizon > LONGEST:
            entries = size(self.horizon)
            needed = f"{entries:.2g} entries, {resources.in_bytes(2 * entries)}"
            what = f"a table of Gittins indices for {self.horizon} rounds has {needed}"
            raise InputError(f"{what}: the longest horizon is {LONGEST}")

    def compiled(self) -> Self:
        return dataclasses.replace(self, a=1.0, b=1.0)  # only the table depends on them

    def specs(self) -> dict[str, Spec]:
        return {"table": Spec((size(self.horizon),), np.uint16)}

    def init(self, key: Array) -> Params:
        import jax.numpy as jnp

        return {"table": jnp.asarray(table(self.a, self.b, self.horizon))}

    def prepare(self, progress: Callable[[float], None]) -> None:
        table(self.a, self.b, self.horizon, progress)

    def index(self, params: Params, state: Counts) -> Array:
        pulls, ones, t = (x.astype(np.int32) for x in (state.pulls, state.sums, state.rounds))
        return params["table"][place(t, pulls, ones)].astype(np.int32)


def is_quick(policy: Gittins) -> bool:
    """Whether a bound policy's table takes only seconds to compute."""
    return policy.horizon <= QUICK


_last: dict[tuple[float, float, int], np.ndarray] = {}


def table(a: float, b: float, horizon: int, progress: Callable[[float], None] | None = None) -> np.ndarray:
    """The policy's table of indices: that of the last call, a stored one, or a new one."""
    if (a, b, horizon) not in _last:
        from gradband.solvers import gittins
        from gradband.solvers.store import stored

        resources.require(4 * size(horizon), "this table of Gittins indices", "take a shorter horizon")
        key: dict[str, Any] = {"a": float(a), "b": float(b), "horizon": horizon, **gittins.SETTINGS}

        def make() -> np.ndarray:
            return gittins.finite_horizon(a, b, horizon, resources.cores(), progress)[0]

        found = stored("gittins", key, make)
        _last.clear()
        _last[a, b, horizon] = found
    return _last[a, b, horizon]
