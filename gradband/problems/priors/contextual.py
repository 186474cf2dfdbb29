"""Any functions that sample instances and their contexts."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.errors import InputError, number_of_arms, number_of_dims
from gradband.core.pytrees import flattened, pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Instance, Prior, Visit, set_fields

TRIED = 64  # instances that are checked
DIGESTED = 16  # draws that identify the functions


class Functions(NamedTuple):
    """What the user gives."""

    sample: Callable[[Array], Instance]
    context: Callable[[Array, Instance, Array], Array]
    means: Callable[[Instance, Array], Array]


@pytree()
@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Contextual(Prior):
    """Any JAX functions that draw instances and contexts.

    `sample(key)` is an instance, any pytree of arrays; `context(key, instance, t)` the features of round t,
    of every arm [K, d] or of all arms together [d]; `means(instance, features)` the expected rewards [K].
    Policy files and checkpoints identify them by a digest of draws: learning cannot resume with others.

    >>> theta = lambda key: jax.random.normal(key, (3,))
    >>> visitor = lambda key, theta, t: jax.random.normal(key, (3,))
    >>> means = lambda theta, x: jax.nn.sigmoid(jnp.stack([x, -x]) @ theta)
    >>> Contextual(sample=theta, context=visitor, means=means, arms=2, dims=3).shares_context
    True
    """

    kind: ClassVar[str] = "contextual"
    functions: Functions
    arms: int
    dims: int
    rewards: laws.Reward
    shared: bool
    one_hot: bool

    def __init__(
        self,
        sample: Callable[[Array], Instance],
        context: Callable[[Array, Instance, Array], Array],
        means: Callable[[Instance, Array], Array],
        arms: int,
        dims: int,
        rewards: laws.Reward | None = None,
    ) -> None:
        set_fields(self, functions=Functions(sample, context, means), rewards=rewards or laws.Bernoulli())
        set_fields(self, arms=number_of_arms(arms), dims=number_of_dims("dims", dims))
        instances, features = self._rounds(TRIED)
        if features.shape[1:] not in ((self.dims,), (self.arms, self.dims)):
            wanted = f"[{self.dims}] or [{self.arms}, {self.dims}]"
            raise InputError(f"context must return {wanted}, not the shape {list(features.shape[1:])}")
        if not np.isfinite(features).all():
            raise InputError("context must return finite numbers")
        found = self._means_of(instances, features)
        if found.shape[1:] != (self.arms,):
            raise InputError(f"means must return {self.arms} means, not the shape {list(found.shape[1:])}")
        self.rewards.check(found)
        if (found == found[0]).all():
            raise InputError(
                "the means are the same in every context of every instance: draw with jax.random, not NumPy"
            )
        shared = features.ndim == 2
        alone = bool(np.isin(features, (0, 1)).all() and (features.sum(-1) == 1).all())
        set_fields(self, shared=shared, one_hot=shared and alone)

    def _rounds(self, count: int) -> tuple[Any, np.ndarray]:
        """Instances, and the features of a round of each, always the same ones."""
        keys = jax.random.split(jax.random.key(0), count)
        instances = jax.vmap(self.sample)(keys)
        drawn = jax.vmap(self.context)(keys, instances, jnp.arange(count, dtype=jnp.uint32))
        return instances, np.asarray(drawn)

    def _means_of(self, instances: Any, features: np.ndarray) -> np.ndarray:
        """The means [count, K] of rounds."""
        return np.asarray(jax.vmap(lambda *given: self.means(Visit(*given)))(instances, features))

    @property
    def shares_context(self) -> bool:
        return self.shared

    @property
    def in_groups(self) -> bool:
        return self.one_hot

    def sample(self, key: Array) -> Instance:
        return self.functions.sample(prng.fold_in(key, jnp.uint32(0)))

    def context(self, key: Array, instance: Instance, t: Array) -> Array:
        return jnp.asarray(self.functions.context(key, instance, t), jnp.float32)

    def means(self, instance: Visit) -> Array:
        return jnp.asarray(self.functions.means(instance.instance, instance.features))

    def describe(self) -> dict[str, Any]:
        instances, features = self._rounds(DIGESTED)
        drawn = jnp.asarray(flattened((instances, features, self._means_of(instances, features))))
        digest = prng.digest(drawn)
        return {"kind": self.kind, "arms": self.arms, "dims": self.dims, "digest": digest}
