"""Whether arms were pulled as often as their logged probabilities say (sample-ratio mismatch)."""

import dataclasses
import math
from typing import Any

import numpy as np

CAUTION = 50.0  # pseudo-pulls in the bet: nothing is bet on few


@dataclasses.dataclass
class Allocation:
    """Observed and expected pulls of each arm [K], and the evidence that they do not match.

    Observed minus expected pulls are a martingale if arms are drawn with the logged probabilities e. The
    evidence is the logarithm of a bet that arm k is pulled w_k / Σ e w times as often, where w_k is the
    ratio of observed to expected pulls so far. It is a martingale too, so its p-value holds however often
    one looks.
    """

    observed: np.ndarray
    expected: np.ndarray
    variance: np.ndarray
    evidence: float = 0.0
    most: float = 0.0  # the greatest evidence so far

    @classmethod
    def of(cls, arms: int) -> "Allocation":
        return cls(np.zeros(arms), np.zeros(arms), np.zeros(arms))

    def add(self, shares: np.ndarray, pulls: np.ndarray) -> None:
        """Adds decisions or batches [n, K]; the bet is the same for all of them."""
        count = pulls.sum(1, keepdims=True)
        ratio = (self.observed + CAUTION) / (self.expected + CAUTION)
        usual = (shares @ ratio) / shares.sum(1)
        self.evidence += float(pulls.sum(0) @ np.log(ratio) - count[:, 0] @ np.log(usual))
        self.most = max(self.most, self.evidence)
        self.observed = self.observed + pulls.sum(0)
        self.expected = self.expected + (count * shares).sum(0)
        self.variance = self.variance + (count * shares * (1 - shares)).sum(0)

    def widen(self, arms: int) -> None:
        """Makes room for new arms."""
        for name in ("observed", "expected", "variance"):
            setattr(self, name, pad(getattr(self, name), arms))

    @property
    def z(self) -> np.ndarray:
        """Observed minus expected pulls in standard deviations [K]; NaN for arms that were never drawn."""
        certain = self.variance <= 0
        return np.where(
            certain, np.nan, (self.observed - self.expected) / np.sqrt(np.where(certain, 1, self.variance))
        )

    @property
    def p_value(self) -> float:
        """A p-value of all arms together that stays valid under peeking."""
        return math.exp(-max(self.most, 0.0))

    def as_dict(self) -> dict[str, Any]:
        return {
            "observed": self.observed.tolist(),
            "expected": self.expected.tolist(),
            "z": self.z.tolist(),
            "p_value": self.p_value,
        }


def pad(values: np.ndarray, arms: int) -> np.ndarray:
    """Values with zeros for new arms at the end of the last axis."""
    return np.concatenate([values, np.zeros((*values.shape[:-1], arms - values.shape[-1]))], axis=-1)
