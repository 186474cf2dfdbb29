"""What policies share that believe in linear rewards."""

import dataclasses
import math
from typing import Any, ClassVar, Self

import numpy as np

from gradband.core.arrays import Array, namespace, nn
from gradband.core.errors import InputError, number, positive, unknown, whole
from gradband.policies import beliefs
from gradband.policies.base import Bounds, Params, Policy, Spec, unbounded
from gradband.policies.beliefs import Belief, Seen

MODELS = ("linear", "by-arm")
LINKS = ("identity", "logistic")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contextual(Policy):
    """A policy that believes in rewards xᵀθ + noise, where x are the features of an arm or of a visitor.

    Coordinates of θ are N(mean, within²) and independent at first; the noise has the standard deviation
    `sd`. With `link="logistic"` rewards are 1 with the probability 1 / (1 + exp(−xᵀθ)), and 0 otherwise.
    With `model="linear"` all arms share θ and have features of their own, [K, d]; with `model="by-arm"`
    each arm has a θ of its own, and features may be those of the visitor, [d].
    """

    takes_prior: ClassVar[bool] = True
    dims: int = 0
    """d, set by the problem that it plays"""
    model: str = "linear"
    link: str = "identity"
    mean: float = 0.0
    within: float = 0.5
    sd: float = 0.5

    def check(self) -> None:
        super().check()
        whole(f"dims of {self.name}", self.dims, least=0)
        number(f"mean of {self.name}", self.mean)
        positive(f"within of {self.name}", self.within)
        positive(f"sd of {self.name}", self.sd)
        for what, given, known in (("model", self.model, MODELS), ("link", self.link, LINKS)):
            if given not in known:
                raise unknown(f"{what} of {self.name}", given, known)

    def begin(self, params: Params, latent: Array) -> Belief:
        if not self.dims:
            raise InputError(f"{self.name} needs a problem with contexts")
        xp = namespace(latent)
        same, arms = xp.ones(self.dims), self.arms if self.model == "by-arm" else 0
        return Belief.before(self.mean * same, self.within * same, arms)

    def see(self, params: Params, state: Belief, features: Array) -> Seen:
        return beliefs.see(state, features)

    def update(self, params: Params, state: Seen, arm: Array, reward: Array) -> Belief:
        return beliefs.observe(state, arm, reward, np.float32(self.sd**2), self.link == "logistic")

    def noise(self, seen: Seen) -> Array | float:
        """The variances of rewards [K], or of all, on the scale of the linear functions."""
        if self.link == "identity":
            return np.float32(self.sd**2)
        p = nn(seen.mean).sigmoid(seen.mean)
        return 1 / namespace(p).maximum(p * (1 - p), np.float32(1e-7))

    def short(self, seen: Seen) -> Array:
        """How far expected rewards are below the greatest [K], in units of 2 sd: of 1 for rewards in [0, 1].

        The expected reward of a logistic belief is taken at its mean.
        """
        if self.link == "identity":
            return seen.gap / (2 * self.sd)
        p = nn(seen.mean).sigmoid(seen.mean)
        return p.max() - p

    def check_state(self, state: Any, rounds: int) -> None:
        if state.rewards != np.floor(state.rewards) or not 0 <= state.rewards <= rounds:
            raise InputError("rewards in memory must be a whole number, and no more than the rounds")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuned(Contextual):
    """A contextual policy that learns a few positive numbers, named in `log_scale`.

    Each starts at the setting of its name, and lies within `limits`.
    """

    limits: ClassVar[dict[str, tuple[float, float]]]

    def check(self) -> None:
        super().check()
        for name in sorted(self.log_scale):
            number(f"{name} of {self.name}", getattr(self, name), *self.limits[name])

    def specs(self) -> dict[str, Spec]:
        return dict.fromkeys(sorted(self.log_scale), Spec())

    def init(self, key: Array) -> Params:
        import jax.numpy as jnp

        return {name: getattr(self, name) * jnp.ones(spec.shape) for name, spec in self.specs().items()}

    def compiled(self) -> Self:
        """Only the first parameters depend on where they start."""
        return dataclasses.replace(self, **{name: getattr(type(self), name) for name in self.log_scale})

    def bounds(self) -> Bounds:
        lower, upper = unbounded(self.specs())
        ends = self.limits.items()
        return lower | {n: low for n, (low, _) in ends}, upper | {n: high for n, (_, high) in ends}


ANY = (1e-6, math.inf)
"""limits of a positive number"""
