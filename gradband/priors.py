"""Priors: where problem instances come from.

A prior gives `sample(key) → instance`, `means(instance) → [K]` and
`reward(key, instance, arm, t) → reward`, all for one instance and all traceable by JAX; the key of a
reward belongs to the round and is the same for all arms. Subclass `Prior` for anything else.
"""

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband import random
from gradband import rewards as laws
from gradband.errors import LARGEST, InputError, number, positive, whole
from gradband.pytrees import pick, pytree

Instance = Any


class Prior:
    """A distribution over problem instances P with `arms` arms. Here an instance is its means [K]."""

    kind: ClassVar[str]
    knows_means: ClassVar[bool] = True
    arms: int
    rewards: laws.Reward

    @property
    def unit(self) -> bool:
        """Whether all rewards lie in [0, 1]."""
        return self.rewards.unit

    @property
    def size(self) -> int | None:
        """How many instances there are, if they are gone through in order."""
        return None

    def sample(self, key: Array) -> Instance:
        """An instance."""
        raise NotImplementedError

    def nth(self, index: Array, key: Array) -> Instance:
        """The index-th instance of a batch: sampled with its key, unless they have an order."""
        return self.sample(key)

    def means(self, instance: Instance) -> Array:
        """Mean rewards μ [K] of an instance."""
        return instance

    def reward(self, key: Array, instance: Instance, arm: Array, t: Array) -> Array:
        """The reward Y[arm, t]; the same key gives all arms the same noise."""
        return self.rewards.draw(key, pick(self.means(instance), arm))

    def fresh(self) -> "Prior":
        """The prior to evaluate on: itself, as new keys give new instances."""
        return self

    def check_horizon(self, horizon: int) -> None:
        """Refuses horizons that the prior can't serve."""

    def describe(self) -> dict[str, Any]:
        """What a problem file would say of this prior."""
        raise NotImplementedError


