"""Variance-based information-directed sampling on linear beliefs (Russo and Van Roy, 2018)."""

import dataclasses
import math
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from gradband.core.errors import whole
from gradband.core.special import normal_quantiles
from gradband.policies.base import Array, namespace, nn
from gradband.policies.beliefs import Seen
from gradband.policies.ids import BestArmBelief, Directed
from gradband.policies.linear_policy import LinearPolicy


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinVarianceDirected(Directed, LinearPolicy):
    """Minimises (expected regret)² / variance of E(μ_i | which arm is best), in every round.

    Expectations are means over `samples` of θ from the posterior. A round's samples depend on its number
    alone, so that a player draws the same ones as rollouts.
    """

    name: ClassVar[str] = "lin-v-ids"
    samples: Annotated[int, partial(whole, most=10_000)] = 200

    def sampled(self, seen: Seen) -> Array:
        """Expected rewards [samples, K] from the posterior."""
        xp, rounds = namespace(seen.mean), seen.belief.rewards
        if self.model == "linear":
            z = scattered(rounds, (self.samples, self.coordinates), seen.mean.dtype)
            drawn = seen.mean[None] + (z[:, None, :] * seen.spread[None]).sum(2)
        else:
            z = scattered(rounds, (self.samples, self.arms), seen.mean.dtype)
            drawn = seen.mean[None] + z * xp.sqrt(seen.variance)[None]
        return nn(drawn).sigmoid(drawn) if self.link == "logistic" else drawn

    def belief(self, seen: Seen) -> BestArmBelief:
        """The belief about the best arm, from samples."""
        means = self.sampled(seen)
        xp, count = namespace(means), means.shape[0]
        is_best = (xp.arange(self.arms)[None] == means.argmax(axis=1)[:, None]).astype(means.dtype)
        best, centre = is_best.sum(0), means.mean(0)
        totals = (is_best[:, :, None] * means[:, None, :]).sum(0)
        given = xp.where(best[:, None] > 0, totals / xp.maximum(best, 1)[:, None], centre[None])
        return BestArmBelief(best / count, centre, given)


def scattered(rounds: Array, shape: tuple[int, int], dtype: Any) -> Array:
    """Standard normal numbers that depend on their places and the number of rounds alone.

    >>> scattered(np.array(3.0), (2, 2), np.float64).round(3).tolist()
    [[-1.549, 1.629], [0.304, -0.084]]
    """
    xp = namespace(rounds)
    places = np.arange(math.prod(shape), dtype=np.uint32).reshape(shape)
    bits = places + xp.asarray(rounds).astype(np.uint32)[None, None] * np.uint32(0x9E3779B9)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = (bits ^ (bits >> np.uint32(shift))) * np.uint32(factor)
    bits = bits ^ (bits >> np.uint32(16))
    u = ((bits >> np.uint32(9)).astype(dtype) + 0.5) * 2.0**-23
    if xp is np:
        return normal_quantiles(u)
    import jax

    return math.sqrt(2) * jax.lax.erf_inv(2 * u - 1)
