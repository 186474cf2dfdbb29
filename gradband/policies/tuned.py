"""What policies with linear beliefs share that learn a few positive numbers."""

import dataclasses
import math
from typing import Any, ClassVar, Self

from gradband.core.errors import number
from gradband.policies.base import Array, Bounds, Params, Spec, real
from gradband.policies.linear_policy import LinearPolicy
from gradband.policies.policy import unbounded

ANY = (1e-6, math.inf)
"""limits of a positive number"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuned(LinearPolicy):
    """A policy with linear beliefs that learns the positive numbers that have `limits`.

    Each starts at the setting of its name. Learning surveys the decades of the first one.
    """

    limits: ClassVar[dict[str, tuple[float, float]]]

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if "limits" in vars(cls):
            cls.log_scale, cls.lead = frozenset(cls.limits), next(iter(cls.limits))

    def check(self) -> None:
        super().check()
        for name in sorted(self.log_scale):
            number(f"{name} of {self.name}", getattr(self, name), *self.limits[name])

    def specs(self) -> dict[str, Spec]:
        return dict.fromkeys(sorted(self.log_scale), Spec())

    def init(self, key: Array) -> Params:
        return {name: real(getattr(self, name)) for name in sorted(self.log_scale)}

    def compiled(self) -> Self:
        """Only the first parameters depend on where they start."""
        return dataclasses.replace(self, **{name: getattr(type(self), name) for name in self.log_scale})

    def bounds(self) -> Bounds:
        lower, upper = unbounded(self.specs())
        ends = self.limits.items()
        return lower | {n: low for n, (low, _) in ends}, upper | {n: high for n, (_, high) in ends}
