"""The Gittins index of a finite horizon with normal beliefs."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from gradband.core import resources
from gradband.policies.base import Array, Counts, InputError, Params, Spec
from gradband.policies.gittins import IndexTable
from gradband.policies.normal import Normal
from gradband.solvers.layout import pair_place, pairs

LONGEST = 4000  # rounds: a table of 32 megabytes, and minutes of work
PRECISIONS = 1e-3, 1e12  # of the prior, relative to that of a reward


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianGittins(IndexTable, Normal):
    """The arm with the greatest Gittins index of its normal posterior for the remaining rounds.

    The belief about an arm is N(mean, within²) at first, and rewards have the standard deviation `sd`.
    The index is the posterior mean plus sd times an entry of a table, which depends on `within` / `sd` and
    the horizon alone.

    >>> GaussianGittins().bind(arms=2, horizon=10).init(None)["table"].shape
    (55,)
    """

    name: ClassVar[str] = "gittins-gaussian"
    quick: ClassVar[int] = 1000

    def check(self) -> None:
        super().check()
        if self.horizon > LONGEST:
            raise InputError(
                f"the table of Gittins indices for {self.horizon} rounds would take too long to compute: "
                f"the longest horizon is {LONGEST}"
            )
        low, high = PRECISIONS
        if not low <= self.precision <= high:
            raise InputError(
                f"(sd / within)² of {self.name} must lie in [{low:g}, {high:g}], not {self.precision:g}"
            )

    @property
    def precision(self) -> float:
        """How many rewards the prior is worth."""
        return (self.sd / self.within) ** 2

    def specs(self) -> dict[str, Spec]:
        return {"table": Spec((pairs(self.horizon),))}

    def key(self) -> dict[str, Any]:
        from gradband.solvers import gaussian_gittins

        return {"precision": self.precision, "horizon": self.horizon, **gaussian_gittins.SETTINGS}

    def compute(self, progress: Callable[[float], None] | None) -> np.ndarray:
        from gradband.solvers import gaussian_gittins

        return gaussian_gittins.finite_horizon(self.precision, self.horizon, resources.cores(), progress)

    def index(self, params: Params, state: Counts) -> Array:
        pulls, _, t = state.as_integers()
        return self.posterior(state)[0] + self.sd * params["table"][pair_place(t, pulls)]
