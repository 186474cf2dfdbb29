"""The regret bound of SoftElim (Theorem 3)."""

import math
from collections.abc import Sequence

from gradband.core.errors import InputError, whole
from gradband.problems import rewards
from gradband.problems.priors import numbers


def softelim_regret_bound(means: Sequence[float], horizon: int) -> float:
    """A bound on SoftElim's regret at θ = 8: Σ_i (2e + 1)(16 log n / Δ_i + Δ_i) + 5 Δ_i, Δ_i > 0.

    For any rewards in [0, 1] with these means, of which one is the greatest. The bound is below the trivial
    n max Δ only for horizons in the thousands and more; `SoftElim(theta=8)` itself does far better.

    >>> round(softelim_regret_bound([0.6, 0.4], horizon=200))
    2731
    """
    array = numbers("means", means, axes=1)
    rewards.Bernoulli().check(array)
    whole("horizon", horizon)
    gaps = sorted(float(array.max() - mean) for mean in array)[1:]
    if not gaps or gaps[0] == 0:
        raise InputError("the bound needs at least two arms, one of them better than all others")
    factor = 2 * math.e + 1
    return sum(factor * (16 * math.log(horizon) / gap + gap) + 5 * gap for gap in gaps)
