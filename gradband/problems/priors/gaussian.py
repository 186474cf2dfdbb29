"""Independent arms with normal means."""

import dataclasses
from typing import ClassVar

import jax
from jax import Array

from gradband.core.errors import number, number_of_arms, positive
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, check_unbounded, set_fields


@pytree("mean", "sd")
@dataclasses.dataclass(frozen=True, eq=False)
class Gaussian(Prior):
    """Means drawn independently, μ_i ~ N(mean, sd²); rewards are N(μ_i, 1) unless given."""

    kind: ClassVar[str] = "gaussian"
    arms: int
    mean: float = 0.0
    sd: float = 1.0
    rewards: laws.Reward = laws.Gaussian()

    def __post_init__(self) -> None:
        set_fields(self, arms=number_of_arms(self.arms))
        number("mean of the gaussian prior", self.mean)
        positive("sd of the gaussian prior", self.sd)
        check_unbounded(self)

    def sample(self, key: Array) -> Array:
        return self.mean + self.sd * jax.random.normal(key, (self.arms,))
