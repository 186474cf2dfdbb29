"""Thompson sampling on linear beliefs (Agrawal and Goyal, 2013)."""

import dataclasses
from typing import ClassVar

import numpy as np

from gradband.policies.base import Array, Params, namespace
from gradband.policies.beliefs import Seen
from gradband.policies.best_arm import best_normal_probabilities
from gradband.policies.envelope import best_line_probabilities
from gradband.policies.linear_policy import LinearPolicy


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinTS(LinearPolicy):
    """The best arm of a sample of θ from the posterior.

    With `link="logistic"` it is logistic Thompson sampling with Laplace's approximation.
    """

    name: ClassVar[str] = "lin-ts"
    differentiable: ClassVar[bool] = False

    def act(self, key: Array, params: Params, state: Seen) -> Array:
        from gradband.core import prng

        if self.model == "linear":  # Sᵀx · z is the deviation xᵀS z
            z = prng.normal_of(prng.uniforms(key, self.coordinates))
            return (state.mean + (state.spread * z[None]).sum(1)).argmax()
        sds = namespace(state.mean).sqrt(state.variance)
        return (state.mean + sds * prng.normal_of(prng.uniforms(key, self.arms))).argmax()

    def probabilities(self, params: Params, state: Seen) -> Array:
        """Each arm's posterior probability of being best, in NumPy; JAX only samples.

        With one θ per arm it is a quadrature. With one θ for all arms it is exact for two arms or one
        feature, and otherwise by quasi-random draws, the same in all rounds: within 10⁻³ for two features,
        and a hundredth for many. Whatever they are, a player pulls arms with these probabilities.
        """
        if namespace(state.mean) is not np:
            return super().probabilities(params, state)
        if self.model == "linear":
            return best_line_probabilities(state.mean, state.spread)
        return best_normal_probabilities(state.mean, np.sqrt(state.variance))
