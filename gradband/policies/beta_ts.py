"""Thompson sampling with the exact posterior of beta rewards."""

import dataclasses
from typing import ClassVar

import numpy as np

from gradband.policies.base import Array, Params, namespace
from gradband.policies.beta_evidence import BetaEvidence, Evidence


@dataclasses.dataclass(frozen=True, kw_only=True)
class BetaTS(BetaEvidence):
    """The arm with the greatest sample from its posterior, if Y ~ Beta(v μ, v (1 − μ)) and μ ~ Beta(a, b).

    Nothing is rounded: `ts` rounds rewards to 0 or 1 and loses most of what they tell.
    """

    name: ClassVar[str] = "ts-beta"

    def act(self, key: Array, params: Params, state: Evidence) -> Array:
        import jax.numpy as jnp

        from gradband.core import prng

        weights, _ = self.weights(state)
        ends = jnp.cumsum(weights, axis=1)
        u = prng.uniforms(key, self.arms) * ends[:, -1]
        below = ends <= u[:, None]
        cell = jnp.minimum(below.sum(1), self.cells - 1)
        before = jnp.where(below, ends, 0).max(1)
        after = jnp.where(below, jnp.inf, ends).min(1)
        # A cell's edges are sin² of equally spaced angles, and its weight is spread evenly over angles.
        share = jnp.clip((u - before) / jnp.maximum(after - before, 1e-30), 0, 1)
        return (cell + share).argmax()

    def probabilities(self, params: Params, state: Evidence) -> Array:
        """Each arm's posterior probability of being best, over cells in NumPy; JAX only samples."""
        if namespace(state.logits) is not np:
            return super().probabilities(params, state)
        weights, _ = self.weights(state)
        weights = weights / weights.sum(1, keepdims=True)
        nodes, shares = np.polynomial.legendre.leggauss((len(weights) + 2) // 2)
        before = np.cumsum(weights, axis=1) - weights
        p = np.zeros(len(weights))
        for node, share in zip((nodes + 1) / 2, shares / 2, strict=True):  # exact: polynomials in a cell
            below = np.log(np.maximum(before + node * weights, 1e-300))
            p += share * (weights * np.exp(below.sum(0) - below)).sum(1)
        return p / p.sum()
