"""Exact posteriors of arms with beta rewards, Y ~ Beta(v μ, v (1 − μ)), and a Beta(a, b) prior.

The likelihood of k rewards is exp(v μ Σ logit y) / B(v μ, v (1 − μ))^k up to a constant, so k and
Σ logit y suffice. Single precision rounds many rewards to 0 or 1 if μ is near 0 or 1. So rewards within
2⁻¹⁶ of an end are treated alike. Their likelihood is an integral up to the end, which has the same form
with a factor 1/μ or 1/(1 − μ).

Posteriors are weights of cells of μ, which are narrower towards 0 and 1, as posteriors are.
"""

import dataclasses
import functools
import math
from typing import ClassVar, NamedTuple

import numpy as np

from gradband.core.special import lgamma
from gradband.policies.base import Array, Counting, Counts, Params, Positive, add_at, namespace

END = 2.0**-16  # rewards nearer to 0 or 1 are treated alike


class Evidence(NamedTuple):
    """Counts, sums of logit y [K], and how many rewards were at 0 and at 1 [K]."""

    counts: Counts
    logits: Array
    zeros: Array
    ones: Array

    def add(self, arm: Array, reward: Array, times: float = 1.0) -> "Evidence":
        """The evidence with a reward, or without it if `times` is −1."""
        xp = namespace(self.logits)
        inside = xp.clip(reward, END, 1 - END)
        logit = xp.log(inside) - xp.log1p(-inside)
        counts = self.counts
        return Evidence(
            Counts(add_at(counts.pulls, arm, times), add_at(counts.sums, arm, times * reward), counts.gone),
            add_at(self.logits, arm, times * logit),
            add_at(self.zeros, arm, times * (reward < END)),
            add_at(self.ones, arm, times * (reward > 1 - END)),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BetaEvidence(Counting):
    """A policy with exact beliefs about beta rewards with a known v, from a Beta(a, b) prior of means."""

    unit: ClassVar[bool] = True
    batches: ClassVar[bool] = False
    differentiable: ClassVar[bool] = False
    a: Positive = 1.0
    b: Positive = 1.0
    v: Positive = 4.0

    @property
    def cells(self) -> int:
        """Cells of a posterior: more for longer horizons, where posteriors are narrower."""
        return 64 * min(max(math.ceil(0.19 * math.sqrt(self.horizon)), 2), 24)

    def begin(self, params: Params, latent: Array) -> Evidence:
        xp = namespace(latent)
        return Evidence(super().begin(params, latent), *(xp.zeros(self.arms) for _ in range(3)))

    def counts(self, state: Evidence) -> Counts:
        return state.counts

    def after(self, counts: Counts) -> Evidence:
        farthest = math.log((1 - END) / END)
        zeros = counts.pulls - counts.sums
        return Evidence(counts, farthest * (counts.sums - zeros), zeros, counts.sums)

    def correct(self, state: Evidence, arm: int, heard: float, reward: float, p: float) -> Evidence:
        return state.add(arm, heard, -1.0).add(arm, reward)

    def weights(self, state: Evidence) -> tuple[Array, Array]:
        """Unnormalised weights [K, G] of cells, at most 1, and the middles [G] of cells."""
        xp = namespace(state.logits)
        middles, prior, slope, scale, low, high = (
            xp.asarray(x, state.logits.dtype)[None] for x in terms(self.a, self.b, self.v, self.cells)
        )
        logs = prior + slope * state.logits[:, None] - scale * state.counts.pulls[:, None]
        logs = logs - low * state.zeros[:, None] - high * state.ones[:, None]
        return xp.exp(logs - logs.max(1)[:, None]), middles[0]

    def moments(self, state: Evidence) -> tuple[Array, Array]:
        """Posterior means and variances [K]."""
        weights, middles = self.weights(state)
        weights = weights / weights.sum(1)[:, None]
        means = (weights * middles[None]).sum(1)
        return means, (weights * (middles[None] - means[:, None]) ** 2).sum(1)

    def estimates(self, params: Params, state: Evidence) -> Array:
        return self.moments(state)[0]


@functools.lru_cache(maxsize=16)
def terms(a: float, b: float, v: float, cells: int) -> tuple[np.ndarray, ...]:
    """Middles of cells, log prior weights, and what Σ logit y, k, zeros and ones are multiplied by [G]."""
    x = np.pi / 2 * (np.arange(cells) + 0.5) / cells
    mean, rest = np.sin(x) ** 2, np.cos(x) ** 2
    # The density of μ times the width of a cell, which is proportional to √(μ (1 − μ)).
    prior = (a - 0.5) * np.log(mean) + (b - 0.5) * np.log(rest)
    scale = lgamma(v * mean) + lgamma(v * rest) - math.lgamma(v)
    # Rewards near the ends have the likelihood of the end, times END / (v μ) or END / (v (1 − μ)).
    return mean, prior, v * (mean - 0.5), scale, np.log(mean), np.log(rest)
