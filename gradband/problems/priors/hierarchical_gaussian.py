"""Arms with normal means around a level, which differs from instance to instance."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from gradband.core import prng
from gradband.core.errors import number, number_of_arms, positive
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, check_unbounded, set_fields


@pytree("mean", "between", "within")
@dataclasses.dataclass(frozen=True, eq=False)
class HierarchicalGaussian(Prior):
    """A level ℓ ~ N(mean, between²) of the instance, and means μ_i ~ N(ℓ, within²).

    Rewards are N(μ_i, 1) unless given. With `between` = 0, it is the `Gaussian` prior.

    >>> HierarchicalGaussian(arms=4, mean=20, between=5, within=1).sample(prng.root(0)).shape
    (4,)
    """

    kind: ClassVar[str] = "hierarchical-gaussian"
    arms: int
    mean: float = 0.0
    between: float = 1.0
    within: float = 1.0
    rewards: laws.Reward = laws.Gaussian()

    def __post_init__(self) -> None:
        set_fields(self, arms=number_of_arms(self.arms))
        number("mean of the hierarchical-gaussian prior", self.mean)
        number("between of the hierarchical-gaussian prior", self.between, 0)
        positive("within of the hierarchical-gaussian prior", self.within)
        check_unbounded(self)

    def sample(self, key: Array) -> Array:
        noise = prng.normal_of(prng.uniforms(key, self.arms + 1))
        return self.mean + self.between * noise[0] + self.within * jnp.asarray(noise[1:])
