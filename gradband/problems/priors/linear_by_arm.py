"""Visitors with features, and expected rewards of each arm that are linear in them."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from gradband.core import prng
from gradband.core.errors import number_of_arms, number_of_dims
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, Visit, set_fields
from gradband.problems.priors.linear import (
    SHAPES,
    check_coefficients,
    check_drawn,
    draw_coefficients,
    draw_features,
)


@pytree("mean", "within", "between", "scale", "pool")
@dataclasses.dataclass(frozen=True, eq=False)
class LinearByArm(Prior):
    """Expected rewards xᵀθᵢ of a visitor's features x [d], or a logistic function of them.

    Each arm has a θᵢ of its own, drawn as that of a `Linear` prior: with the mean `mean` and the standard
    deviation `within`, numbers or one for each coordinate, normal or uniform. With `between`, a number or
    one for each coordinate, their mean differs from instance to instance: it is N(mean, between²).

    Every round brings another x: `features="normal"` has the standard deviation `scale`, "uniform" is
    between −`scale` and `scale`, and with a `pool` [N, d], x is one of its rows. With an `intercept`, the
    first feature is 1.

    >>> LinearByArm(arms=3, dims=2).sample(jax.random.key(0)).shape
    (3, 2)
    """

    kind: ClassVar[str] = "linear-by-arm"
    arms: int
    dims: int = dataclasses.field()  # without the 0 of priors that have no contexts
    mean: Any = 0.0
    within: Any = 1.0
    theta: str = "normal"
    features: str = "normal"
    scale: float = 1.0
    intercept: bool = False
    pool: Any = ()
    between: Any = 0.0
    rewards: laws.Reward = laws.Gaussian()

    def __post_init__(self) -> None:
        set_fields(self, arms=number_of_arms(self.arms), dims=number_of_dims("dims", self.dims))
        check_coefficients(self)
        check_drawn(self, SHAPES)

    @property
    def shares_context(self) -> bool:
        return True

    def sample(self, key: Array) -> Array:
        own = draw_coefficients(self, key, (self.arms, self.dims))
        level = prng.normal_of(prng.uniforms(prng.fold_in(key, jnp.uint32(3)), self.dims))
        return own + (jnp.asarray(self.between, jnp.float32) * level)[None]

    def context(self, key: Array, instance: Array, t: Array) -> Array:
        x = draw_features(self, key, 1)[0]
        return jnp.where(jnp.arange(self.dims) == 0, 1.0, x) if self.intercept else x

    def means(self, instance: Visit) -> Array:
        """Expected rewards [K] in a round."""
        linear = (instance.instance * instance.features[None]).sum(1)
        return jax.nn.sigmoid(linear) if self.rewards.unit else linear

    def describe(self) -> dict[str, Any]:
        return {name: value for name, value in super().describe().items() if value != []}
