"""How tests end: pulls and rewards of each arm, and the recommended arm."""

import dataclasses
from typing import Unpack

import jax
import numpy as np

from gradband.core import prng
from gradband.core.errors import InputError
from gradband.engine import blocks, diagnosis, measure
from gradband.engine.blocks import Where
from gradband.policies import given
from gradband.policies.given import Given
from gradband.problems import Problem, priors


@dataclasses.dataclass(frozen=True)
class Endings:
    """The ends of m tests whose means [m, K] are known."""

    means: np.ndarray
    pulls: np.ndarray
    """of each arm [m, K]"""
    sums: np.ndarray
    """of each arm's rewards [m, K]"""
    arm: np.ndarray
    """that is recommended in the end [m]"""

    @property
    def rewards(self) -> np.ndarray:
        """Expected successes [m] of the arms that were pulled."""
        return (self.pulls * self.means).sum(1)

    @property
    def recommended(self) -> np.ndarray:
        """Means [m] of the recommended arms."""
        return np.take_along_axis(self.means, self.arm[:, None], 1)[:, 0]

    @property
    def best(self) -> np.ndarray:
        """Means [m] of the best arms."""
        return self.means.max(1)

    @property
    def inferior(self) -> np.ndarray:
        """The share of pulls [m] of arms that are not the best."""
        worse = self.means < self.best[:, None]
        return (self.pulls * worse).sum(1) / self.pulls.sum(1)

    def first(self, count: int) -> "Endings":
        """The first of these tests."""
        parts = (getattr(self, field.name)[:count] for field in dataclasses.fields(self))
        return Endings(*parts)


def play_to_the_end(
    entry: Given, problem: Problem, means: np.ndarray, seed: int, **where: Unpack[Where]
) -> Endings:
    """The ends of tests with these means [m, K], or arms as rewards describe them, each played once.

    `problem` says how many pulls there are, and how many per round. `where` has the `devices`, the `memory`
    and the `engine` of `evaluate`.
    """
    drawn = priors.Drawn(means, 0, problem.prior.rewards)
    fresh = problem.replace(prior=drawn.fresh(), afterwards=1)
    policy, params = given.bind(entry, fresh, seed)
    key = prng.stream(prng.root(seed), "evaluation")
    on = blocks.workers(**where)
    fresh, count = jax.device_put(fresh), len(means)
    results = blocks.map_blocks(measure.endings_job(policy, fresh, params, key, count), on)
    pulls, sums, arm = (blocks.join(pieces, count) for pieces in zip(*results, strict=True))
    if fault := diagnosis.fault(policy, fresh, params, key, arm):
        raise InputError(fault)
    return Endings(
        drawn.all_means if drawn.parts else np.asarray(means, np.float64),
        pulls.T,
        sums.T,
        arm.astype(np.int64),
    )


def split_to_the_end(
    problem: Problem, means: np.ndarray, share: float, rng: np.random.Generator
) -> Endings:
    """The ends of tests that show all arms equally for a share of the pulls, in whole batches, and then
    the arm that was best so far; of equal arms any.

    It is what `uniform` (share 1) and `split` play, drawn at once.
    """
    batch = problem.pulls_per_round
    explored = min(problem.horizon, int(np.ceil(share * problem.rounds)) * batch)
    seen = rng.multinomial(explored, np.full(problem.arms, 1 / problem.arms), len(means))
    won = rng.binomial(seen, means)
    rates = np.where(seen > 0, won / np.maximum(seen, 1), -1)
    best = rates == rates.max(1, keepdims=True)
    arm = (best * rng.random(best.shape)).argmax(1)
    rest = np.zeros_like(seen)
    rest[np.arange(len(means)), arm] = problem.horizon - explored
    won = won + rng.binomial(rest, means)
    return Endings(np.asarray(means, np.float64), (seen + rest).astype(float), won.astype(float), arm)