@pytree("instances", "weights")
@dataclasses.dataclass(frozen=True, eq=False)
class Finite(Prior):
    """A list of instances, means [J, K], drawn with `weights` [J] (equal ones by default).

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
        count = instances.shape[0]
        weights = np.full(count, 1 / count) if self.weights is None else self.weights
        weights = numbers("weights", weights, axes=1)
        if weights.shape != (count,):
            raise InputError(f"weights must be {count}, one an instance, not {len(weights)}")
        if (weights < 0).any():
            raise InputError(f"weights must not be negative, as {weights.min():g} is")
        if abs(weights.sum() - 1) > 1e-6:
            raise InputError(f"weights must sum to 1, not {weights.sum():g}")
        # In double precision, as they were given; compiled code takes them as float32.
        object.__setattr__(self, "instances", instances)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "arms", instances.shape[1])

    def sample(self, key: Array) -> Array:
        edges = jnp.cumsum(self.weights)
        index = jnp.sum(random.uniform(key) * edges[-1] >= edges)
        return jnp.asarray(self.instances)[index]

    def describe(self) -> dict[str, Any]:
        means, weights = self.instances.tolist(), self.weights.tolist()
        return {"kind": self.kind, "means": means, "weights": weights}


@pytree("a", "b")
@dataclasses.dataclass(frozen=True, eq=False)
class Beta(Prior):
    """Means drawn independently, μ_i ~ Beta(a, b); a and b are numbers, or one for each arm.

    >>> Beta(arms=2, a=[1, 2]).sample(jax.random.key(0)).shape
    (2,)
    """

    kind: ClassVar[str] = "beta"
    arms: int
    a: Any = 1.0
    b: Any = 1.0
    rewards: laws.Reward = laws.Bernoulli()

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", whole("arms", self.arms))
        object.__setattr__(self, "a", _each("a of the beta prior", self.a, self.arms))
        object.__setattr__(self, "b", _each("b of the beta prior", self.b, self.arms))

    def sample(self, key: Array) -> Array:
        return random.beta(key, jnp.asarray(self.a, jnp.float32), jnp.asarray(self.b, jnp.float32))

    def describe(self) -> dict[str, Any]:
        alike = (self.a == self.a[0]).all() and (self.b == self.b[0]).all()
        a, b = (float(x[0]) if alike else x.tolist() for x in (self.a, self.b))
        return {"kind": self.kind, "arms": self.arms, "a": a, "b": b}


@pytree("mean", "sd")
@dataclasses.dataclass(frozen=True, eq=False)
class Gaussian(Prior):
    """Means drawn independently, μ_i ~ N(mean, sd²); rewards are N(μ_i, 1) unless given."""

    kind: ClassVar[str] = "gaussian"
    arms: int
    mean: float = 0.0
    sd: float = 1.0
    rewards: laws.Reward = laws.Gaussian()

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", whole("arms", self.arms))
        number("mean of the gaussian prior", self.mean)
        positive("sd of the gaussian prior", self.sd)
        if self.rewards.unit:
            raise InputError(
                f"a gaussian prior has means outside [0, 1], which {self.rewards.kind} rewards "
                "can't have: use gaussian rewards"
            )

    def sample(self, key: Array) -> Array:
        return self.mean + self.sd * jax.random.normal(key, (self.arms,))

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "arms": self.arms, "mean": self.mean, "sd": self.sd}


@pytree()
@dataclasses.dataclass(frozen=True, eq=False)
class Sampler(Prior):
    """Any JAX function from a key to means [K].

    >>> Sampler(lambda key: jax.random.uniform(key, (5,)), arms=5).arms
    5
    """

    kind: ClassVar[str] = "sampler"
    function: Callable[[Array], Array]
    arms: int
    rewards: laws.Reward = laws.Bernoulli()

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", whole("arms", self.arms))
        keys = jax.random.split(jax.random.key(0), 64)
        tried = np.asarray(jax.vmap(lambda key: jnp.asarray(self.function(key)))(keys))
        if tried.shape[1:] != (self.arms,):
            raise InputError(f"the sampler must give means of shape ({self.arms},), not {tried.shape[1:]}")
        self.rewards.check(tried)
        if (tried == tried[0]).all():
            raise InputError(
                "the sampler gives the same means for every key: draw with jax.random, not with NumPy, and "
                "use a finite prior for a single instance"
            )

    def sample(self, key: Array) -> Array:
        return jnp.asarray(self.function(key))

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "arms": self.arms}


@pytree("table", dropped=("file",))
@dataclasses.dataclass(frozen=True, eq=False)
class Table(Prior):
    """Realised rewards [N, K, n] of past instances, whose means are unknown.

    Training draws instances from the table. With `held_out` = .2, the last fifth of them is kept
    for evaluation, which goes through it in order, each instance once.
    """

    kind: ClassVar[str] = "table"
    knows_means: ClassVar[bool] = False
    table: Any
    held_out: float = 0.2
    file: str = ""
    rewards: laws.Reward = laws.Realised()
    arms: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        table = numbers("the reward table", self.table, axes=3)
        number("held_out", self.held_out, 0, 0.9)
        if self.held_out > 0 and len(table) < 2:
            raise InputError("a table with one instance can't hold any out: set held_out to 0")
        object.__setattr__(self, "table", table.astype(np.float32))
        object.__setattr__(self, "arms", table.shape[1])

    @property
    def trained_on(self) -> int:
        """How many instances `sample` draws from; the others are held out."""
        count = int(self.table.shape[0])
        return count - int(np.clip(round(count * self.held_out), self.held_out > 0, count - 1))

    @property
    def checksum(self) -> str:
        """What tells this table from another behind the same file name."""
        return f"{zlib.crc32(np.ascontiguousarray(self.table).tobytes()):08x}"

    @property
    def unit(self) -> bool:
        return bool((self.table >= 0).all() and (self.table <= 1).all())

    def sample(self, key: Array) -> Array:
        """The number of an instance, drawn with equal probabilities."""
        return jax.random.randint(key, (), 0, self.trained_on)

    def means(self, instance: Instance) -> Array:
        raise InputError("the means of a reward table are unknown")

    def reward(self, key: Array, instance: Instance, arm: Array, t: Array) -> Array:
        return jnp.asarray(self.table)[instance, arm, t]

    def fresh(self) -> "Table":
        rest = self.table[self.trained_on :] if self.held_out > 0 else self.table
        return HeldOut(rest, held_out=0)

    def check_horizon(self, horizon: int) -> None:
        if horizon > self.table.shape[2]:
            raise InputError(f"the reward table has {self.table.shape[2]} rounds, the horizon is {horizon}")

    def describe(self) -> dict[str, Any]:
        about = {"file": self.file, "held_out": self.held_out, "checksum": self.checksum}
        return {"kind": self.kind, **about}


@pytree("table", dropped=("file",))
@dataclasses.dataclass(frozen=True, eq=False)
class HeldOut(Table):
    """The instances of a table that were kept for evaluation, in their order."""

    @property
    def size(self) -> int:
        return int(self.table.shape[0])

    def nth(self, index: Array, key: Array) -> Array:
        return index % self.size


def _each(what: str, value: Any, arms: int) -> np.ndarray:
    """Positive numbers [K] in double precision, from one for all arms or one for each."""
    if not isinstance(value, list | tuple | np.ndarray):
        return np.full(arms, positive(what, value))
    array = numbers(what, value, axes=1)
    if len(array) != arms:
        raise InputError(f"{what} must be one number, or {arms}, one an arm, not {len(array)}")
    for entry in array:
        positive(what, float(entry))
    return array


def numbers(what: str, values: Any, axes: int) -> np.ndarray:
    """Finite numbers with this many axes, none of them empty, or an error that names them."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be numbers in rows of equal length") from None
    if array.dtype.kind not in ("fiub" if isinstance(values, np.ndarray) else "fiu"):
        raise InputError(f"{what} must be numbers in rows of equal length")
    array = array.astype(np.float64)
    if array.ndim != axes or 0 in array.shape:
        raise InputError(f"{what} must have {axes} axes, none of them empty, not the shape {array.shape}")
    fine = np.abs(array) <= LARGEST
    if not fine.all():
        first = tuple(int(i) for i in np.argwhere(~fine)[0])
        raise InputError(f"{what} must be finite, but entry {list(first)} is {array[first]}")
    return array
