"""SoftElim that prefers, among the arms that it does not eliminate, those it knows least."""

import dataclasses
from typing import ClassVar

import numpy as np

from gradband.core.arrays import Array, namespace, nn
from gradband.policies.base import Params
from gradband.policies.beliefs import Seen
from gradband.policies.lin_softelim import LEAST
from gradband.policies.tuned import ANY, Tuned


@dataclasses.dataclass(frozen=True, kw_only=True)
class DirectedSoftElim(Tuned):
    """p_i ∝ sᵢ^power · exp(−gᵢ² / cᵢ), with c_i = a² sᵢ² ρᵢ^patience.

    g_i is the gap of the arm's expected reward to the greatest and s_i its standard deviation, as in
    `lin-softelim`, which this is with the power 0 and the patience 0. ρ_i is the share of s_i² that rewards
    of this arm in all m remaining rounds would resolve, m s_i² / (m s_i² + σ²): as the end approaches, or
    the belief becomes certain, arms that look worse are no longer worth a pull.
    """

    name: ClassVar[str] = "directed-softelim"
    log_scale: ClassVar[frozenset[str]] = frozenset({"a", "power", "patience"})
    lead: ClassVar[str] = "a"
    limits: ClassVar[dict[str, tuple[float, float]]] = {
        "a": ANY,
        "power": (1e-3, 100.0),
        "patience": (1e-3, 10.0),
    }
    a: float = 0.4
    power: float = 5.0
    patience: float = 0.5

    def log_probs(self, params: Params, state: Seen) -> Array:
        left = namespace(state.mean).maximum(self.horizon - state.belief.rewards, 1)
        scores = directed(params, state, self.noise(state), left)
        return nn(scores).log_softmax(scores)


def directed(params: Params, seen: Seen, noise: Array | float, left: Array) -> Array:
    """The logarithms of sᵢ^power · exp(−gᵢ² / cᵢ) [K], with noise variances σ² and m rounds left."""
    xp, gap = namespace(seen.mean), seen.gap
    v = xp.maximum(seen.variance, np.float32(LEAST) * noise)
    resolved = left * v / (left * v + noise)
    # Where the gap is 0, its ratio has no derivative.
    c = xp.where(gap > 0, params["a"] ** 2 * v * xp.exp(params["patience"] * xp.log(resolved)), 1)
    return params["power"] / 2 * xp.log(v / v.max()) - gap**2 / c
