"""SoftElim: soft elimination of arms that look worse than the best (Section 4.2, eq. 5)."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Array, Counting, Counts, OneParameter, Params, namespace


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftElim(Counting, OneParameter):
    """Each arm once, then p_i ∝ exp(−S_i / θ) with S_i = 2 (max_j μ̂_j − μ̂_i)² T_i.

    A larger θ > 0 explores more. θ = 8 has the regret bound of Theorem 3.

    >>> SoftElim(theta=0.3).bind(arms=2, horizon=200).theta
    0.3
    """

    name: ClassVar[str] = "softelim"
    opens: ClassVar[bool] = True
    power: ClassVar[int] = 2

    def log_probs(self, params: Params, state: Counts) -> Array:
        xp, means = namespace(state.pulls), state.means
        statistic = 2 * (means.max() - means) ** 2 * state.pulls
        exponent = -statistic / params["theta"]  # at most 0, and 0 for the best arm: no overflow
        return exponent - xp.log(xp.exp(exponent).sum())
