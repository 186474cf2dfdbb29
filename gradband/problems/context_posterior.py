"""What results of an experiment with features say about its arms: draws of θᵢ under a fitted linear prior.

A draw from the prior is corrected by what the rows show beyond it (Matheron's rule), which is exact if the
noise of the rows is normal: for means. So it is in Laplace's approximation for successes, which proposes
draws; they are accepted as Metropolis and Hastings have it, and so come from the posterior itself. Both
have the prior in common, so all it takes is the likelihood of the rows.
"""

import dataclasses
from typing import Any

import numpy as np
import scipy  # whose parts are imported when they are needed

from gradband.problems import priors
from gradband.problems.context_fit import Levels, Padded, modes
from gradband.problems.context_rows import ContextRows

STEPS = 12  # proposals for each draw


def levels_of(prior: Any, dims: int) -> Levels:
    """The distribution of θᵢ under a fitted prior; features that it does not have count nothing."""

    def spread(values: Any) -> np.ndarray:
        given = np.ones(prior.dims) * np.asarray(values, float)
        return np.concatenate([given, np.zeros(dims - prior.dims)])

    if isinstance(prior, priors.LinearByArm):
        return Levels(spread(prior.mean), spread(prior.between) ** 2, spread(prior.within) ** 2)
    within = np.zeros(dims)
    within[0] = (prior.own or 0.0) ** 2
    return Levels(spread(prior.mean), spread(prior.within) ** 2, within)


@dataclasses.dataclass(frozen=True)
class Posterior:
    """What the results of all experiments say."""

    levels: Levels
    found: ContextRows
    seen: Padded
    targets: np.ndarray
    """what rows show of their linear functions [E, R] …"""
    noise: np.ndarray
    """… with this variance, infinite for rows without pulls"""

    @classmethod
    def of(cls, prior: priors.Prior, found: ContextRows) -> "Posterior":
        dims = found.features.shape[1]
        levels, seen = levels_of(prior, dims), Padded.of(found, np.ones(dims))
        there = seen.pulls > 0
        if seen.noise is not None:
            mean = seen.sums / np.maximum(seen.pulls, 1)
            return cls(levels, found, seen, mean, np.where(there, seen.noise, np.inf))
        f, _ = modes(seen, seen.x @ levels.mean, levels.covariance(seen.x, seen.same))
        p = scipy.special.expit(f)
        weight = np.maximum(seen.pulls * p * (1 - p), 1e-12)
        targets = f + (seen.sums - seen.pulls * p) / weight
        return cls(levels, found, seen, targets, np.where(there, 1 / weight, np.inf))

    def draw(self, e: int, count: int, new: int, rng: np.random.Generator) -> np.ndarray:
        """θ [count, A, d] of the arms of an experiment, and of `new` ones of which nothing is known."""
        found, rows = self.found, slice(self.found.starts[e], self.found.starts[e + 1])
        _, arm = np.unique(found.arm[rows], return_inverse=True)
        size, kept = arm.max() + 1 + new, np.flatnonzero(self.noise[e, : len(arm)] < np.inf)
        if not len(kept):
            return self.levels.draw(count, size, rng)
        x, arm = found.features[rows][kept], arm[kept]
        cov = self.levels.covariance(x, arm[:, None] == arm)
        noise, targets = self.noise[e, kept], self.targets[e, kept]
        solve = np.linalg.inv(cov + np.diag(noise))
        own = (np.arange(size)[:, None] == arm)[..., None] * x * self.levels.within  # [A, R, d]
        gain = own + (x * self.levels.between)[None]

        def proposed() -> tuple[np.ndarray, np.ndarray]:
            drawn = self.levels.draw(count, size, rng)
            f = (drawn[:, arm] * x).sum(2)
            off = targets - f - np.sqrt(noise) * rng.normal(size=f.shape)
            drawn = drawn + np.einsum("nr,ard->nad", off @ solve, gain)
            return drawn, self._excess(e, kept, (drawn[:, arm] * x).sum(2))

        theta, weight = proposed()
        for _ in range(STEPS if self.seen.noise is None else 0):
            other, better = proposed()
            accepted = np.log(rng.random(count)) < better - weight
            theta = np.where(accepted[:, None, None], other, theta)
            weight = np.where(accepted, better, weight)
        return theta

    def _excess(self, e: int, rows: np.ndarray, f: np.ndarray) -> np.ndarray:
        """Log-likelihoods [count] of successes at f [count, R], beyond those of Laplace's approximation."""
        if self.seen.noise is not None:
            return np.zeros(len(f))
        n, s = self.seen.pulls[e, rows], self.seen.sums[e, rows]
        right = s * scipy.special.log_expit(f) + (n - s) * scipy.special.log_expit(-f)
        near = -((self.targets[e, rows] - f) ** 2) / (2 * self.noise[e, rows])
        return (right - near).sum(1)
