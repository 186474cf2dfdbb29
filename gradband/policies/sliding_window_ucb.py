"""Sliding-window UCB (Garivier and Moulines, 2011)."""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

from gradband.core.arrays import Array, add_at, namespace, one_hot
from gradband.policies.base import Count, Counts, Index, InputError, Params, Positive


class Window(NamedTuple):
    """Counts of the last pulls [K], those pulls in a ring [W], and the number of all pulls."""

    pulls: Array
    sums: Array
    arms: Array
    rewards: Array
    seen: Array

    @property
    def means(self) -> Array:
        """Empirical means [K], 0 for arms without a pull in the window."""
        return self.sums / namespace(self.pulls).maximum(self.pulls, 1)

    @property
    def rounds(self) -> Array:
        return self.seen


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlidingWindowUCB(Index):
    """The arm with the greatest μ̂_i + √(ξ log(min(t, W)) / T_i) in round t, over the last W pulls alone.

    An arm without a pull in the window comes first. W is the `window`; 0 stands for 2 √(n log n), the
    authors' choice for one change in n rounds. Rewards are in [0, 1], and ξ = .6 is theirs.
    """

    name: ClassVar[str] = "sliding-window-ucb"
    unit: ClassVar[bool] = True
    batches: ClassVar[bool] = False
    flexible: ClassVar[bool] = False
    forgets: ClassVar[bool] = True
    window: Count = 0
    xi: Positive = 0.6

    @property
    def length(self) -> int:
        """W."""
        usual = math.ceil(2 * math.sqrt(self.horizon * math.log(max(self.horizon, 2))))
        return min(self.window or usual, self.horizon)

    def begin(self, params: Params, latent: Array) -> Window:
        zeros, size = namespace(latent).zeros, self.length
        return Window(zeros(self.arms), zeros(self.arms), zeros(size), zeros(size), zeros(()))

    def index(self, params: Params, state: Window) -> Array:
        xp = namespace(state.pulls)
        recent = xp.minimum(state.seen + 1, self.length)
        bonus = xp.sqrt(self.xi * xp.log(recent) / xp.maximum(state.pulls, 1))
        return xp.where(state.pulls == 0, xp.inf, state.means + bonus)

    def update(self, params: Params, state: Window, arm: Array, reward: Array) -> Window:
        xp, size = namespace(state.pulls, arm), self.length
        turn = state.seen - size * xp.floor(state.seen / size)
        here, full = one_hot(turn, size), xp.where(state.seen < size, 0.0, 1.0)
        left, gone = (xp.where(here, ring, 0).sum() for ring in (state.arms, state.rewards))
        pulls = add_at(add_at(state.pulls, arm, 1), _whole(left), -full)
        sums = add_at(add_at(state.sums, arm, reward), _whole(left), -full * gone)
        arms, rewards = xp.where(here, arm * 1.0, state.arms), xp.where(here, reward, state.rewards)
        return Window(pulls, sums, arms, rewards, state.seen + 1)

    def after(self, counts: Counts) -> Window:
        raise InputError(f"{self.name} needs its last pulls in order: counts do not determine them")

    def check_state(self, state: Any, rounds: int) -> None:
        whole_numbers = (state.pulls, state.arms, state.seen)
        if any((part != namespace(part).floor(part)).any() or (part < 0).any() for part in whole_numbers):
            raise InputError("pulls, arms and seen in memory must be whole numbers")
        within = min(float(state.seen), self.length)
        if state.seen > rounds or state.pulls.sum() != within or (state.arms >= self.arms).any():
            raise InputError("pulls in memory must be those of the window, and of arms that exist")
        for part in (state.rewards, state.sums - 1e-6, state.pulls - state.sums + 1e-6):
            if (part < -1e-6 * (1 + rounds)).any():
                raise InputError("rewards in memory must be between 0 and 1")


def _whole(place: Array) -> Array:
    return place.astype(int)
