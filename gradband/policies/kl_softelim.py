"""Tempered KL-SoftElim: SoftElim with the Kullback–Leibler divergence and a learned prior."""

import dataclasses
from typing import ClassVar, Self

from gradband.core.arrays import Array, namespace, nn, real
from gradband.policies.base import Bounds, Counting, Counts, OneParameter, Params, Positive, Spec

LEAST = 1e-3  # of pseudo-counts


@dataclasses.dataclass(frozen=True, kw_only=True)
class KLSoftElim(Counting, OneParameter):
    """p_i ∝ exp(−T_i kl(μ̂_i, max_j μ̂_j) / θ), where μ̂ = (a + sum of rewards) / (a + b + T).

    θ is a temperature, and a and b are pseudo-counts of each arm before its first pull. All three are
    learned. With θ = 1 and no pseudo-counts, the exponent is the log-likelihood ratio of the arm being as
    good as the best; SoftElim uses Pinsker's bound on it, 2 (max_j μ̂_j − μ̂_i)² T_i. No arm needs to be
    pulled first: an arm without pulls is as likely as the best.
    """

    name: ClassVar[str] = "kl-softelim"
    unit: ClassVar[bool] = True
    log_scale: ClassVar[frozenset[str]] = frozenset({"theta", "a", "b"})
    a: Positive = 1.0
    b: Positive = 1.0

    def init(self, key: Array) -> Params:
        return super().init(key) | {"a": real(self.a), "b": real(self.b)}

    def specs(self) -> dict[str, Spec] | None:
        return dict.fromkeys(("theta", "a", "b"), Spec()) if type(self).init is KLSoftElim.init else None

    def compiled(self) -> Self:
        return dataclasses.replace(super().compiled(), a=1.0, b=1.0)

    def bounds(self) -> Bounds:
        lower, upper = super().bounds()
        return lower | dict.fromkeys("ab", LEAST), upper | dict.fromkeys("ab", self.most)

    def estimates(self, params: Params, state: Counts) -> Array:
        return (params["a"] + state.sums) / (params["a"] + params["b"] + state.pulls)

    def log_probs(self, params: Params, state: Counts) -> Array:
        ones, zeros = params["a"] + state.sums, params["b"] + state.pulls - state.sums
        mean, rest = ones / (ones + zeros), zeros / (ones + zeros)
        scores = -state.pulls * divergence(mean, rest) / params["theta"]
        return nn(scores).log_softmax(scores)


def divergence(mean: Array, rest: Array) -> Array:
    """kl(μ_i, max_j μ_j) [K] of Bernoulli variables, from μ [K] and 1 − μ, both above 0.

    If means are close, the two logarithms nearly cancel, and T kl would have errors of 10⁻⁴ in float32. So
    what cancels is left out: with g = max_j μ_j − μ_i, kl is g² (1/μ_j + 1/(1 − μ_j)) minus the logarithms'
    curvature. If g is more than half of μ_j or of 1 − μ_i, kl is computed by its definition.

    >>> import numpy as np
    >>> print(divergence(np.array([0.5, 0.25]), np.array([0.5, 0.75])).round(4))
    [0.     0.1308]
    """
    xp = namespace(mean)
    best, worst, gap = mean.max(), rest.min(), mean.max() - mean
    far = (mean < best / 2) | (worst < rest / 2)
    near = xp.where(far, 0, gap)
    close = near**2 * (1 / best + 1 / worst) - mean * curve(-near / best) - rest * curve(near / worst)
    return xp.where(far, mean * xp.log(mean / best) + rest * xp.log(rest / worst), close)


def curve(x: Array) -> Array:
    """x − log(1 + x) for x > −1, precise near 0, where log(1 + x) = 2 artanh s with s = x / (2 + x)."""
    xp = namespace(x)
    s = x / (2 + x)
    series = s * x - 2 * s**3 * (1 / 3 + s**2 * (1 / 5 + s**2 * (1 / 7 + s**2 / 9)))
    return xp.where(xp.abs(x) < 0.1, series, x - xp.log1p(x))
