"""Thompson sampling for arms that vary around an unknown level, as in past experiments."""

import dataclasses
from typing import Annotated, ClassVar

import numpy as np

from gradband.core.arrays import Array, namespace
from gradband.core.errors import number
from gradband.core.special import lgamma
from gradband.policies.base import Believing, Counts, Params, Positive, in_range
from gradband.policies.best_arm import best_probabilities
from gradband.policies.counting import LEAST, MOST
from gradband.policies.thompson import Sampling
from gradband.solvers.levels import MOST_SLOPE, MOST_SPREAD, components_of

RARE = 1e-12  # levels less likely than this are skipped


@dataclasses.dataclass(frozen=True, kw_only=True)
class HierarchicalTS(Sampling, Believing):
    """The best arm of a posterior sample, where ℓ ~ Beta(a, b) and μ_i ~ Beta(κ ℓ, κ (1 − ℓ)).

    κ = `strength` · (ℓ / m)^−`slope` · exp(`spread` · ε), as in the hierarchical prior: the rewards of one
    arm tell something about the others. The posterior of ℓ and κ is computed on a grid; given both, means
    are independent and beta distributed.
    """

    name: ClassVar[str] = "hierarchical-ts"
    strength: Positive = 10.0
    spread: Annotated[float, in_range(0, MOST_SPREAD)] = 0.0
    slope: Annotated[float, in_range(-MOST_SLOPE, MOST_SLOPE)] = 0.0

    def check_play(self) -> None:
        super().check_play()
        number("strength of hierarchical-ts", self.strength, LEAST, MOST)

    @property
    def components(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The beta distributions that all arms may come from: log-weights, a and b, each [G]."""
        return components_of(self.a, self.b, self.strength, self.spread, self.slope)

    def probabilities(self, params: Params, state: Counts) -> Array:
        """Each arm's posterior probability of being best, by quadrature in NumPy; JAX only samples."""
        if namespace(state.pulls) is not np:
            return super().probabilities(params, state)
        log_prior, ups, downs = (x[:, None] for x in self.components)
        ones, zeros = state.sums, state.pulls - state.sums
        likely = lgamma(ups + ones) - lgamma(ups) + lgamma(downs + zeros) - lgamma(downs)
        likely += lgamma(ups + downs) - lgamma(ups + downs + state.pulls)
        log_weights = likely.sum(1) + log_prior[:, 0]
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

        log_prior, ups, downs = (jnp.asarray(x, jnp.float32)[:, None] for x in self.components)
        ones, zeros = state.sums[None], (state.pulls - state.sums)[None]
        likely = gammaln(ups + ones) - gammaln(ups) + gammaln(downs + zeros) - gammaln(downs)
        likely += gammaln(ups + downs) - gammaln(ups + downs + ones + zeros)
        log_weights = likely.sum(1) + log_prior[:, 0]
        edges = jnp.cumsum(jnp.exp(log_weights - log_weights.max()))
        u = prng.uniforms(key, draws)[:, None] * edges[-1]
        chosen = jnp.minimum((u >= edges[None]).sum(1), len(edges) - 1)
        # Each draw's component is selected by a product, since gathers are slow.
        picked = (jnp.arange(len(edges))[None] == chosen[:, None]).astype(jnp.float32)
        a, b = ((picked * shape[:, 0][None]).sum(1)[:, None] for shape in (ups, downs))
        shapes = ((a + ones).reshape(-1), (b + zeros).reshape(-1))
        return prng.beta(prng.fold_in(key, jnp.uint32(2)), *shapes).reshape(draws, self.arms)
