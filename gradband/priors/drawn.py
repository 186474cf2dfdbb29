"""Instances that were drawn before."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband import rewards as laws
from gradband.priors.base import Instance, Prior, numbers
from gradband.pytrees import pytree


@pytree("instances")
@dataclasses.dataclass(frozen=True, eq=False)
class Drawn(Prior):
    """A list of instances, means [N, K], gone through in order.

    Compiled code does not know which prior they come from: what plays on several of them is compiled once.

    >>> from gradband.priors.beta import Beta
    >>> Drawn.of(Beta(arms=3), 100, jax.random.key(0)).size
    100
    """

    kind: ClassVar[str] = "drawn"
    instances: Any
    rewards: laws.Reward = laws.Bernoulli()
    arms: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        instances = numbers("means", self.instances, axes=2)
        self.rewards.check(instances)
        object.__setattr__(self, "instances", instances.astype(np.float32))
        object.__setattr__(self, "arms", instances.shape[1])

    @classmethod
    def of(cls, prior: Prior, count: int, key: Array) -> "Drawn":
        """So many instances of a prior."""
        numbered = jnp.arange(count)
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(numbered)
        drawn = jax.jit(jax.vmap(lambda i, key: prior.means(prior.nth(i, key))))(numbered, keys)
        return cls(np.asarray(drawn), prior.rewards)

    @property
    def size(self) -> int:
        return int(self.instances.shape[0])

    def sample(self, key: Array) -> Array:
        return jnp.asarray(self.instances)[jax.random.randint(key, (), 0, self.size)]

    def nth(self, index: Array, key: Array) -> Instance:
        return jnp.asarray(self.instances)[index % self.size]

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "means": self.instances.tolist()}
