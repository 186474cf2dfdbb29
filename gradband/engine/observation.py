"""What is observed of a round, and running sums of regret."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from gradband.problems import Problem

FAULT = 1e-3  # rounding in float32 stays below this


class Round(NamedTuple):
    """What is observed of a round; `mean` and `best_…` are None where means are unknown."""

    t: Array
    """rounds before this one"""
    arm: Array | None
    """the pulled arm [R, B]; None in batches"""
    log_prob: Array
    """its log p [R, B], 0 for policies without a density; of a batch the sum over its pulls"""
    reward: Array
    """realised reward Y of the pulled arm [R, B], or the sum of a batch"""
    all_rewards: Callable[[], Array] | None
    """realised rewards of all arms [K, 1, B], drawn only if asked for"""
    mean: Array | None = None
    """mean reward μ of the pulled arm [R, B]"""
    means: Array | None = None
    """mean rewards of all arms [K, 1, B]"""
    best_reward: Array | None = None
    """realised reward of the best arm [1, B]"""
    best_mean: Array | None = None
    """mean reward of the best arm [1, B]"""
    slope: Array | None = None
    """the gradient of the pulled arm's log p [P, R, B], if requested"""
    log_probs: Array | None = None
    """log p of all arms [K, R, B]; None for policies without a density"""
    luck: Array | None = None
    """what the policy observes minus the pulled arm's mean [R, B]"""
    after: tuple[Array, Array] | None = None
    """log p of all arms [K, R, B] in the next round if the reward had been 0 or 1, if requested"""
    off: Array | None = None
    """how far probabilities are from a sum of 1, or a reward from its range [R, B]"""
    reference: Array | None = None
    """of the reference, if there is one: its probabilities of all arms [K, R, B], its choice as 0 and 1, or
    the judge's numbers"""
    pulls: Array | None = None
    """in batches, how often each arm is pulled [K, R, B]"""
    sums: Array | None = None
    """in batches, the rewards of each arm [K, R, B]"""
    heard: tuple[Array, Array] | None = None
    """with a delay, the pulls and sums of rewards [K, R, B] that the policy observes after this round"""
    state: Any = None
    """what the policy remembered before the pull, leaves [..., R, B]"""


class Sum(NamedTuple):
    """A running sum that is corrected for rounding (Kahan, 1965).

    In float32, a million plain additions of .6 would be off by a percent.
    """

    value: Array
    excess: Array
    """how much too large the value is"""

    @classmethod
    def zero(cls, like: Array) -> "Sum":
        return cls(jnp.zeros_like(like), jnp.zeros_like(like))

    def add(self, term: Array) -> "Sum":
        term = term - self.excess
        value = self.value + term
        return Sum(value, (value - self.value) - term)


class Regret(NamedTuple):
    """Regret so far: by means where they are known, else against the best arm in hindsight."""

    lost: Sum
    """Σ (μ* − μ) of the pulled arms, or minus the realised rewards [R, B]"""
    off: Array
    """the greatest fault of a round [R, B]"""
    totals: Sum | None
    """realised rewards of every arm [K, 1, B], where means are unknown"""

    @classmethod
    def zero(cls, problem: Problem, zeros: Array) -> "Regret":
        arms = None
        if not problem.prior.knows_means:
            arms = Sum.zero(jnp.zeros((problem.arms, 1, zeros.shape[-1])))
        return cls(Sum.zero(zeros), zeros, arms)

    def add(self, round: Round) -> "Regret":
        off = self.off if round.off is None else jnp.maximum(self.off, round.off)
        if round.best_mean is not None and round.mean is not None:
            return Regret(self.lost.add(round.best_mean - round.mean), off, None)
        assert self.totals is not None
        assert round.all_rewards is not None
        return Regret(self.lost.add(-round.reward), off, self.totals.add(round.all_rewards()))

    @property
    def total(self) -> Array:
        """Regrets [R, B], NaN where a round had a fault."""
        total = self.lost.value if self.totals is None else self.lost.value + self.totals.value.max(0)
        return jnp.where(self.off < FAULT, total, jnp.nan)
