"""A list of instances."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jax import Array

from gradband.core import prng
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, numbers, probabilities, set_fields


@pytree("instances", "weights")
@dataclasses.dataclass(frozen=True, eq=False)
class Finite(Prior):
    """A list of instances, means [J, K], drawn with `weights` [J] (equal by default).

    >>> Finite([[0.6, 0.4], [0.4, 0.6]]).arms
    2
    """

    kind: ClassVar[str] = "finite"
    instances: Any
    weights: Any = None
    rewards: laws.Reward = laws.Bernoulli()
    arms: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        instances = numbers("means", self.instances, axes=2)
        self.rewards.check(instances)
        weights = probabilities("weights", self.weights, len(instances), "instance")
        # In double precision, as they were given; compiled code takes them as float32.
        set_fields(self, instances=instances, weights=weights, arms=instances.shape[1])

    def sample(self, key: Array) -> Array:
        edges = jnp.cumsum(self.weights)
        index = jnp.sum(prng.uniform(key) * edges[-1] >= edges)
        return jnp.asarray(self.instances)[index]

    @classmethod
    def keys(cls) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("means",), ("weights",)

    @classmethod
    def read(cls, given: dict[str, Any], rewards: laws.Reward | None, find: Callable[[Any], Path]) -> Self:
        return cls(given["means"], given.get("weights"), rewards or cls.rewards)

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "means": self.instances.tolist(), "weights": self.weights.tolist()}
