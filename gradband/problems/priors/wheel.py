"""The wheel: a rare context that pays, whose place is unknown (Riquelme, Tucker and Snoek, 2018)."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.errors import InputError, number, unknown, whole
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, Visit, set_fields

ARMS = 5
SAFE, USUAL, PRIZE = 1.2, 1.0, 50.0
PRIZE_SD = 0.01
MISFIT = 5.0  # standard deviation of rewards around a linear function, for beliefs
RIM = 0.005  # width of the last ring
FEATURES = ("ramps", "raw")


class Spot(NamedTuple):
    """A place in the disk, and the instance's δ."""

    delta: Array
    radius: Array
    quarter: Array
    """which quarter of the disk, from 0 to 3"""


@pytree("delta")
@dataclasses.dataclass(frozen=True, eq=False)
class Wheel(Prior):
    """A point in the unit disk, and five arms: the first pays 1.2, others 1, except beyond the radius δ.

    There the arm of the point's quarter pays 50. Rewards are N(1.2, sd²) or N(1, sd²) with the rewards'
    `sd` of .05, and N(50, .01²). δ is `delta`, or drawn from U(0, 1) for each instance if that is None.

    With `features="raw"` a round's features are the point (x, y), the same for all arms: no linear function
    of them comes near the expected rewards. With "ramps", every arm has features of its own [5, 2 + bins]:
    a one for the safe arm, a one for any other, and for the arm of the quarter how far the point is into
    each of `bins` rings, in widths of a ring. Rings are narrower towards the rim, so that δ ~ U(0, 1) is in
    a ring with the same probability, given that it is not further inside. Expected rewards are linear then,
    but for the ring with δ; `belief` says what is known of θ.

    >>> Wheel(delta=0.99).sample(prng.root(0)).item() > 0.98
    True
    """

    kind: ClassVar[str] = "wheel"
    delta: Any = None
    features: str = "ramps"
    bins: int = 50
    rewards: laws.Reward = laws.Gaussian(0.05)
    arms: int = dataclasses.field(init=False, default=ARMS)
    dims: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        if self.delta is not None:
            number("delta of the wheel", self.delta, 0, 1)
        if self.features not in FEATURES:
            raise unknown("features of the wheel", self.features, FEATURES)
        bins = whole("bins of the wheel", self.bins, most=1000)
        if not isinstance(self.rewards, laws.Gaussian):
            raise InputError(f"the wheel has gaussian rewards, not {self.rewards.kind} ones")
        set_fields(self, dims=2 if self.shares_context else 2 + bins)

    @property
    def shares_context(self) -> bool:
        return self.features == "raw"

    @property
    def edges(self) -> np.ndarray:
        """The radii [bins + 1] between rings: what is left to the rim shrinks by the same factor."""
        left = RIM ** (np.arange(self.bins) / max(self.bins - 1, 1))
        return np.append(1 - left, 1.0)

    def belief(self) -> dict[str, Any]:
        """`mean` and `within` [d] of θ before the first round, and `sd`, as settings of a policy.

        With the probability h that δ ~ U(0, 1) is in a ring, given that it is not further inside, the
        quarter's arm gains 49 h there. Rings count as independent, with the variance of 49 times a
        Poisson variable with the mean h: what is expected between a radius that pays 1 and one that pays
        50 then rises steadily from one to the other. In the ring with δ rewards are 1 or 50: noise, to a
        linear function. With the rewards' own `sd` a belief would be sure of what it saw there first.
        """
        if self.shares_context:
            raise InputError("there is no belief about the raw wheel: its rewards are not linear")
        low, high = self.edges[:-1], self.edges[1:]
        hazard, gain = (high - low) / (1 - low), PRIZE - USUAL
        rings = {"mean": gain * hazard, "within": gain * np.sqrt(hazard)}
        arms = {"mean": (SAFE, USUAL), "within": (0.01, 0.01)}
        return {name: (*arms[name], *rings[name].tolist()) for name in arms} | {"sd": MISFIT}

    def sample(self, key: Array) -> Array:
        """δ, as an array [1]."""
        if self.delta is None:
            return prng.uniforms(key, 1)
        return jnp.full(1, jnp.asarray(self.delta, jnp.float32))

    def visit(self, key: Array, instance: Array, t: Array) -> Visit:
        u = prng.uniforms(key, 2)
        radius, turn = jnp.sqrt(u[0]), 4 * u[1]
        spot = Spot(instance[0], radius, jnp.minimum(turn.astype(jnp.int32), 3))
        return Visit(spot, self._raw(radius, turn) if self.shares_context else self._ramps(spot))

    def context(self, key: Array, instance: Array, t: Array) -> Array:
        return self.visit(key, instance, t).features

    def _raw(self, radius: Array, turn: Array) -> Array:
        angle = np.float32(np.pi / 2) * turn
        return jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle)])

    def _ramps(self, spot: Spot) -> Array:
        """Features [5, 2 + bins]."""
        low, high = (edges.astype(np.float32) for edges in (self.edges[:-1], self.edges[1:]))
        into = jnp.clip((spot.radius - low) / (high - low), 0.0, 1.0)
        own = (jnp.arange(ARMS) == spot.quarter + 1).astype(jnp.float32)
        safe = jnp.arange(ARMS) == 0
        kinds = jnp.stack([safe, ~safe], axis=1).astype(jnp.float32)
        return jnp.concatenate([kinds, own[:, None] * into[None]], axis=1)

    def means(self, instance: Visit) -> Array:
        """Expected rewards [5] at a spot."""
        spot, arms = instance.instance, jnp.arange(ARMS)
        wins = (arms == spot.quarter + 1) & (spot.radius > spot.delta)
        usual = jnp.where(arms == 0, np.float32(SAFE), np.float32(USUAL))
        return jnp.where(wins, np.float32(PRIZE), usual)

    def reward(self, key: Array, instance: Visit, arm: Array, t: Array) -> Array:
        mean = self.rewards.arm(self.means(instance), arm)
        sd = jnp.where(mean == PRIZE, np.float32(PRIZE_SD), np.float32(vars(self.rewards)["sd"]))
        return mean + sd * prng.normal(key)

    def describe(self) -> dict[str, Any]:
        found = {"kind": self.kind, "features": self.features, "bins": self.bins}
        return found if self.delta is None else {**found, "delta": float(self.delta)}
