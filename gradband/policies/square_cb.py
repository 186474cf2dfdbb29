"""SquareCB: exploration by inverse gaps (Foster and Rakhlin, 2020)."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Array, Params, namespace
from gradband.policies.beliefs import Seen
from gradband.policies.tuned import ANY, Tuned


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquareCB(Tuned):
    """p_i = 1 / (K + γ_t g_i), with the gap g_i to the greatest expected reward; the best arm has the rest.

    γ_t = `scale` · t^`exponent`, both learned. They start at 10 √t, which Vowpal Wabbit has by default for
    rewards in [0, 1]: gaps are in units of 2 sd, which is 1 for sd = ½.
    """

    name: ClassVar[str] = "square-cb"
    limits: ClassVar[dict[str, tuple[float, float]]] = {"scale": ANY, "exponent": (0.01, 4.0)}
    scale: float = 10.0
    exponent: float = 0.5

    def log_probs(self, params: Params, state: Seen) -> Array:
        xp = namespace(state.mean)
        sharpness = params["scale"] * xp.exp(params["exponent"] * xp.log1p(state.belief.rewards))
        p = xp.where(state.best, 0, 1 / (self.arms + sharpness * self.short(state)))
        return xp.log(xp.where(state.best, 1 - p.sum(), p))
