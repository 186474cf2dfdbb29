"""Instances that were drawn before."""

import dataclasses
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Instance, Prior, numbers, set_fields, trained_on


@pytree("instances")
@dataclasses.dataclass(frozen=True, eq=False)
class Drawn(Prior):
    """A list of instances: means [N, K], or arms as rewards describe them [N, parts, K].

    Training draws instances from the list. With `held_out` = .2, the last fifth of them is kept for
    evaluation, which uses each instance once, in order; with 0, evaluation uses all of them. Compiled code
    does not depend on the prior they come from, so it serves the instances of several priors.

    >>> from gradband.problems.priors.beta import Beta
    >>> Drawn.of(Beta(arms=3), 100, jax.random.key(0)).fresh().size
    100
    """

    kind: ClassVar[str] = "drawn"
    instances: Any
    held_out: float = 0.2
    rewards: laws.Reward = laws.Bernoulli()
    arms: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        instances = numbers("means", self.instances, axes=3 if self.parts else 2)
        self.rewards.check(instances)
        set_fields(self, instances=instances.astype(np.float32), arms=instances.shape[-1])
        trained_on(len(instances), self.held_out)

    @classmethod
    def of(cls, prior: Prior, count: int, key: Array) -> "Drawn":
        """A list of instances drawn from a prior, all of them for evaluation."""
        prior.stays("a list of instances")
        return cls(np.asarray(_first(count, prior, key)), 0, prior.rewards)

    @property
    def parts(self) -> int:
        return self.rewards.parts

    @property
    def all_means(self) -> np.ndarray:
        """Means [N, K] of all instances."""
        arms = np.moveaxis(self.instances, 1, 0) if self.parts else self.instances
        return np.asarray(self.rewards.means(arms), np.float64)

    @property
    def trained_on(self) -> int:
        """How many instances `sample` draws from; the others are held out."""
        return trained_on(len(self.instances), self.held_out)

    def sample(self, key: Array) -> Array:
        return jnp.asarray(self.instances)[jax.random.randint(key, (), 0, self.trained_on)]

    def fresh(self) -> "Drawn":
        rest = self.instances[self.trained_on :] if self.held_out > 0 else self.instances
        return DrawnInOrder(rest, 0, self.rewards)

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "means": self.instances.tolist(), "held_out": self.held_out}


@partial(jax.jit, static_argnums=0)
def _first(count: int, prior: Prior, key: Array) -> Array:
    """The first instances of a prior, as rewards describe them."""

    def one(i: Array) -> Array:
        return prior.described(prior.nth(i, jax.random.fold_in(key, i)))

    return jax.vmap(one)(jnp.arange(count))


@pytree("instances")
@dataclasses.dataclass(frozen=True, eq=False)
class DrawnInOrder(Drawn):
    """Instances for evaluation, in their order."""

    @property
    def size(self) -> int:
        return len(self.instances)

    def nth(self, index: Array, key: Array) -> Instance:
        return jnp.asarray(self.instances)[index % self.size]
