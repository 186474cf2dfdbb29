"""Reward distributions of an arm, given its mean.

A reward is a function of the round's key and the mean alone. Arms with the same key share their noise:
`Bernoulli` rewards are then Y[i] = 1{u < μ_i} with one u for all arms. A distribution with `parts` needs
more numbers per arm than its mean: `ZeroInflated` needs how many buy, and how much.

In batches only the sum of an arm's rewards is observed, and it is drawn directly, by `sums`.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.arrays import one_hot, pick
from gradband.core.errors import InputError, positive


@dataclasses.dataclass(frozen=True)
class Reward:
    """The distribution of an arm's rewards: `draw(key, mean)` is one, `unit` if all are in [0, 1].

    An arm is a mean, and an instance its means [K]; with `parts`, an arm is a vector of so many numbers,
    and an instance is an array [parts, K].
    """

    kind: ClassVar[str]
    unit: ClassVar[bool] = True
    parts: ClassVar[int] = 0
    """numbers that describe an arm, or 0 if its mean does"""

    def draw(self, key: Array, mean: Array) -> Array:
        raise NotImplementedError

    def sums(self, key: Array, pulls: Array, arms: Array) -> Array:
        """Sums [K] of `pulls` [K] rewards of each arm. Every arm has a noise of its own."""
        raise NotImplementedError

    def sum_of(self, key: Array, arm: Array, pulls: int, arms: Array) -> Array:
        """The sum of rewards if all `pulls` of a batch are of one arm."""
        count = arms.shape[-1]
        return self.sums(key, jnp.where(one_hot(arm, count), float(pulls), 0.0), arms).sum()

    @classmethod
    def batches(cls) -> bool:
        """Whether sums of rewards can be drawn without drawing each of them.

        A class that changes `draw` must change `sums` as well.
        """
        first = next(each for each in cls.__mro__ if {"draw", "sums"} & {*vars(each)})
        return "sums" in vars(first) and first is not Reward

    def means(self, arms: Array) -> Array:
        """Means [K] of arms [K], or [parts, K]."""
        return arms

    def arm(self, arms: Array, index: Array) -> Array:
        """One of the arms, as `draw` takes it."""
        return jnp.stack([pick(row, index) for row in arms]) if self.parts else pick(arms, index)

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
        means = jnp.stack([means] * self.parts, axis=1) if self.parts else means
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

    def sums(self, key: Array, pulls: Array, arms: Array) -> Array:
        return prng.binomial(prng.uniforms(key, arms.shape[-1]), pulls, arms)

    def sum_of(self, key: Array, arm: Array, pulls: int, arms: Array) -> Array:
        u = jnp.where(one_hot(arm, arms.shape[-1]), prng.uniforms(key, arms.shape[-1]), 0).sum()
        return prng.binomial(u[None], jnp.full(1, float(pulls)), self.arm(arms, arm)[None])[0]


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

    def sums(self, key: Array, pulls: Array, arms: Array) -> Array:
        noise = prng.normal_of(prng.uniforms(key, arms.shape[-1]))
        return pulls * arms + self.sd * jnp.sqrt(pulls) * noise


@dataclasses.dataclass(frozen=True)
class ZeroInflated(Reward):
    """Y = 0, or with probability q an amount from Gamma(`shape`), with mean m: revenue of a visitor.

    An arm is (q, m), with the mean q m. A `shape` of 1 has amounts from an exponential distribution; their
    coefficient of variation is 1 / √`shape`. The amounts of several buyers sum to another gamma variable.
    """

    kind: ClassVar[str] = "zero-inflated"
    unit: ClassVar[bool] = False
    parts: ClassVar[int] = 2
    shape: float = 1.0

    def __post_init__(self) -> None:
        positive("shape of zero-inflated rewards", self.shape)

    def means(self, arms: Array) -> Array:
        return arms[0] * arms[1]

    def draw(self, key: Array, mean: Array) -> Array:
        buys, amount = mean[0], mean[1]
        shape = jnp.full(1, np.float32(self.shape))
        paid = jnp.exp(prng.log_gamma(prng.fold_in(key, jnp.uint32(1)), shape)[0]) / self.shape
        return jnp.where(prng.fine_unit(prng.words(key)[0]) < buys, amount * paid, 0.0)

    def sums(self, key: Array, pulls: Array, arms: Array) -> Array:
        buys, amount = arms[0], arms[1]
        buyers = prng.binomial(prng.uniforms(key, arms.shape[-1]), pulls, buys)
        shape = self.shape * jnp.maximum(buyers, 1.0)
        paid = jnp.exp(prng.log_gamma(prng.fold_in(key, jnp.uint32(1)), shape)) / self.shape
        return jnp.where(buyers > 0, amount * paid, 0.0)

    def check(self, means: Any) -> None:
        arms = np.asarray(means)
        if not np.isfinite(arms).all():
            raise InputError("arms must be finite numbers")
        if arms.ndim < 2 or arms.shape[-2] != self.parts:
            raise InputError("zero-inflated rewards need two numbers per arm: who buys, and how much")
        buys, amounts = arms[..., 0, :], arms[..., 1, :]
        if ((buys < 0) | (buys > 1)).any() or (amounts < 0).any():
            raise InputError("probabilities to buy must lie in [0, 1], and amounts must not be negative")


@dataclasses.dataclass(frozen=True)
class Realised(Reward):
    """Rewards that were recorded, not drawn; `priors.Table` reads them itself."""

    kind: ClassVar[str] = "realised"
    unit: ClassVar[bool] = False


REWARDS: dict[str, type[Reward]] = {cls.kind: cls for cls in (Bernoulli, Beta, Gaussian, ZeroInflated)}
"""The reward distributions of problem files, by kind."""
