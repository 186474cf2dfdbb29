"""Beta-SoftElim: KL-SoftElim whose pseudo-counts count as pulls, so that it can leave arms untried."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Array, Counts, Params, nn
from gradband.policies.kl_softelim import KLSoftElim, divergence


@dataclasses.dataclass(frozen=True, kw_only=True)
class BetaSoftElim(KLSoftElim):
    """p_i ∝ exp(−(T_i + a + b) kl(μ̂_i, max_j μ̂_j) / θ), where μ̂ = (a + sum of rewards) / (a + b + T).

    θ, a and b are learned, as those of KL-SoftElim, whose exponent has T_i alone: there an arm without
    pulls is always as likely as the best, and all arms are tried before any is trusted. Here an arm without
    pulls loses to one that has done better than a / (a + b), which pays where rounds are few for each arm.
    """

    name: ClassVar[str] = "beta-softelim"

    def log_probs(self, params: Params, state: Counts) -> Array:
        ones, zeros = params["a"] + state.sums, params["b"] + state.pulls - state.sums
        total = ones + zeros
        scores = -total * divergence(ones / total, zeros / total) / params["theta"]
        return nn(scores).log_softmax(scores)
