"""Boltzmann exploration: a softmax of empirical means."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Array, Counting, Counts, OneParameter, Params, nn


@dataclasses.dataclass(frozen=True, kw_only=True)
class Boltzmann(Counting, OneParameter):
    """Each arm once, then p_i ∝ exp(μ̂_i / θ) with temperature θ > 0."""

    name: ClassVar[str] = "boltzmann"
    opens: ClassVar[bool] = True
    power: ClassVar[int] = 1
    theta: float = 0.2

    def log_probs(self, params: Params, state: Counts) -> Array:
        scores = state.means / params["theta"]
        return nn(scores).log_softmax(scores)
