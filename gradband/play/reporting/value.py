"""The value of a test so far against an equal split of its decisions, from logged probabilities."""

import dataclasses
import math
from typing import Any

import numpy as np

from gradband.core.statistics import Mean
from gradband.play.reporting.scores import VALUE_SUMS


@dataclasses.dataclass(frozen=True)
class Value:
    """Rewards per decision: as played, of an equal split, and the gain of one over the other.

    `split` and `gain` have an estimate for each of ips (inverse propensities), snips (self-normalised) and
    dr (doubly robust: with the arms' running means, the most precise one).
    """

    decisions: int  # that allow the comparison: every arm had a chance
    played: Mean
    split: dict[str, Mean]
    gain: dict[str, Mean]

    def as_dict(self) -> dict[str, Any]:
        return {
            "decisions": self.decisions,
            "played": vars(self.played),
            "split": {name: vars(found) for name, found in self.split.items()},
            "gain": {name: vars(found) for name, found in self.gain.items()},
        }


def value_of(sums: np.ndarray) -> Value | None:
    """The value from `VALUE_SUMS` [13] of one test; nothing for fewer than two decisions."""
    s = dict(zip(VALUE_SUMS, sums.tolist(), strict=True))
    n = s["n"]
    if n < 2:
        return None
    y, snips = s["y"] / n, s["wy"] / s["w"]
    scale = n / s["w"]
    squares = s["w2y2"] - 2 * snips * s["w2y"] + snips**2 * s["w2"]  # Σ w² (Y − snips)²
    cross = s["wy2"] - (snips + y) * s["wy"] + snips * y * s["w"]  # Σ w (Y − snips) (Y − y)
    return Value(
        int(n),
        _mean(y, s["y2"], n),
        {
            "ips": _mean(s["wy"] / n, s["w2y2"], n),
            "snips": Mean(snips, math.sqrt(max(squares, 0)) / s["w"]),
            "dr": _mean(s["dr"] / n, s["dr2"], n),
        },
        {
            "ips": _mean(y - s["wy"] / n, s["y2"] - 2 * s["wy2"] + s["w2y2"], n),
            "snips": Mean(
                y - snips, _root(s["y2"] - n * y**2 - 2 * scale * cross + scale**2 * squares) / n
            ),
            "dr": _mean(s["gain"] / n, s["gain2"], n),
        },
    )


def _mean(mean: float, squares: float, n: float) -> Mean:
    """A mean with its standard error, from the sum of squares."""
    return Mean(mean, _root(squares / n - mean**2) / math.sqrt(n))


def _root(x: float) -> float:
    return math.sqrt(max(x, 0.0))
