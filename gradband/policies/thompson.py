"""Thompson sampling for rewards in [0, 1] (Agrawal and Goyal, 2012)."""

import dataclasses
from typing import ClassVar

import numpy as np

from gradband.policies.base import Array, Believing, Counts, Params, Policy, namespace
from gradband.policies.best_arm import best_probabilities

MOST_SAMPLES = 64  # of a posterior per batch; more pulls share them, at 1 to 2 % more regret with ten arms


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling(Policy):
    """Pulls the best arm of a sample from the posterior."""

    differentiable: ClassVar[bool] = False

    def sampled(self, key: Array, state: Counts, draws: int) -> Array:
        """Means [draws, K] from the posterior."""
        raise NotImplementedError

    def act(self, key: Array, params: Params, state: Counts) -> Array:
        return self.sampled(key, state, 1)[0].argmax()

    def allocate(self, key: Array, params: Params, state: Counts, batch: int) -> Array:
        return share_out(self.sampled(key, state, min(batch, MOST_SAMPLES)), batch)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThompsonSampling(Sampling, Believing):
    """The arm with the greatest sample from its Beta(a + ones, b + zeros) posterior.

    Rewards strictly between 0 and 1 are rounded at random to 0 or 1 (Bernoulli rounding).
    """

    name: ClassVar[str] = "ts"

    def act(self, key: Array, params: Params, state: Counts) -> Array:
        from gradband.core import prng

        zeros = state.pulls - state.sums
        return prng.beta(key, self.a + state.sums, self.b + zeros).argmax()

    def probabilities(self, params: Params, state: Counts) -> Array:
        """Each arm's posterior probability of being best, by quadrature in NumPy; JAX only samples."""
        if namespace(state.pulls) is not np:
            return super().probabilities(params, state)
        return best_probabilities(*self.posterior(state))

    def sampled(self, key: Array, state: Counts, draws: int) -> Array:
        import jax.numpy as jnp

        from gradband.core import prng

        ones, zeros = self.posterior(state)
        drawn = prng.beta(key, jnp.tile(ones, draws), jnp.tile(zeros, draws))
        return drawn.reshape(draws, self.arms)


def share_out(sampled: Array, batch: int) -> Array:
    """Pulls of each arm [K] in a batch, where each sample of the means [draws, K] pulls its best arm.

    All samples pull equally often, or once more. Of equal arms, as tiny means may be in float32, the first
    is pulled.
    """
    draws, arms = sampled.shape
    pulls = batch // draws + (np.arange(draws) < batch % draws)
    best = np.arange(arms)[None] == sampled.argmax(axis=1)[:, None]
    return (best * pulls[:, None].astype(np.float32)).sum(0)
