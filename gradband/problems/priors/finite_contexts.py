"""A list of instances, each with the arms' means in a few contexts."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jax import Array

from gradband.core import prng
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, Visit, numbers, probabilities, set_fields


@pytree("instances", "weights", "contexts")
@dataclasses.dataclass(frozen=True, eq=False)
class FiniteContexts(Prior):
    """Means [J, C, K] of J instances in C contexts, drawn with `weights` [J] (equal by default).

    Every round has one of the contexts, drawn with the probabilities `contexts` [C] (equal by default).
    Policies see it as a vector of zeros with a one, [C], which all arms share. Small problems have an exact
    optimum.

    >>> FiniteContexts([[[0.2, 0.8], [0.8, 0.2]], [[0.8, 0.2], [0.2, 0.8]]]).dims
    2
    """

    kind: ClassVar[str] = "finite-contexts"
    instances: Any
    weights: Any = None
    contexts: Any = None
    rewards: laws.Reward = laws.Bernoulli()
    arms: int = dataclasses.field(init=False)
    dims: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        means = numbers("means", self.instances, axes=3)
        self.rewards.check(means)
        weights = probabilities("weights", self.weights, len(means), "instance")
        contexts = probabilities("contexts", self.contexts, means.shape[1], "context")
        set_fields(self, instances=means, weights=weights, contexts=contexts)
        set_fields(self, arms=means.shape[2], dims=means.shape[1])

    @property
    def shares_context(self) -> bool:
        return True

    @property
    def in_groups(self) -> bool:
        return True

    def sample(self, key: Array) -> Array:
        """Means [C, K]."""
        return jnp.asarray(self.instances, jnp.float32)[_drawn(prng.uniform(key), self.weights)]

    def context(self, key: Array, instance: Array, t: Array) -> Array:
        place = _drawn(prng.uniform(key), self.contexts)
        return (jnp.arange(self.dims) == place).astype(jnp.float32)

    def means(self, instance: Visit) -> Array:
        """Means [K] in a round's context."""
        return (instance.features[:, None] * instance.instance).sum(0)

    @classmethod
    def keys(cls) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("means",), ("weights", "contexts")

    @classmethod
    def read(cls, given: dict[str, Any], rewards: laws.Reward | None, find: Callable[[Any], Path]) -> Self:
        return cls(given["means"], given.get("weights"), given.get("contexts"), rewards or cls.rewards)

    def describe(self) -> dict[str, Any]:
        weights = {name: getattr(self, name).tolist() for name in ("weights", "contexts")}
        return {"kind": self.kind, "means": self.instances.tolist(), **weights}


def _drawn(u: Array, weights: Any) -> Array:
    """An index drawn with these weights."""
    edges = jnp.cumsum(jnp.asarray(weights, jnp.float32))
    return jnp.sum(u * edges[-1] >= edges)
