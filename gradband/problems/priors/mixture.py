"""Several kinds of instances, each with its own beta distribution of means."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from gradband.core import prng
from gradband.core.arrays import pick
from gradband.core.errors import InputError, number_of_arms
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, positive_numbers, set_fields


@pytree("a", "b", "weights")
@dataclasses.dataclass(frozen=True, eq=False)
class Mixture(Prior):
    """An instance is of kind c with probability `weights`[c], and its means are μ_i ~ Beta(a_c, b_c).

    >>> Mixture(arms=3, weights=[0.5, 0.5], a=[1, 9], b=[9, 1]).sample(prng.root(0)).shape
    (3,)
    """

    kind: ClassVar[str] = "mixture"
    arms: int
    weights: Any
    a: Any
    b: Any
    rewards: laws.Reward = laws.Bernoulli()

    def __post_init__(self) -> None:
        set_fields(self, arms=number_of_arms(self.arms))
        for name in ("weights", "a", "b"):
            set_fields(self, **{name: positive_numbers(f"{name} of the mixture", getattr(self, name))})
        if not len(self.weights) == len(self.a) == len(self.b):
            raise InputError("weights, a and b of a mixture must have one entry per component")
        if abs(self.weights.sum() - 1) > 1e-6:
            raise InputError(f"weights must sum to 1, not {self.weights.sum():g}")

    def sample(self, key: Array) -> Array:
        edges = jnp.cumsum(jnp.asarray(self.weights, jnp.float32))
        drawn = prng.uniform(prng.fold_in(key, jnp.uint32(0)))
        chosen = jnp.minimum(jnp.sum(drawn * edges[-1] >= edges), edges.shape[0] - 1)
        a, b = (pick(jnp.asarray(shape, jnp.float32), chosen) for shape in (self.a, self.b))
        shapes = (jnp.broadcast_to(shape, (self.arms,)) for shape in (a, b))
        return prng.beta(prng.fold_in(key, jnp.uint32(1)), *shapes)
