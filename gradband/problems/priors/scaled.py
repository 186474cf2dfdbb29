"""Another prior's instances with all means scaled."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from gradband.core.errors import InputError, positive
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, set_fields


@pytree("prior", "factor")
@dataclasses.dataclass(frozen=True, eq=False)
class Scaled(Prior):
    """The means of another prior times a factor, capped at 1 if rewards are.

    With revenue, only the share of buyers changes.

    >>> from gradband.problems.priors.beta import Beta
    >>> Scaled(Beta(arms=3), 0.5).arms
    3
    """

    kind: ClassVar[str] = "scaled"
    prior: Prior
    factor: float
    rewards: laws.Reward = laws.Bernoulli()
    arms: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        if not self.prior.knows_means:
            raise InputError("only means that are known can be scaled")
        self.prior.stays("scaling")
        factor = positive("factor", self.factor)
        set_fields(self, factor=factor, rewards=self.prior.rewards, arms=self.prior.arms)

    @property
    def parts(self) -> int:
        return self.prior.parts

    def sample(self, key: Array) -> Array:
        return self.scale(self.prior.described(self.prior.sample(key)))

    def scale(self, arms: Array) -> Array:
        """Arms [..., K] or [..., parts, K] of the other prior as this one has them."""
        if self.parts:
            return jnp.concatenate([jnp.minimum(self.factor * arms[..., :1, :], 1.0), arms[..., 1:, :]], -2)
        return jnp.minimum(self.factor * arms, 1.0) if self.unit else self.factor * arms

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "factor": float(self.factor), "prior": self.prior.describe()}
