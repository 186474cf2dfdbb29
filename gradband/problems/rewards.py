"""Reward distributions of an arm, given its mean.

A reward is a function of the round's key and the mean alone. Arms with the same key share their noise:
`Bernoulli` rewards are then Y[i] = 1{u < μ_i} with one u for all arms.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.errors import InputError, positive


@dataclasses.dataclass(frozen=True)
class Reward:
    """The distribution of an arm's rewards: `draw(key, mean)` is one, `unit` if all are in [0, 1]."""

    kind: ClassVar[str]
    unit: ClassVar[bool] = True

    def draw(self, key: Array, mean: Array) -> Array:
        raise NotImplementedError

    def check(self, means: Any) -> None:
        """Raises an error for means that the distribution cannot have."""
        means = np.asarray(means)
        if not np.isfinite(means).all():
            raise InputError("means must be finite numbers")
        outside = means[(means < 0) | (means > 1)]
        if self.unit and outside.size:
            raise InputError(f"means of {self.kind} rewards must lie in [0, 1], not {outside.flat[0]:g}")

    def describe(self) -> dict[str, Any]:
        """The distribution as a table of a problem file; a custom one has a digest of its draws."""
        if REWARDS.get(self.kind) is type(self) or isinstance(self, Realised):
            return {"kind": self.kind, **dataclasses.asdict(self)}
        means, keys = jnp.linspace(0.1, 0.9, 16), jax.random.split(jax.random.key(0), 16)
        drawn = prng.digest(jax.vmap(self.draw)(keys, means))
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        numbers = {name: value for name, value in given.items() if isinstance(value, int | float | str)}
        return {"kind": self.kind, **numbers, "digest": drawn}


@dataclasses.dataclass(frozen=True)
class Bernoulli(Reward):
    """Y ~ Ber(μ)."""

    kind: ClassVar[str] = "bernoulli"

    def draw(self, key: Array, mean: Array) -> Array:
        return (prng.fine_unit(prng.words(key)[0]) < mean).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class Beta(Reward):
    """Y ~ Beta(v μ, v (1 − μ)); a larger v means less noise (v = 4 in the paper's Section 5.3)."""

    kind: ClassVar[str] = "beta"
    v: float = 4.0

    def __post_init__(self) -> None:
        positive("v of beta rewards", self.v)

    def draw(self, key: Array, mean: Array) -> Array:
        return prng.beta(key, self.v * mean[None], self.v * (1 - mean[None]))[0]


@dataclasses.dataclass(frozen=True)
class Gaussian(Reward):
    """Y ~ N(μ, sd²)."""

    kind: ClassVar[str] = "gaussian"
    unit: ClassVar[bool] = False
    sd: float = 1.0

    def __post_init__(self) -> None:
        positive("sd of gaussian rewards", self.sd)

    def draw(self, key: Array, mean: Array) -> Array:
        return mean + self.sd * prng.normal(key)


@dataclasses.dataclass(frozen=True)
class Realised(Reward):
    """Rewards that were recorded, not drawn; `priors.Table` reads them itself."""

    kind: ClassVar[str] = "realised"
    unit: ClassVar[bool] = False


REWARDS: dict[str, type[Reward]] = {cls.kind: cls for cls in (Bernoulli, Beta, Gaussian)}
"""The reward distributions of problem files, by kind."""
