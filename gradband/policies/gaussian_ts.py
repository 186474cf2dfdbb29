"""Thompson sampling for rewards of any size, with normal beliefs."""

import dataclasses
from typing import Annotated, ClassVar

import numpy as np

from gradband.policies.base import Array, Counts, Params, in_range, namespace
from gradband.policies.best_arm import best_normal_probabilities
from gradband.policies.normal import Normal
from gradband.policies.thompson import Sampling

NODES = 24  # of the level, where arms share one


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianTS(Sampling, Normal):
    """The best arm of a posterior sample, if ℓ ~ N(mean, between²), μ_i ~ N(ℓ, within²), Y ~ N(μ_i, sd²).

    Without `between`, arms are independent; with it, the rewards of one arm tell something about the
    others, as in the hierarchical-gaussian prior. `sd`, the standard deviation of a reward around its arm's
    mean, is taken as known. Sums of many rewards are nearly normal, so it also suits rewards that are not.
    """

    name: ClassVar[str] = "ts-gaussian"
    between: Annotated[float, in_range(0)] = 0.0

    def level(self, counts: Counts) -> tuple[Array, Array]:
        """The posterior mean and variance of the level."""
        weights = 1 / (counts.pulls * self.within**2 + self.sd**2)
        variance = self.between**2 / (1 + self.between**2 * (counts.pulls * weights).sum())
        return self.mean + variance * (weights * (counts.sums - counts.pulls * self.mean)).sum(), variance

    def estimates(self, params: Params, state: Counts) -> Array:
        return self.posterior_from(self.level(state)[0], state)[0]

    def probabilities(self, params: Params, state: Counts) -> Array:
        """Each arm's posterior probability of being best, by quadrature in NumPy; JAX only samples."""
        if namespace(state.pulls) is not np:
            return super().probabilities(params, state)
        centre, variance = self.level(state)
        nodes, weights = np.polynomial.hermite.hermgauss(NODES if variance > 0 else 1)
        p = np.zeros(len(state.pulls))
        for node, weight in zip(nodes, weights / weights.sum(), strict=True):
            level = centre + np.sqrt(2 * variance) * node
            p += weight * best_normal_probabilities(*self.posterior_from(level, state))
        return p

    def sampled(self, key: Array, state: Counts, draws: int) -> Array:
        """Means [draws, K] from the posterior."""
        import jax.numpy as jnp

        from gradband.core import prng

        noise = prng.normal_of(prng.uniforms(key, draws * (self.arms + 1))).reshape(draws, self.arms + 1)
        centre, variance = self.level(state)
        level = centre + jnp.sqrt(variance) * noise[:, :1]
        wide = Counts(state.pulls[None], state.sums[None])
        middle, spread = self.posterior_from(level, wide)
        return middle + spread * noise[:, 1:]
