"""Randomised explore-then-commit (Theorem 1)."""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from gradband.core.errors import InputError
from gradband.policies.base import Counts, OneParameter, Params, certain

MARGIN = 1e-3


class Exploration(NamedTuple):
    """Counts of the exploration phase, and its length in pulls of each arm."""

    counts: Counts
    length: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExploreThenCommit(OneParameter):
    """Pulls each arm θ̄ = ⌊θ⌋ + Z times in turn, Z ~ Ber(θ − ⌊θ⌋), then the best-looking one.

    Only Z depends on θ, so its log-probability is the whole score. θ lies in [1, ⌊n/K⌋], less a margin
    at the ends. At a whole θ one value of Z would have no score: there it keeps a probability of .001,
    and the score is that of the slope to the right.
    """

    name: ClassVar[str] = "explore-then-commit"
    latents: ClassVar[int] = 2
    theta: float = 1.5

    def check(self) -> None:
        if self.horizon // self.arms < 2:
            raise InputError(
                f"explore-then-commit with {self.arms} arms needs a horizon of at least "
                f"{2 * self.arms}, not {self.horizon}"
            )
        super().check()

    def bounds(self) -> tuple[dict[str, float], dict[str, float]]:
        return {"theta": 1 + MARGIN}, {"theta": self.horizon // self.arms - MARGIN}

    def latent_log_probs(self, params: Params) -> Array:
        fraction = params["theta"] - jnp.floor(params["theta"])
        # The value is clipped, the derivative stays 1.
        fraction += jax.lax.stop_gradient(jnp.clip(fraction, MARGIN, 1 - MARGIN) - fraction)
        return jnp.log(jnp.stack([1 - fraction, fraction]))

    def begin(self, params: Params, latent: Array) -> Exploration:
        length = jax.lax.stop_gradient(jnp.floor(params["theta"])) + latent
        return Exploration(Counts.zeros(self.arms), length)

    def exploring(self, state: Exploration) -> Array:
        return state.counts.rounds < self.arms * state.length

    def log_probs(self, params: Params, state: Exploration) -> Array:
        turn = state.counts.rounds.astype(int) % self.arms
        means = state.counts.means
        # The first of the best, not by argmax, which aborts XLA's CPU compiler when looking ahead (0.10).
        best = jnp.sum(jnp.cumsum(means == means.max()) == 0)
        return certain(jnp.where(self.exploring(state), turn, best), self.arms)

    def recommend(self, params: Params, state: Exploration) -> Array:
        return jnp.argmax(state.counts.means)

    def update(self, params: Params, state: Exploration, arm: Array, reward: Array) -> Exploration:
        # The commitment rests on the exploration alone: later rewards leave the counts as they are.
        counts = jax.tree.map(
            lambda new, old: jnp.where(self.exploring(state), new, old),
            state.counts.add(arm, reward),
            state.counts,
        )
        return Exploration(counts, state.length)
