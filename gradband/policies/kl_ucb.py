"""KL-UCB: upper confidence bounds by Kullback–Leibler divergence (Garivier and Cappé, 2011)."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import xlogy

from gradband.core.errors import number
from gradband.policies.base import Counts, Index, Params

STEPS = 10  # of Newton's method, which comes from the right and never oversteps


@dataclasses.dataclass(frozen=True, kw_only=True)
class KLUCB(Index):
    """Each arm once, then the greatest q ≤ 1 with T_i kl(μ̂_i, q) ≤ log t + c log log t.

    kl is the divergence of two Bernoulli variables; rewards may be any in [0, 1]. The authors' proof
    has c = 3, and they recommend c = 0, the default.
    """

    name: ClassVar[str] = "kl-ucb"
    unit: ClassVar[bool] = True
    c: float = 0.0

    def check(self) -> None:
        super().check()
        number("c of kl-ucb", self.c, 0, 1e6)

    def index(self, params: Params, state: Counts) -> Array:
        log_t = jnp.log(state.rounds + 1)
        budget = log_t + self.c * jnp.log(jnp.maximum(log_t, 1))
        bound = upper_bound(state.means, budget / jnp.maximum(state.pulls, 1))
        return jnp.where(state.pulls == 0, jnp.inf, bound)


def upper_bound(mean: Array, divergence: Array) -> Array:
    """The q ≥ p = `mean` with kl(p, q) = `divergence`.

    kl(p, ·) is convex and grows on [p, 1], so that Newton's steps from the right fall towards the solution.
    They start at the lesser of what follows from kl(p, q) ≥ 2 (q − p)² and from
    kl(p, q) ≥ p log p + (1 − p) log((1 − p) / (1 − q)).
    """
    most = 1 - jnp.finfo(mean.dtype).eps
    rest = jnp.maximum(1 - mean, jnp.finfo(mean.dtype).eps)
    tail = 1 - rest * jnp.exp(-(divergence - xlogy(mean, mean)) / rest)
    q = jnp.clip(jnp.minimum(mean + jnp.sqrt(divergence / 2), tail), mean, most)
    entropy = xlogy(mean, mean) + xlogy(1 - mean, 1 - mean)
    for _ in range(STEPS):
        excess = entropy - xlogy(mean, q) - xlogy(1 - mean, 1 - q) - divergence
        slope = (q - mean) / jnp.maximum(q * (1 - q), 1e-30)
        q = jnp.clip(q - jnp.where(slope > 0, excess / jnp.maximum(slope, 1e-30), 0), mean, most)
    return q
