"""Boltzmann exploration where arms or visitors have features."""

import dataclasses
from typing import ClassVar

import numpy as np

from gradband.policies.base import Array, Params, namespace, nn
from gradband.policies.beliefs import Seen
from gradband.policies.lin_softelim import LEAST
from gradband.policies.tuned import ANY, Tuned


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinBoltzmann(Tuned):
    """p_i ∝ exp(−g_i / (τ s)), with the gap g_i of the expected reward xᵢᵀm to the greatest.

    s² is the mean variance of the arms' expected rewards: exploration ends as the belief becomes certain,
    and τ has no unit. A round has one temperature for all arms.
    """

    name: ClassVar[str] = "lin-boltzmann"
    limits: ClassVar[dict[str, tuple[float, float]]] = {"temperature": ANY}
    temperature: float = 0.5

    def log_probs(self, params: Params, state: Seen) -> Array:
        xp = namespace(state.mean)
        least = np.float32(LEAST) * xp.asarray(self.noise(state)).mean()
        spread = xp.sqrt(xp.maximum(state.variance.mean(), least))
        scores = -state.gap / (params["temperature"] * spread)
        return nn(scores).log_softmax(scores)
