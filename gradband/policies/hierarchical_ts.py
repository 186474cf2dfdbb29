"""Thompson sampling for arms that vary around an unknown level, as in past experiments."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

from gradband.core import prng
from gradband.core.errors import number, positive
from gradband.policies.base import Believing, Counts, Params
from gradband.policies.thompson import MOST_SAMPLES, share_out
from gradband.solvers.levels import MOST_SLOPE, MOST_SPREAD, components_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class HierarchicalTS(Believing):
    """The best arm of a posterior sample, where ℓ ~ Beta(a, b) and μ_i ~ Beta(κ ℓ, κ (1 − ℓ)).

    κ = `strength` · (ℓ / m)^−`slope` · exp(`spread` · ε), as in the hierarchical prior. The posterior of
    ℓ and κ is taken on a grid; given these, means are beta and independent. So what one arm pays tells of
    the others.
    """

    name: ClassVar[str] = "hierarchical-ts"
    differentiable: ClassVar[bool] = False
    strength: float = 10.0
    spread: float = 0.0
    slope: float = 0.0

    def check(self) -> None:
        super().check()
        positive("strength of hierarchical-ts", self.strength)
        number("spread of hierarchical-ts", self.spread, 0, MOST_SPREAD)
        number("slope of hierarchical-ts", self.slope, -MOST_SLOPE, MOST_SLOPE)

    def sampled(self, key: Array, state: Counts, draws: int) -> Array:
        """Means [draws, K] from the posterior."""
        components = components_of(self.a, self.b, self.strength, self.spread, self.slope)
        log_prior, ups, downs = (jnp.asarray(x, jnp.float32)[:, None] for x in components)
        ones, zeros = state.sums[None], (state.pulls - state.sums)[None]
        likely = gammaln(ups + ones) - gammaln(ups) + gammaln(downs + zeros) - gammaln(downs)
        likely += gammaln(ups + downs) - gammaln(ups + downs + ones + zeros)
        log_weights = likely.sum(1) + log_prior[:, 0]
        edges = jnp.cumsum(jnp.exp(log_weights - log_weights.max()))
        u = prng.uniforms(key, draws)[:, None] * edges[-1]
        chosen = jnp.minimum((u >= edges[None]).sum(1), len(edges) - 1)
        # A selection, since gathers are slow: the component of each draw.
        picked = (jnp.arange(len(edges))[None] == chosen[:, None]).astype(jnp.float32)
        a, b = ((picked * shape[:, 0][None]).sum(1)[:, None] for shape in (ups, downs))
        shapes = ((a + ones).reshape(-1), (b + zeros).reshape(-1))
        return prng.beta(prng.fold_in(key, jnp.uint32(2)), *shapes).reshape(draws, self.arms)

    def act(self, key: Array, params: Params, state: Counts) -> Array:
        return jnp.argmax(self.sampled(key, state, 1)[0])

    def allocate(self, key: Array, params: Params, state: Counts, batch: int) -> Array:
        return share_out(self.sampled(key, state, min(batch, MOST_SAMPLES)), batch)
