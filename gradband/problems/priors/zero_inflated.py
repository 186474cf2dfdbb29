"""Revenue: who buys, and how much."""

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.errors import InputError, number, number_of_arms
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, set_fields, set_positive
from gradband.problems.priors.hierarchical import around_a_level
from gradband.problems.priors.hierarchical_gaussian import HierarchicalGaussian
from gradband.solvers.levels import MOST_SLOPE, MOST_SPREAD, components_of

STRENGTHS = 9  # of the quadrature over how far shares of buyers vary
LARGEST_BETWEEN = 20.0  # of a logarithm


@pytree("a", "b", "strength", "spread", "slope", "amount", "between", "tightness")
@dataclasses.dataclass(frozen=True, eq=False)
class ZeroInflated(Prior):
    """Arms whose share of buyers and mean amount both vary around the levels of the instance.

    Shares of buyers are those of a `Hierarchical` prior with `a`, `b`, `strength`, `spread` and `slope`.
    The level of amounts is L = `amount` · exp(`between` · ε), ε ~ N(0, 1), and arms have mean amounts m_i
    with 1 / m_i ~ Gamma(`tightness` + 1) and E m_i = L: their coefficient of variation around L is
    1 / √(`tightness` − 1) for a tightness above 1. Shares and amounts are independent.

    >>> ZeroInflated(arms=4, a=2, b=98, strength=500, amount=40, between=0.5).sample(prng.root(0)).shape
    (2, 4)
    """

    kind: ClassVar[str] = "zero-inflated"
    arms: int
    a: float
    b: float
    strength: float
    amount: float
    between: float = 0.0
    tightness: float = 1000.0
    spread: float = 0.0
    slope: float = 0.0
    rewards: laws.ZeroInflated = laws.ZeroInflated()

    def __post_init__(self) -> None:
        set_fields(self, arms=number_of_arms(self.arms))
        set_positive(self, "a", "b", "strength", "amount", "tightness")
        number("between of the zero-inflated prior", self.between, 0, LARGEST_BETWEEN)
        number("spread of the zero-inflated prior", self.spread, 0, MOST_SPREAD)
        number("slope of the zero-inflated prior", self.slope, -MOST_SLOPE, MOST_SLOPE)
        if not isinstance(self.rewards, laws.ZeroInflated):
            raise InputError(
                f"a zero-inflated prior has zero-inflated rewards, not {self.rewards.kind} ones"
            )

    @property
    def parts(self) -> int:
        return 2

    @property
    def label(self) -> str:
        return "varying zero-inflated" if self.spread or self.slope else self.kind

    def sample(self, key: Array) -> Array:
        noise = prng.normal_of(prng.uniforms(prng.fold_in(key, jnp.uint32(3)), 1))
        level = self.amount * jnp.exp(self.between * noise)
        shapes = jnp.broadcast_to(jnp.asarray(self.tightness + 1.0, jnp.float32), (self.arms,))
        inverse = prng.log_gamma(prng.fold_in(key, jnp.uint32(4)), shapes)
        amounts = level * jnp.exp(jnp.log(jnp.asarray(self.tightness, jnp.float32)) - inverse)
        buys = around_a_level(key, self.arms, self.a, self.b, self.strength, self.spread, self.slope)
        return jnp.stack([buys, amounts])

    def as_normal(self) -> HierarchicalGaussian:
        """The normal prior with the same first two moments of levels, means and rewards.

        A tightness of at most 1, which leaves amounts without a variance, counts as 1.01.
        """
        numbers = [float(getattr(self, name)) for name in ("a", "b", "strength", "spread", "slope")]
        log_weights, ups, downs = components_of(*numbers, count=STRENGTHS)
        weights, level = np.exp(log_weights - log_weights.max()), ups / (ups + downs)
        weights, share = weights / weights.sum(), numbers[0] / (numbers[0] + numbers[1])
        square = weights @ level**2
        square_of_arm = square + weights @ (level * (1 - level) / (ups + downs + 1))
        mean = self.amount * math.exp(self.between**2 / 2)
        amounts = self.amount**2 * math.exp(2 * self.between**2)
        amounts_of_arm = amounts * (1 + 1 / max(self.tightness - 1, 0.01))
        noise = share * amounts_of_arm * (1 + 1 / self.rewards.shape) - square_of_arm * amounts_of_arm
        return HierarchicalGaussian(
            self.arms,
            share * mean,
            math.sqrt(max(square * amounts - (share * mean) ** 2, 0.0)),
            math.sqrt(square_of_arm * amounts_of_arm - square * amounts),
            laws.Gaussian(math.sqrt(noise)),
        )

    def describe(self) -> dict[str, Any]:
        names = ["a", "b", "strength", *(("spread", "slope") if self.spread or self.slope else ())]
        names += ["amount", "between", "tightness"]
        return {"kind": self.kind, "arms": self.arms} | {name: float(getattr(self, name)) for name in names}
