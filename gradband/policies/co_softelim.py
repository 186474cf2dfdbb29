"""SoftElim where visitors have features (Boutilier et al., Differentiable meta-learning, 2020)."""

import dataclasses
from typing import ClassVar

from gradband.policies.lin_softelim import LinSoftElim


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoSoftElim(LinSoftElim):
    """As `lin-softelim`, with a belief for each arm: p_i ∝ exp(−g_i² / c_i), c_i = xᵀ A Σ_i A x.

    x are the features of the visitor, θ_i and its covariance Σ_i those of the arm. As in the paper, θ_i is
    N(0, I / 4) at first, and the noise has the standard deviation ½.
    """

    name: ClassVar[str] = "co-softelim"
    model: str = "by-arm"
