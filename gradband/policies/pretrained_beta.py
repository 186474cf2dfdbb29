"""The pretrained network on the exact posterior of beta rewards."""

import dataclasses
from typing import ClassVar

from gradband.core.special import psi
from gradband.policies.base import Array, Params, namespace
from gradband.policies.beta_evidence import BetaEvidence, Evidence
from gradband.policies.pretrained_index import (
    LEARNED_ROUNDS,
    PretrainedNetwork,
    moments,
    network,
    network_inputs,
)

LEAST = 1e-3  # pseudo-counts of a posterior, and distance of its mean from 0 and 1, in single precision
NARROWEST = 1e-12  # variance of a posterior, which may lie within a single cell


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainedBeta(PretrainedNetwork, BetaEvidence):
    """The network of `pretrained`, if Y ~ Beta(v μ, v (1 − μ)) and μ ~ Beta(a, b).

    The network knows arms that pay 0 or 1. An arm with beta rewards is like one of them whose posterior
    Beta(α, β) has the mean m and the variance s² of the exact posterior, and whose pulls count for more: a
    reward says as much about μ as ρ = I m (1 − m) zeros or ones do, where I = v² (ψ′(v m) + ψ′(v (1 − m)))
    is its Fisher information. So each pull that is left counts as ρ pulls for the network.
    """

    name: ClassVar[str] = "pretrained-beta"

    def index(self, params: Params, state: Evidence) -> tuple[Array, Array]:
        xp = namespace(state.logits)
        means, variances = self.moments(state)
        inside = xp.clip(means, LEAST, 1 - LEAST)
        total = xp.maximum(inside * (1 - inside) / xp.maximum(variances, NARROWEST) - 1, LEAST)
        ones, zeros = inside * total, (1 - inside) * total
        information = self.v**2 * (psi(self.v * inside)[1] + psi(self.v * (1 - inside))[1])
        left = xp.maximum(state.counts.rounds_left(self.horizon), 1)
        left = 1 + (left - 1) * information * inside * (1 - inside)
        _, spread, resolved = moments(ones, zeros, left)
        # With more pulls than the network was learned with, it would only explore more.
        seen = network_inputs(ones, zeros, left, LEARNED_ROUNDS)
        return means + spread * resolved * network(params, seen), spread
