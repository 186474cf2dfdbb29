"""Visitors of several groups in turn, each group a bandit of its own."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.arrays import one_hot
from gradband.core.errors import InputError, number_of_arms, positive, whole
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, Visit, set_fields


@pytree("a", "b")
@dataclasses.dataclass(frozen=True, eq=False)
class Groups(Prior):
    """C `groups` of visitors in turn, who share no means: μ_ci ~ Beta(a, b), independent.

    Round t belongs to the group t mod C, and its features are a one in that group's place [C]. An optimal
    policy plays C independent problems of K arms, each with its share of the rounds.

    >>> Groups(arms=2, groups=3).sample(prng.root(0)).shape
    (3, 2)
    """

    kind: ClassVar[str] = "groups"
    arms: int
    groups: int
    a: float = 1.0
    b: float = 1.0
    rewards: laws.Reward = laws.Bernoulli()
    dims: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        groups = whole("groups", self.groups)
        set_fields(self, arms=number_of_arms(self.arms), groups=groups, dims=groups)
        for name in ("a", "b"):
            positive(f"{name} of the groups prior", getattr(self, name))
        if not self.rewards.unit:
            raise InputError(f"a groups prior has rewards in [0, 1], not {self.rewards.kind} ones")

    @property
    def shares_context(self) -> bool:
        return True

    @property
    def in_groups(self) -> bool:
        return True

    def sample(self, key: Array) -> Array:
        count = self.groups * self.arms
        a, b = (jnp.full(count, jnp.asarray(shape, jnp.float32)) for shape in (self.a, self.b))
        return prng.beta(key, a, b).reshape(self.groups, self.arms)

    def context(self, key: Array, instance: Array, t: Array) -> Array:
        group = jnp.asarray(t, jnp.uint32) % np.uint32(self.groups)
        return one_hot(group, self.groups).astype(jnp.float32)

    def means(self, instance: Visit) -> Array:
        """Means [K] of the round's group."""
        return (instance.instance * instance.features[:, None]).sum(0)

    def describe(self) -> dict[str, Any]:
        numbers = {name: float(getattr(self, name)) for name in ("a", "b")}
        return {"kind": self.kind, "arms": self.arms, "groups": self.groups, **numbers}
