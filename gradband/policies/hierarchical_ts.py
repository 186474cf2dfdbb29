"""Thompson sampling for arms that vary around an unknown level, as in past experiments."""

import dataclasses
import math
from typing import ClassVar

import numpy as np

from gradband.core.arrays import Array, lgamma, namespace
from gradband.core.errors import number, positive
from gradband.policies.base import LEAST, MOST, Believing, Counts, Params
from gradband.policies.best_arm import best_probabilities
from gradband.policies.thompson import MOST_SAMPLES, share_out
from gradband.solvers.levels import LEVELS, levels_of

RARE = 1e-12  # levels that are less likely than this change nothing


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

    def check_play(self) -> None:
        super().check_play()
        number("strength of hierarchical-ts", self.strength, LEAST, MOST)

    def probabilities(self, params: Params, state: Counts) -> Array:
        """Each arm's posterior chance of being best, by quadrature in NumPy; JAX has samples only."""
        if namespace(state.pulls) is not np:
            return super().probabilities(params, state)
        levels, log_prior = levels_of(self.a, self.b)
        ups, downs = self.strength * levels[:, None], self.strength * (1 - levels[:, None])
        ones, zeros = state.sums, state.pulls - state.sums
        likely = lgamma(ups + ones) - lgamma(ups) + lgamma(downs + zeros) - lgamma(downs)
        likely -= lgamma(self.strength + state.pulls) - math.lgamma(self.strength)
        log_weights = likely.sum(1) + log_prior
        weights = np.exp(log_weights - log_weights.max())
        p = np.zeros(len(ones))
        for weight, up, down in zip(weights, ups, downs, strict=True):
            if weight > RARE:
                p += weight * best_probabilities(up + ones, down + zeros)
        return p / p.sum()

    def sampled(self, key: Array, state: Counts, draws: int) -> Array:
        """Means [draws, K] from the posterior."""
        import jax.numpy as jnp
        from jax.scipy.special import gammaln

        from gradband.core import prng

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
        return self.sampled(key, state, 1)[0].argmax()

    def allocate(self, key: Array, params: Params, state: Counts, batch: int) -> Array:
        return share_out(self.sampled(key, state, min(batch, MOST_SAMPLES)), batch)
