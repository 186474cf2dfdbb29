"""The Gittins index of a finite horizon with normal beliefs."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from gradband.core import resources
from gradband.policies.base import Array, Counts, Index, InputError, Params, Spec
from gradband.policies.normal import Normal
from gradband.solvers.layout import pair_place, pairs

LONGEST = 4000  # rounds: a table of 32 megabytes, and minutes of work
QUICK = 1000  # rounds: a table takes a few seconds
PRECISIONS = 1e-3, 1e12  # of the prior, relative to that of a reward


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianGittins(Index, Normal):
    """The arm with the greatest Gittins index of its normal posterior for the remaining rounds.

    The belief about an arm is N(mean, within²) at first, and rewards have the standard deviation `sd`.
    The index is the posterior mean plus sd times an entry of a table, which depends on `within` / `sd` and
    the horizon alone. It is computed once and kept in the user's cache folder.

    >>> GaussianGittins().bind(arms=2, horizon=10).init(None)["table"].shape
    (55,)
    """

    name: ClassVar[str] = "gittins-gaussian"
    bounded: ClassVar[bool] = True
    trained: ClassVar[bool] = False

    def check(self) -> None:
        super().check()
        if self.horizon > LONGEST:
            what = f"a table of Gittins indices for {self.horizon} rounds takes long to compute"
            raise InputError(f"{what}: the longest horizon is {LONGEST}")
        if not PRECISIONS[0] <= self.precision <= PRECISIONS[1]:
            low, high = PRECISIONS
            raise InputError(
                f"(sd / within)² of {self.name} must lie in [{low:g}, {high:g}], not {self.precision:g}"
            )

    @property
    def precision(self) -> float:
        """How many rewards the prior is worth."""
        return (self.sd / self.within) ** 2

    def specs(self) -> dict[str, Spec]:
        return {"table": Spec((pairs(self.horizon),))}

    def init(self, key: Array) -> Params:
        import jax.numpy as jnp

        return {"table": jnp.asarray(table(self.precision, self.horizon))}

    def prepare(self, progress: Callable[[float], None]) -> None:
        table(self.precision, self.horizon, progress)

    def index(self, params: Params, state: Counts) -> Array:
        pulls, t = (x.astype(np.int32) for x in (state.pulls, state.rounds))
        return self.posterior(state)[0] + self.sd * params["table"][pair_place(t, pulls)]


def is_quick(policy: GaussianGittins) -> bool:
    """Whether a bound policy's table takes only seconds to compute."""
    return policy.horizon <= QUICK


_last: dict[tuple[float, int], np.ndarray] = {}


def table(precision: float, horizon: int, progress: Callable[[float], None] | None = None) -> np.ndarray:
    """The policy's table of indices: that of the last call, a stored one, or a new one."""
    if (precision, horizon) not in _last:
        from gradband.solvers import gaussian_gittins
        from gradband.solvers.store import stored

        key: dict[str, Any] = {"precision": precision, "horizon": horizon, **gaussian_gittins.SETTINGS}

        def make() -> np.ndarray:
            return gaussian_gittins.finite_horizon(precision, horizon, resources.cores(), progress)

        found = stored("gaussian-gittins", key, make)
        _last.clear()
        _last[precision, horizon] = found
    return _last[precision, horizon]
