"""Randomised explore-then-commit (Theorem 1)."""

import dataclasses
from typing import ClassVar, NamedTuple

import numpy as np

from gradband.core.arrays import Array, namespace, pick, stop_gradient
from gradband.policies.base import Bounds, Counts, InputError, OneParameter, Params
from gradband.policies.policy import certain

MARGIN = 1e-3


class Exploration(NamedTuple):
    """Counts of the exploration phase, its length in pulls per arm, and reported decisions."""

    counts: Counts
    length: Array
    decided: Array

    @property
    def turn(self) -> Array:
        """Decisions so far, with or without their rewards."""
        return namespace(self.length).maximum(self.counts.rounds, self.decided)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExploreThenCommit(OneParameter):
    """Pulls each arm θ̄ = ⌊θ⌋ + Z times in turn, Z ~ Ber(θ − ⌊θ⌋), then the best-looking one.

    Only Z depends on θ, so its log-probability is the whole score. θ lies in [1, ⌊n/K⌋], less a margin at
    the ends. At a whole θ, one value of Z would have probability 0 and no score: its probability stays at
    .001, and the score is that of the slope to the right.

    Exploration counts decisions, so it does not wait for rewards; the commitment uses the first θ̄ rewards
    of each arm.
    """

    name: ClassVar[str] = "explore-then-commit"
    latents: ClassVar[int] = 2
    theta: float = 1.5

    def check(self) -> None:
        if self.horizon // self.arms < 2:
            needed = f"a horizon of at least {2 * self.arms}, not {self.horizon}"
            raise InputError(f"explore-then-commit with {self.arms} arms needs {needed}")
        super().check()

    def bounds(self) -> Bounds:
        return {"theta": 1 + MARGIN}, {"theta": self.horizon // self.arms - MARGIN}

    def latent_log_probs(self, params: Params) -> Array:
        xp = namespace(params["theta"])
        fraction = params["theta"] - xp.floor(params["theta"])
        # The value is clipped, the derivative stays 1.
        fraction += stop_gradient(xp.clip(fraction, MARGIN, 1 - MARGIN) - fraction)
        return xp.log(xp.stack([1 - fraction, fraction]))

    def begin(self, params: Params, latent: Array) -> Exploration:
        xp = namespace(params["theta"], latent)
        length = stop_gradient(xp.floor(params["theta"])) + latent
        return Exploration(Counts.zeros(self.arms, xp), length, xp.zeros(()))

    def exploring(self, state: Exploration) -> Array:
        return state.turn < self.arms * state.length

    def log_probs(self, params: Params, state: Exploration) -> Array:
        xp, turn = namespace(state.length), state.turn.astype(int) % self.arms
        means = state.counts.means
        # The first of the best; not by argmax, which crashes XLA's CPU compiler when looking ahead (0.10).
        best = xp.sum(xp.cumsum(means == means.max()) == 0)
        return certain(xp.where(self.exploring(state), turn, best), self.arms)

    def recommend(self, params: Params, state: Exploration) -> Array:
        return state.counts.means.argmax()

    def update(self, params: Params, state: Exploration, arm: Array, reward: Array) -> Exploration:
        early = pick(state.counts.pulls, arm) < state.length
        return state._replace(counts=state.counts.add(arm, reward).where(early, state.counts))

    def decided(self, state: Exploration) -> Exploration:
        return state._replace(decided=state.decided + 1)

    def check_state(self, state: Exploration, rounds: int) -> None:
        pulls, (lower, upper) = state.counts.pulls, (bound["theta"] for bound in self.bounds())
        if not np.floor(lower) <= state.length <= np.ceil(upper) or state.decided < state.counts.rounds:
            raise InputError("length or decided in memory is out of range")
        if (pulls < 0).any() or (pulls != np.floor(pulls)).any() or (pulls > state.length).any():
            raise InputError("pulls in memory must be whole numbers, and no more than the length")
