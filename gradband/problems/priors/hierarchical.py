"""Arms that vary around a level, which differs from instance to instance."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from gradband.core import prng
from gradband.core.errors import number, number_of_arms
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, set_fields, set_positive
from gradband.solvers.levels import LARGEST_STRENGTH, MOST_SLOPE, MOST_SPREAD


@pytree("a", "b", "strength", "spread", "slope")
@dataclasses.dataclass(frozen=True, eq=False)
class Hierarchical(Prior):
    """A level ℓ ~ Beta(a, b) of the instance, and means μ_i ~ Beta(κ ℓ, κ (1 − ℓ)).

    κ = `strength` · (ℓ / m)^−`slope` · exp(`spread` · ε), with m = a / (a + b) and one ε ~ N(0, 1) per
    instance: `spread` lets arms vary around their level more in some instances than in others, and `slope`
    makes it depend on the level. With both 0, κ is the `strength`.

    >>> Hierarchical(arms=4, a=2, b=98, strength=500).sample(prng.root(0)).shape
    (4,)
    """

    kind: ClassVar[str] = "hierarchical"
    arms: int
    a: float
    b: float
    strength: float
    spread: float = 0.0
    slope: float = 0.0
    rewards: laws.Reward = laws.Bernoulli()

    def __post_init__(self) -> None:
        set_fields(self, arms=number_of_arms(self.arms))
        set_positive(self, "a", "b", "strength")
        number("spread of the hierarchical prior", self.spread, 0, MOST_SPREAD)
        number("slope of the hierarchical prior", self.slope, -MOST_SLOPE, MOST_SLOPE)

    @property
    def varies(self) -> bool:
        """Whether arms vary around their level more in some instances than in others."""
        return bool(self.spread or self.slope)

    @property
    def label(self) -> str:
        return "varying" if self.varies else self.kind

    def sample(self, key: Array) -> Array:
        return around_a_level(key, self.arms, self.a, self.b, self.strength, self.spread, self.slope)

    def describe(self) -> dict[str, Any]:
        names = ("a", "b", "strength", *(("spread", "slope") if self.varies else ()))
        return {"kind": self.kind, "arms": self.arms} | {name: float(getattr(self, name)) for name in names}


def around_a_level(key: Array, arms: int, a: Any, b: Any, strength: Any, spread: Any, slope: Any) -> Array:
    """Means [K] of arms around a level, as the hierarchical prior draws them."""
    shapes = (jnp.asarray(x, jnp.float32)[None] for x in (a, b))
    level = prng.beta(prng.fold_in(key, jnp.uint32(0)), *shapes)
    # Draws from tiny shapes may round to 0 or 1, which leave no beta distribution.
    level = jnp.broadcast_to(jnp.clip(level, 1e-7, 1 - 1e-7), (arms,))
    noise = prng.normal(prng.fold_in(key, jnp.uint32(2)))
    log_factor = spread * noise - slope * jnp.log(level * (a + b) / a)
    # As a factor of the strength, so that κ is exactly the strength where it does not vary.
    kappa = strength * jnp.exp(jnp.minimum(log_factor, jnp.log(LARGEST_STRENGTH / strength)))
    return prng.beta(prng.fold_in(key, jnp.uint32(1)), kappa * level, kappa * (1 - level))
