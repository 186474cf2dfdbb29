"""Exp3: exponential weights on importance-weighted rewards (Section 4.1, eq. 4)."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from gradband.core.errors import unknown
from gradband.core.pytrees import one_hot, pick
from gradband.policies.base import OneParameter, Params

GRADIENTS = ("exact", "lemma")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exp3(OneParameter):
    """p_i = θ/K + (1 − θ) exp(η S_i) / Σ_j exp(η S_j), η = θ/K, S_i = Σ 1{I = i} Y_i / p_i.

    S depends on θ through past 1/p. `gradient="exact"` differentiates through it;
    `gradient="lemma"` holds S fixed, as the paper's Lemma 3 does, and is biased by a few percent.
    """

    name: ClassVar[str] = "exp3"
    batches: ClassVar[bool] = True
    most: ClassVar[float] = 1.0
    gradient: str = "exact"

    def check(self) -> None:
        super().check()
        if self.gradient not in GRADIENTS:
            raise unknown("gradient of exp3", self.gradient, GRADIENTS)

    def begin(self, params: Params, latent: Array) -> Array:
        return jnp.zeros(self.arms)

    def log_probs(self, params: Params, state: Array) -> Array:
        theta = params["theta"]
        if self.gradient == "lemma":
            state = jax.lax.stop_gradient(state)
        weights = jnp.exp(jax.nn.log_softmax(theta / self.arms * state))
        return jnp.log(theta / self.arms + (1 - theta) * weights)

    def update(self, params: Params, state: Array, arm: Array, reward: Array) -> Array:
        log_prob = pick(self.log_probs(params, state), arm)
        return state + one_hot(arm, self.arms) * reward * jnp.exp(-log_prob)

    def update_many(self, params: Params, state: Array, pulls: Array, sums: Array) -> Array:
        return state + sums * jnp.exp(-self.log_probs(params, state))
