"""Policies that remember counts: of pulls, and sums of rewards."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from gradband.core.arrays import Array, add_at, namespace
from gradband.core.errors import InputError, number
from gradband.policies.counts import Counts
from gradband.policies.policy import Greatest, Params, Policy, State
from gradband.policies.settings import Positive

LEAST, MOST = 1e-6, 1e12  # of a beta distribution's parameters, for its integration in NumPy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counting(Policy):
    """A policy that remembers counts. Set `opens` to have it pull each arm once before anything else."""

    batches: ClassVar[bool] = True
    flexible: ClassVar[bool] = True
    forgets: ClassVar[bool] = False
    """Remembers less of what is long ago, so that counts do not determine its state."""

    def begin(self, params: Params, latent: Array) -> Any:
        return Counts.zeros(self.arms, namespace(latent))

    def update(self, params: Params, state: Any, arm: Array, reward: Array) -> Any:
        return state.add(arm, reward)

    def update_many(self, params: Params, state: Any, pulls: Array, sums: Array) -> Any:
        return state.add_many(pulls, sums)

    def correct(self, state: Any, arm: int, heard: float, reward: float, p: float) -> Any:
        if not self._remembers_counts(state):
            return None
        return state._replace(sums=add_at(state.sums, arm, reward - heard))

    def correct_many(self, state: Any, heard: Array, sums: Array, p: Array) -> Any:
        return state._replace(sums=state.sums + sums - heard) if self._remembers_counts(state) else None

    def _remembers_counts(self, state: Any) -> bool:
        """Whether a state is counts and nothing more, updated as they usually are."""
        return isinstance(state, Counts) and type(self).update is Counting.update

    def counts(self, state: Any) -> Counts:
        """The counts in a state."""
        return state

    def next_probabilities(self, params: Params, state: Any) -> Array:
        if not self.opens:
            return self.probabilities(params, state)
        log_probs = self.next_log_probs(params, state, self.counts(state).rounds)
        return namespace(log_probs).exp(log_probs)

    def estimates(self, params: Params, state: Any) -> Array:
        """Estimates [K] of the arms' means; `recommend` returns the arm with the greatest."""
        counts = self.counts(state)
        xp = namespace(counts.pulls)
        return xp.where(counts.pulls > 0, counts.means, -xp.inf)

    def recommend(self, params: Params, state: Any) -> Array:
        return self.estimates(params, state).argmax()

    def after(self, counts: Counts) -> State:
        """The state after rewards of 0 and 1 with these counts."""
        return counts

    def check_state(self, state: Any, rounds: int) -> None:
        counts = self.counts(state)
        pulls, sums = counts.pulls, counts.sums
        gone = 0 if counts.gone is None else counts.gone
        if (pulls < 0).any() or (pulls != np.floor(pulls)).any() or gone < 0 or counts.rounds > rounds:
            raise InputError("pulls in memory must be whole numbers, and no more than the rounds")
        if (self.unit or self.binary) and ((sums < -1e-9) | (sums > pulls + 1e-9 * (1 + pulls))).any():
            raise InputError("sums in memory must be between 0 and the pulls")
        if self.binary and (sums != np.floor(sums)).any():
            raise InputError(
                f"{self.name} observes zeros and ones, so sums in memory must be whole numbers"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Believing(Counting):
    """A policy whose belief about an arm's mean is Beta(a + ones, b + zeros).

    Rewards strictly between 0 and 1 are rounded at random to 0 or 1.
    """

    binary: ClassVar[bool] = True
    a: Positive = 1.0
    b: Positive = 1.0

    def check_play(self) -> None:
        number(f"a of {self.name}", self.a, LEAST, MOST)
        number(f"b of {self.name}", self.b, LEAST, MOST)

    def posterior(self, counts: Counts) -> tuple[Array, Array]:
        """The parameters [K] of the arms' beta posteriors."""
        return self.a + counts.sums, self.b + counts.pulls - counts.sums

    def estimates(self, params: Params, state: Any) -> Array:
        return (self.a + state.sums) / (self.a + self.b + state.pulls)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Index(Greatest, Counting):
    """A policy of counts that pulls the arm with the greatest index."""
