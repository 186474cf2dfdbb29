"""ε-greedy where arms or visitors have features."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Array, Params, namespace
from gradband.policies.beliefs import Seen
from gradband.policies.tuned import Tuned


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinEpsilonGreedy(Tuned):
    """p_i = ε/K + (1 − ε) 1{i has the greatest expected reward} / #greatest, with ε in (0, 1]."""

    name: ClassVar[str] = "lin-epsilon-greedy"
    limits: ClassVar[dict[str, tuple[float, float]]] = {"epsilon": (1e-6, 1.0)}
    epsilon: float = 0.1

    def log_probs(self, params: Params, state: Seen) -> Array:
        best = (state.gap == 0).astype(state.mean.dtype)
        epsilon = params["epsilon"]
        probabilities = epsilon / self.arms + (1 - epsilon) * best / best.sum()
        return namespace(probabilities).log(probabilities)
