"""Bayes-UCB: quantiles of the posterior (Kaufmann, Cappé and Garivier, 2012)."""

import dataclasses
from typing import ClassVar

import numpy as np

from gradband.policies.base import Array, Believing, Counts, Index, Params, namespace
from gradband.policies.beta_tail import upper_logits

STEPS = 4  # of Halley's method


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesUCB(Index, Believing):
    """The arm whose Beta(a + ones, b + zeros) posterior has the greatest 1 − 1/t quantile in round t.

    Rewards strictly between 0 and 1 are rounded at random to 0 or 1.
    """

    name: ClassVar[str] = "bayes-ucb"

    def index(self, params: Params, state: Counts) -> Array:
        tail = 1 / (state.rounds + 1)  # in round 1 the quantile is 0, and all arms are equal
        ones, zeros = self.posterior(state)
        xp = namespace(ones)
        if xp is np:
            return upper_logits(tail, ones, zeros)
        # The quantile minus 1, which distinguishes means near 1.
        return -beta_quantile(xp.broadcast_to(tail, ones.shape), zeros, ones)


def beta_quantile(p: Array, a: Array, b: Array) -> Array:
    """The x with I_x(a, b) = p in JAX, with a small relative error for small p.

    Halley's method, started from a normal approximation (Abramowitz and Stegun, 26.5.22), or from the
    distribution's ends if a or b is below 1.
    """
    import jax.numpy as jnp
    from jax.scipy.special import betainc, gammaln

    tail = jnp.sqrt(-2 * jnp.log(jnp.minimum(p, 1 - p) + 1e-30))
    z = (2.30753 + 0.27061 * tail) / (1 + tail * (0.99229 + 0.04481 * tail)) - tail
    z = jnp.where(p < 0.5, -z, z)
    inverse_a, inverse_b = 1 / jnp.maximum(2 * a - 1, 1), 1 / jnp.maximum(2 * b - 1, 1)
    h = 2 / (inverse_a + inverse_b)
    square = (z * z - 3) / 6
    w = z * jnp.sqrt(jnp.maximum(square + h, 0)) / h
    w = w - (inverse_b - inverse_a) * (square + np.float32(5 / 6) - 2 / (3 * h))
    middle = a / (a + b * jnp.exp(2 * w))
    left, right = jnp.exp(a * jnp.log(a / (a + b))) / a, jnp.exp(b * jnp.log(b / (a + b))) / b
    near_0 = (a * (left + right) * p) ** (1 / a)
    near_1 = 1 - (b * (left + right) * (1 - p)) ** (1 / b)
    ends = jnp.where(p < left / (left + right), near_0, near_1)
    least, most = jnp.finfo(p.dtype).tiny, 1 - jnp.finfo(p.dtype).eps / 2
    x = jnp.clip(jnp.where((a >= 1) & (b >= 1), middle, ends), least, most)
    scale = gammaln(a + b) - gammaln(a) - gammaln(b)
    for _ in range(STEPS):
        density = jnp.exp((a - 1) * jnp.log(x) + (b - 1) * jnp.log1p(-x) + scale)
        u = (betainc(a, b, x) - p) / jnp.maximum(density, least)
        step = u / (1 - 0.5 * jnp.minimum(1, u * ((a - 1) / x - (b - 1) / (1 - x))))
        x = jnp.clip(jnp.clip(x - step, x / 2, (1 + x) / 2), least, most)  # at most half way to an end
    return x
