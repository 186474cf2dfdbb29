"""ε-greedy: mostly the arm that looks best, sometimes a random one."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Array, Counting, Counts, OneParameter, Params, namespace


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpsilonGreedy(Counting, OneParameter):
    """Each arm once, then p_i = θ/K + (1 − θ) 1{i is best} / #best, with ε = θ in (0, 1]."""

    name: ClassVar[str] = "epsilon-greedy"
    opens: ClassVar[bool] = True
    most: ClassVar[float] = 1.0
    theta: float = 0.5

    def log_probs(self, params: Params, state: Counts) -> Array:
        best = (state.means == state.means.max()).astype(state.pulls.dtype)
        theta = params["theta"]
        probabilities = theta / self.arms + (1 - theta) * best / best.sum()
        return namespace(probabilities).log(probabilities)
