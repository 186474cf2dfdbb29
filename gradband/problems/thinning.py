"""Checks a prior's promise without any model.

A sample of each arm's pulls explores, the best arm in it is chosen, and the remaining pulls show how good
that arm is. The prior predicts the same quantity for experiments of the same sizes. If the two disagree,
every gain computed from this prior is off as well.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from gradband.core.statistics import Mean
from gradband.problems import posteriors, priors, shrinkage
from gradband.problems.past_experiments import Experiments

SHARES = (0.1, 0.25, 0.5)  # of the pulls that explore
TIMES = 40  # repetitions for each experiment
FEWEST = 10  # experiments to conclude from


@dataclasses.dataclass(frozen=True)
class Check:
    """The winner's gain over the mean arm per thousand pulls, real and promised."""

    share: float
    """of the pulls that were explored"""
    experiments: int
    real: Mean
    promised: float
    difference: Mean
    """promised − real, paired by experiment"""

    @property
    def z(self) -> float:
        return self.difference.mean / self.difference.se if self.difference.se > 0 else math.inf

    @property
    def holds(self) -> bool | None:
        """Whether the promise is within two standard errors, or None if experiments are too few."""
        return None if self.experiments < FEWEST else abs(self.z) <= 2

    def as_dict(self) -> dict[str, Any]:
        return {
            "explored": self.share,
            "experiments": self.experiments,
            "real": vars(self.real),
            "promised": self.promised,
            "holds": self.holds,
        }


def check(
    prior: priors.Prior, experiments: Experiments, arms: int, given: bool = True, seed: int = 0
) -> tuple[Check, ...]:
    """A prior's promise beside what came true, for each share explored.

    The promise comes from posterior draws `given` the counts, or from draws of the prior itself. Of
    experiments with more arms, K at random are used; those with fewer are skipped. There is no check if
    successes in [0, 1] are not whole numbers, which cannot be thinned. With revenue, the mean of a part of
    the pulls is normal around the mean of all; if buyers are known, some fall into that part, and pay a
    share of the amounts.
    """
    large = experiments.only(np.flatnonzero(experiments.sizes >= arms))
    fractions = (large.pulls % 1).any() or (large.variances is None and (large.successes % 1).any())
    if len(large) == 0 or large.pulls.min() < 2 or fractions or not shrinkage.shrinks(prior):
        return ()
    chosen = shrinkage.sized(large, arms, np.random.default_rng(seed))
    known = chosen if given else chosen.mapped(chosen.starts, np.zeros_like)
    return tuple(compare(prior, chosen, known, share, seed) for share in SHARES)


def compare(
    prior: priors.Prior, experiments: Experiments, known: Experiments, share: float, seed: int
) -> Check:
    """Real gains if a share of the pulls explores, and those promised given what is `known`."""
    rng, shape = np.random.default_rng([seed, round(1000 * share)]), (len(experiments), -1)
    pulls = experiments.pulls.astype(np.int64).reshape(shape)
    explored = np.clip(np.round(share * pulls).astype(np.int64), 1, pulls - 1)
    posterior = posteriors.posterior_of(prior)
    edges = posterior.edges(known)
    real, promised = np.zeros(len(experiments)), np.zeros(len(experiments))
    for _ in range(TIMES):
        real += gains(*posterior.thinned(experiments, explored, rng), rng)
        drawn = posterior.means(edges, known, rng)
        promised += gains(*posterior.sampled(drawn, experiments, explored, rng), rng)
    real, promised = 1000 / TIMES * real, 1000 / TIMES * promised
    return Check(share, len(experiments), Mean.of(real), float(promised.mean()), Mean.of(promised - real))


def gains(seen: np.ndarray, rates: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The rate of the arm that was seen to be best, less the mean arm's [E]; ties are broken at random."""
    best = seen == seen.max(1, keepdims=True)
    winner = (best * rng.random(best.shape)).argmax(1)
    return rates[np.arange(len(rates)), winner] - rates.mean(1)
