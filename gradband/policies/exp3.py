"""Exp3: exponential weights on importance-weighted rewards (Section 4.1, eq. 4)."""

import dataclasses
from typing import Annotated, ClassVar

from gradband.core.arrays import Array, add_at, namespace, nn, one_hot, pick, stop_gradient
from gradband.policies.base import OneParameter, Params, one_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exp3(OneParameter):
    """p_i = θ/K + (1 − θ) exp(η S_i) / Σ_j exp(η S_j), η = θ/K, S_i = Σ 1{I = i} Y_i / p_i.

    S depends on θ through past 1/p. `gradient="exact"` differentiates through it;
    `gradient="lemma"` holds S fixed, as the paper's Lemma 3 does, and is biased by a few percent.
    """

    name: ClassVar[str] = "exp3"
    batches: ClassVar[bool] = True
    most: ClassVar[float] = 1.0
    gradient: Annotated[str, one_of("exact", "lemma")] = "exact"

    def begin(self, params: Params, latent: Array) -> Array:
        return namespace(latent).zeros(self.arms)

    def log_probs(self, params: Params, state: Array) -> Array:
        theta, xp = params["theta"], namespace(state)
        if self.gradient == "lemma":
            state = stop_gradient(state)
        weights = xp.exp(nn(state).log_softmax(theta / self.arms * state))
        return xp.log(theta / self.arms + (1 - theta) * weights)

    def update(self, params: Params, state: Array, arm: Array, reward: Array) -> Array:
        log_prob = pick(self.log_probs(params, state), arm)
        return state + one_hot(arm, self.arms) * reward * namespace(state).exp(-log_prob)

    def update_many(self, params: Params, state: Array, pulls: Array, sums: Array) -> Array:
        return state + sums * namespace(state).exp(-self.log_probs(params, state))

    def update_late(self, params: Params, state: Array, arm: Array, reward: Array, p: Array) -> Array:
        return add_at(state, arm, reward / p)

    def update_many_late(self, params: Params, state: Array, pulls: Array, sums: Array, p: Array) -> Array:
        xp = namespace(state)
        return state + xp.where(sums > 0, sums / xp.where(p > 0, p, 1), 0)

    def correct(self, state: Array, arm: int, heard: float, reward: float, p: float) -> Array:
        return add_at(state, arm, (reward - heard) / p)

    def correct_many(self, state: Array, heard: Array, sums: Array, p: Array) -> Array:
        return state + (sums - heard) / namespace(state).where(p > 0, p, 1)
