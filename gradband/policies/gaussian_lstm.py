"""LSTM for rewards of any size."""

import dataclasses
import math
from typing import ClassVar

from gradband.policies.base import Array, Number, Positive
from gradband.policies.lstm import LSTM


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianLSTM(LSTM):
    """As `lstm`, on normalised rewards: of μ_i ~ N(mean, within²) and Y ~ N(μ_i, sd²), most are in [0, 1].

    A reward's mean becomes ½, and two of its standard deviations, √(within² + sd²), become ½ as well.
    """

    name: ClassVar[str] = "lstm-gaussian"
    unit: ClassVar[bool] = False
    mean: Number = 0.0
    within: Positive = 1.0
    sd: Positive = 1.0

    def heard(self, reward: Array) -> Array:
        return 0.5 + (reward - self.mean) / (4 * math.hypot(self.within, self.sd))
