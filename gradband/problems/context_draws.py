"""Tests with features: posterior draws of past experiments, and draws of fitted priors."""

import itertools
from typing import Any

import numpy as np

from gradband.problems import priors
from gradband.problems.context_fit import Padded, likelihood_of, pool
from gradband.problems.context_posterior import Posterior, levels_of
from gradband.problems.context_rows import ContextRows
from gradband.problems.priors.past_contexts import PastContexts, Tests


def likeliest(candidates: list[Any], found: ContextRows) -> priors.Prior:
    """The prior under which experiments are most likely."""
    scores = [log_likelihood(prior, found).sum() for prior in candidates]
    best: priors.Prior = candidates[int(np.argmax(scores))]
    return best


def log_likelihood(prior: priors.Prior, found: ContextRows) -> np.ndarray:
    """The log-likelihood of each experiment [E], up to a constant that linear priors share."""
    dims = found.features.shape[1]
    return likelihood_of(levels_of(prior, dims), Padded.of(found, np.ones(dims)))


class Source:
    """Where tests come from: experiments with features, and the fitted prior of the problem."""

    def __init__(self, prior: Any, found: ContextRows, seed: int) -> None:
        self.prior, self.found = prior, found
        self.arms, self.pool = prior.arms, np.asarray(prior.pool, float)
        self.rng = np.random.default_rng(seed)
        self.pools = self.pool[None]
        if prior.shares_context:
            rows = [slice(*ends) for ends in itertools.pairwise(found.starts)]
            own = [pool(found.features[part], found.pulls[part]) for part in rows]
            self.pools = np.stack([*own, pool(self.pool, np.ones(len(self.pool)))])

    def given_results(self, prior: priors.Prior, count: int) -> tuple[PastContexts, np.ndarray]:
        """Tests whose arms are posterior draws under a prior, and the experiment of each [count].

        They cycle through the experiments in random order. Each has K of its experiment's arms at random;
        if there are fewer, the others are new arms. Features of visitors are the experiment's.
        """
        found, posterior = self.found, Posterior.of(prior, self.found)
        owner = np.resize(self.rng.permutation(len(found)), count)
        theta = np.zeros((count, self.arms, self.pool.shape[1]))
        features = np.zeros_like(theta)
        for e in np.unique(owner):
            mine = np.flatnonzero(owner == e)
            rows = slice(found.starts[e], found.starts[e + 1])
            new = max(self.arms - found.arms[e], 0)
            drawn = posterior.draw(e, len(mine), new, self.rng)
            order = self.rng.random(drawn.shape[:2]).argsort(1)[:, : self.arms, None]
            theta[mine] = np.take_along_axis(drawn, order, 1)
            if not self.prior.shares_context:
                known = np.broadcast_to(found.features[rows], (len(mine), *found.features[rows].shape))
                x = np.concatenate([known, self._drawn(len(mine), new)], axis=1)
                features[mine] = np.take_along_axis(x, order, 1)
        shared = self.prior.shares_context
        return self.tests(theta, None if shared else features, owner if shared else None), owner

    def of_prior(self, prior: priors.Prior, count: int) -> PastContexts:
        """Tests whose arms are draws of a prior, with features as in all experiments."""
        levels = levels_of(prior, self.pool.shape[1])
        theta = levels.draw(count, self.arms, self.rng)
        if self.prior.shares_context:
            return self.tests(theta, None, np.full(count, len(self.found)))
        return self.tests(theta, self._drawn(count, self.arms), None)

    def _drawn(self, count: int, arms: int) -> np.ndarray:
        """Features [count, arms, d] of new arms."""
        return self.pool[self.rng.integers(len(self.pool), size=(count, arms))]

    def tests(self, theta: np.ndarray, features: Any, place: Any) -> PastContexts:
        found = Tests(theta, features, place, np.ones(len(theta)))
        return PastContexts.of(found, self.pools, self.prior.rewards)
