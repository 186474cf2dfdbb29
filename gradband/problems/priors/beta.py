"""Independent arms with beta means."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.errors import InputError, number_of_arms, positive
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, positive_numbers, set_fields


@pytree("a", "b")
@dataclasses.dataclass(frozen=True, eq=False)
class Beta(Prior):
    """Means drawn independently, μ_i ~ Beta(a, b); a and b are one number for all arms, or one per arm.

    >>> Beta(arms=2, a=[1, 2]).sample(prng.root(0)).shape
    (2,)
    """

    kind: ClassVar[str] = "beta"
    arms: int
    a: Any = 1.0
    b: Any = 1.0
    rewards: laws.Reward = laws.Bernoulli()

    def __post_init__(self) -> None:
        arms = number_of_arms(self.arms)
        a, b = (_each(f"{name} of the beta prior", getattr(self, name), arms) for name in "ab")
        set_fields(self, arms=arms, a=a, b=b)

    def sample(self, key: Array) -> Array:
        return prng.beta(key, jnp.asarray(self.a, jnp.float32), jnp.asarray(self.b, jnp.float32))

    def describe(self) -> dict[str, Any]:
        alike = (self.a == self.a[0]).all() and (self.b == self.b[0]).all()
        a, b = (float(x[0]) if alike else x.tolist() for x in (self.a, self.b))
        return {"kind": self.kind, "arms": self.arms, "a": a, "b": b}


def _each(what: str, value: Any, arms: int) -> np.ndarray:
    """Positive numbers [K] in double precision, from one number for all arms or one per arm."""
    if not isinstance(value, list | tuple | np.ndarray):
        return np.full(arms, positive(what, value))
    array = positive_numbers(what, value)
    if len(array) != arms:
        raise InputError(f"{what} must be one number, or {arms}, one per arm, not {len(array)}")
    return array
