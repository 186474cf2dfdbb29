"""Arms that vary around a level, which differs from instance to instance."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from gradband.core import prng
from gradband.core.errors import number_of_arms, positive
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior


@pytree("a", "b", "strength")
@dataclasses.dataclass(frozen=True, eq=False)
class Hierarchical(Prior):
    """A level ℓ ~ Beta(a, b) of the instance, and means μ_i ~ Beta(κ ℓ, κ (1 − ℓ)), κ = `strength`.

    >>> Hierarchical(arms=4, a=2, b=98, strength=500).sample(prng.root(0)).shape
    (4,)
    """

    kind: ClassVar[str] = "hierarchical"
    arms: int
    a: float
    b: float
    strength: float
    rewards: laws.Reward = laws.Bernoulli()

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", number_of_arms(self.arms))
        for name in ("a", "b", "strength"):
            object.__setattr__(
                self, name, positive(f"{name} of the hierarchical prior", getattr(self, name))
            )

    def sample(self, key: Array) -> Array:
        shapes = (jnp.asarray(x, jnp.float32)[None] for x in (self.a, self.b))
        level = prng.beta(prng.fold_in(key, jnp.uint32(0)), *shapes)
        # A level of 0 or 1, to which tiny shapes may be rounded, would leave no beta distribution.
        level = jnp.broadcast_to(jnp.clip(level, 1e-7, 1 - 1e-7), (self.arms,))
        return prng.beta(
            prng.fold_in(key, jnp.uint32(1)), self.strength * level, self.strength * (1 - level)
        )

    def describe(self) -> dict[str, Any]:
        numbers = {name: float(getattr(self, name)) for name in ("a", "b", "strength")}
        return {"kind": self.kind, "arms": self.arms, **numbers}
