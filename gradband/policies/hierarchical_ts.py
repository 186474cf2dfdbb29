"""Thompson sampling for arms that vary around an unknown level, as in past experiments."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

from gradband.core import prng
from gradband.core.errors import positive
from gradband.policies.base import Believing, Counts, Params
from gradband.policies.thompson import MOST_SAMPLES, share_out
from gradband.solvers.levels import LEVELS, levels_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class HierarchicalTS(Believing):
    """The best arm of a posterior sample, where ℓ ~ Beta(a, b) and μ_i ~ Beta(κ ℓ, κ (1 − ℓ)).

    κ is the `strength`. The level's posterior is taken on a grid; given the level, means are beta and
    independent. So what one arm pays tells of the others.
    """

    name: ClassVar[str] = "hierarchical-ts"
    differentiable: ClassVar[bool] = False
    strength: float = 10.0

    def check(self) -> None:
        super().check()
        positive("strength of hierarchical-ts", self.strength)

    def sampled(self, key: Array, state: Counts, draws: int) -> Array:
        """Means [draws, K] from the posterior."""
        levels, log_prior = levels_of(self.a, self.b)
        ups = jnp.asarray(self.strength * levels, jnp.float32)[:, None]
        downs = jnp.asarray(self.strength * (1 - levels), jnp.float32)[:, None]
        ones, zeros = state.sums[None], (state.pulls - state.sums)[None]
        likely = gammaln(ups + ones) - gammaln(ups) + gammaln(downs + zeros) - gammaln(downs)
        log_weights = likely.sum(1) + jnp.asarray(log_prior, jnp.float32)
        edges = jnp.cumsum(jnp.exp(log_weights - log_weights.max()))
        u = prng.uniforms(key, draws)[:, None] * edges[-1]
        chosen = jnp.minimum((u >= edges[None]).sum(1), LEVELS - 1)
        # A selection, since gathers are slow: the level of each draw.
        picked = (jnp.arange(LEVELS)[None] == chosen[:, None]).astype(jnp.float32)
        level = (picked * jnp.asarray(levels, jnp.float32)[None]).sum(1)[:, None]
        a = (self.strength * level + ones).reshape(-1)
        b = (self.strength * (1 - level) + zeros).reshape(-1)
        return prng.beta(prng.fold_in(key, jnp.uint32(2)), a, b).reshape(draws, self.arms)

    def act(self, key: Array, params: Params, state: Counts) -> Array:
        return jnp.argmax(self.sampled(key, state, 1)[0])

    def allocate(self, key: Array, params: Params, state: Counts, batch: int) -> Array:
        return share_out(self.sampled(key, state, min(batch, MOST_SAMPLES)), batch)
