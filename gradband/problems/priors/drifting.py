"""Arms whose means move: a random walk, and a cycle such as that of a week."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.errors import InputError, number, shown
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, set_fields

KNOTS = 64  # pieces of a path, each a straight line
THOUSAND = 1000.0  # pulls, in which the walk goes its standard deviation
MOST_LOGIT = 14.0  # means stay within 10⁻⁶ of 0 and 1
SINE = (6.2831853, -41.341681, 81.602481, -76.581285, 39.760722)  # of 2 π x in odd powers, |x| ≤ ¼


class Drift(NamedTuple):
    """The path of an instance: logits of the means at its knots, and where arms are in their cycle."""

    knots: Array
    """logits without the cycle [KNOTS + 1, K]"""
    phase: Array
    """share of the cycle that was over at the start [K]"""


@pytree("start", "walk", "cycle", "period", "spacing")
@dataclasses.dataclass(frozen=True, eq=False)
class Drifting(Prior):
    """Means that start as those of another prior and then move, each arm by itself.

    The logit of a mean does a random walk, whose change over 1000 pulls has the standard deviation `walk`,
    and goes up and down by `cycle` once in `period` pulls, from a random phase. A path is drawn with its
    instance, at 64 points that are evenly spread over the horizon, and straight between them.

    >>> from gradband.problems.priors.beta import Beta
    >>> Drifting(Beta(arms=3), walk=0.5).arms
    3
    """

    kind: ClassVar[str] = "drifting"
    start: Prior
    walk: float = 0.0
    cycle: float = 0.0
    period: float = 1000.0
    rewards: laws.Reward = dataclasses.field(init=False)
    arms: int = dataclasses.field(init=False)
    spacing: float = dataclasses.field(init=False, default=1.0)

    def __post_init__(self) -> None:
        start = self.start
        if not isinstance(start, Prior):
            raise InputError(f"start of the drifting prior must be a Prior, not {shown(start)}")
        start.stays("the start of a drifting prior")
        if not start.knows_means or not start.rewards.unit:
            raise InputError("start of the drifting prior must have known means in [0, 1]")
        for name in ("walk", "cycle"):
            set_fields(self, **{name: number(f"{name} of the drifting prior", getattr(self, name), 0, 100)})
        set_fields(self, period=number("period of the drifting prior", self.period, 2))
        set_fields(self, rewards=start.rewards, arms=start.arms)

    @property
    def size(self) -> int | None:
        return self.start.size

    def lasting(self, horizon: int) -> "Drifting":
        """The prior whose paths last this many pulls."""
        found = dataclasses.replace(self)
        set_fields(found, spacing=max(1.0, horizon / KNOTS))
        return found

    def fresh(self) -> "Drifting":
        return dataclasses.replace(self, start=self.start.fresh())

    def sample(self, key: Array) -> Drift:
        return self._path(self.start.sample(prng.fold_in(key, jnp.uint32(0))), key)

    def nth(self, index: Array, key: Array) -> Drift:
        return self._path(self.start.nth(index, prng.fold_in(key, jnp.uint32(0))), key)

    def _path(self, begun: Any, key: Array) -> Drift:
        """The path from an instance of `start`."""
        means = jnp.asarray(self.start.means(begun), jnp.float32)
        first = jnp.clip(jnp.log(means) - jnp.log1p(-means), -MOST_LOGIT, MOST_LOGIT)
        words = jax.random.bits(prng.fold_in(key, jnp.uint32(1)), (KNOTS + 1, self.arms))
        deviation = self.walk * jnp.sqrt(self.spacing / THOUSAND)
        steps = deviation * prng.normal_from(words[1:])
        moved = jnp.cumsum(jnp.concatenate([jnp.zeros((1, self.arms)), steps]), axis=0)
        return Drift(first[None] + moved, prng.unit(words[0]))

    def means(self, instance: Drift, t: Array | int = 0) -> Array:
        """Means [K] after t pulls."""
        pulls = jnp.asarray(t, jnp.float32)
        place = jnp.minimum(pulls / self.spacing, KNOTS)
        piece = jnp.minimum(jnp.floor(place), KNOTS - 1)
        ends = jax.lax.dynamic_slice_in_dim(instance.knots, piece.astype(jnp.int32), 2)
        logits = ends[0] + (place - piece) * (ends[1] - ends[0])
        logits = logits + self.cycle * wave(instance.phase + pulls / self.period)
        return jax.nn.sigmoid(jnp.clip(logits, -MOST_LOGIT, MOST_LOGIT))

    @classmethod
    def keys(cls) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("start",), ("walk", "cycle", "period")

    @classmethod
    def read(cls, given: dict[str, Any], rewards: laws.Reward | None, find: Callable[[Any], Path]) -> Self:
        from gradband.problems.problem_file import read_prior  # it imports this module

        numbers = {name: given[name] for name in given if name != "start"}
        return cls(read_prior(given["start"], rewards, find, "prior.start"), **numbers)

    def describe(self) -> dict[str, Any]:
        numbers = {name: float(getattr(self, name)) for name in ("walk", "cycle", "period")}
        return {"kind": self.kind, "start": self.start.describe(), **numbers}


def wave(turns: Array) -> Array:
    """sin(2 π turns), to 10⁻⁶: a polynomial, since lanes have no sine.

    >>> print(np.round(wave(jnp.array([0.0, 0.25, 0.5, 0.625])), 4) + 0.0)
    [ 0.      1.      0.     -0.7071]
    """
    x = turns - jnp.round(turns)
    x = jnp.where(jnp.abs(x) > 0.25, jnp.sign(x) * 0.5 - x, x)
    square, total = x * x, jnp.full_like(x, SINE[-1])
    for factor in SINE[-2::-1]:
        total = total * square + np.float32(factor)
    return x * total
