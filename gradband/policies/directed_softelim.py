"""SoftElim that prefers, among the arms that it does not eliminate, those it knows least."""

import dataclasses
from typing import ClassVar

import numpy as np

from gradband.core.arrays import Array, namespace, nn
from gradband.policies.base import Params
from gradband.policies.beliefs import Seen
from gradband.policies.lin_softelim import LEAST
from gradband.policies.tuned import Tuned

MOST = 30.0  # limit on the logarithm of the factor by which gaps count more towards the end


@dataclasses.dataclass(frozen=True, kw_only=True)
class DirectedSoftElim(Tuned):
    """p_i ∝ (sᵢ exp(−gᵢ² / cᵢ))^power, with c_i = a² sᵢ² ρᵢ^patience.

    g_i is the gap of the arm's expected reward to the greatest, and s_i its standard deviation: among arms
    that are not eliminated, as by `lin-softelim`, it prefers those that it knows least, the more so the
    greater the power. ρ_i is the share of s_i² that rewards of this arm in all m remaining rounds would
    resolve, m s_i² / (m s_i² + σ²): as the end approaches, or the belief becomes certain, arms that look
    worse are no longer worth a pull. The three numbers are learned.
    """

    name: ClassVar[str] = "directed-softelim"
    log_scale: ClassVar[frozenset[str]] = frozenset({"a", "power", "patience"})
    lead: ClassVar[str] = "a"
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "a": (1e-2, 1e2),
        "power": (1e-2, 1e2),
        "patience": (1e-3, 100.0),
    }
    a: float = 1.08
    power: float = 40.0
    patience: float = 2.7

    def log_probs(self, params: Params, state: Seen) -> Array:
        left = namespace(state.mean).maximum(self.horizon - state.belief.rewards, 1)
        scores = directed(params, state, self.noise(state), left)
        return nn(scores).log_softmax(scores)


def directed(params: Params, seen: Seen, noise: Array | float, left: Array) -> Array:
    """power · (log sᵢ − gᵢ² / cᵢ) [K], but for a constant, with noise variances σ² and m rounds left."""
    xp = namespace(seen.mean)
    v = xp.maximum(seen.variance, np.float32(LEAST) * noise)
    unresolved = xp.log1p(noise / (left * v))  # −log ρ
    late = xp.exp(xp.minimum(params["patience"] * unresolved, MOST))
    return params["power"] * (xp.log(v / v.max()) / 2 - seen.gap**2 / v * late / params["a"] ** 2)
