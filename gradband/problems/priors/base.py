"""The shape that all priors share."""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from jax import Array

from gradband.core.errors import LARGEST, InputError, number, positive, shown
from gradband.core.feature_names import FeatureNames
from gradband.problems import rewards as laws

Instance = Any
"""One bandit: what `sample` of its prior returns, a pytree of arrays."""


class Visit(NamedTuple):
    """A round of an instance with contexts."""

    instance: Instance
    features: Array
    """of every arm [K, d], or of all arms together [d]"""


class Prior:
    """A distribution over problem instances P with `arms` arms. By default an instance is its means [K].

    A prior whose means move has `means(instance, t)`, with t the number of pulls before; it must be a
    function of both alone, so that all policies meet the same path.

    A prior with contexts has `context(key, instance, t)`, which policies see before they pull, and
    `means(visit)`: in place of the instance, `means` and `reward` get a `Visit`, with both.
    """

    kind: ClassVar[str]
    knows_means: ClassVar[bool] = True
    timed: ClassVar[bool] = False
    """Whether `means` takes t."""
    arms: int
    dims: int = 0
    """Numbers that describe a context, d: of every arm, or of all arms together; 0 without contexts."""
    rewards: laws.Reward

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        cls.timed = "t" in inspect.signature(cls.means).parameters

    @property
    def label(self) -> str:
        """Its name in reports."""
        return self.kind

    @property
    def unit(self) -> bool:
        """Whether all rewards lie in [0, 1]."""
        return self.rewards.unit

    @property
    def contextual(self) -> bool:
        """Whether policies see a context in every round."""
        return self.dims > 0

    @property
    def shares_context(self) -> bool:
        """Whether a round's context is one vector [d] for all arms, and not one per arm [K, d]."""
        return False

    @property
    def feature_names(self) -> FeatureNames | None:
        """What features are called, if that is known."""
        return None

    @property
    def in_groups(self) -> bool:
        """Whether a round's context says which group the visitor belongs to: a one among zeros [d]."""
        return False

    @property
    def moves(self) -> bool:
        """Whether means differ from round to round: with the time, or with the context."""
        return self.timed or self.contextual

    @property
    def parts(self) -> int:
        """The numbers that describe an arm in its instances, or 0 if these have means [K]."""
        return 0

    @property
    def size(self) -> int | None:
        """The number of instances, if they are a list in order."""
        return None

    def sample(self, key: Array) -> Instance:
        """An instance."""
        raise NotImplementedError

    def nth(self, index: Array, key: Array) -> Instance:
        """The index-th instance of a batch: sampled with its key, unless instances are a list."""
        return self.sample(key)

    def means(self, instance: Instance) -> Array:
        """Mean rewards μ [K] of an instance."""
        return self.rewards.means(instance)

    def context(self, key: Array, instance: Instance, t: Array) -> Array:
        """The features x of round t: of every arm [K, d], or of all arms together [d].

        The key is the round's, the same in all rollouts and not that of its rewards.
        """
        raise NotImplementedError

    def visit(self, key: Array, instance: Instance, t: Array) -> Visit:
        """What round t is played on, of a prior with contexts."""
        return Visit(instance, self.context(key, instance, t))

    def described(self, instance: Instance, t: Array | int = 0) -> Array:
        """Its arms after t pulls, as rewards take them: means [K], or [parts, K]."""
        return instance if self.parts else self.means_at(instance, t)

    def means_at(self, instance: Instance, t: Array | int) -> Array:
        """Mean rewards μ [K] of an instance after t pulls, whether they move or not."""
        moving: Any = self
        return moving.means(instance, t) if self.timed else self.means(instance)

    def reward(self, key: Array, instance: Instance, arm: Array, t: Array) -> Array:
        """The reward Y[arm, t]; the same key gives all arms the same noise."""
        return self.rewards.draw(key, self.rewards.arm(self.described(instance, t), arm))

    def sums(self, key: Array, instance: Instance, pulls: Array, t: Array) -> Array:
        """Sums [K] of `pulls` [K] rewards of each arm in a batch, after t pulls."""
        return self.rewards.sums(key, pulls, self.described(instance, t))

    def fresh(self) -> "Prior":
        """The prior to evaluate on: itself, since new keys give new instances."""
        return self

    def check_horizon(self, horizon: int) -> None:
        """Raises an error for a horizon that the prior does not support."""

    def lasting(self, horizon: int) -> "Prior":
        """The prior for this many pulls: itself, unless its instances depend on how long they last."""
        return self

    def stays(self, what: str) -> None:
        """Raises an error if there are contexts or means move, which `what` does not support."""
        if self.contextual:
            raise InputError(f"{what} does not support contexts, which this problem has")
        if self.moves:
            raise InputError(f"{what} needs means that stay the same, but those of this prior move")

    @classmethod
    def keys(cls) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Required and optional keys in a problem file: the fields without and with a default."""
        own: Any = cls
        given = [field for field in dataclasses.fields(own) if field.init and field.name != "rewards"]
        optional = [field.name for field in given if field.default is not dataclasses.MISSING]
        return tuple(field.name for field in given if field.name not in optional), tuple(optional)

    @classmethod
    def read(cls, given: dict[str, Any], rewards: laws.Reward | None, find: Callable[[Any], Path]) -> Self:
        """The prior in a problem file.

        Args:
            given: The file's entries, with the prior's `keys`.
            rewards: The file's rewards, or None for the default.
            find: Returns the path of a file that the problem file names.
        """
        return cls(**given, **({} if rewards is None else {"rewards": rewards}))

    def describe(self) -> dict[str, Any]:
        """This prior as a table of a problem file."""
        required, optional = self.keys()
        found = {name: np.asarray(getattr(self, name)).tolist() for name in (*required, *optional)}
        return {"kind": self.kind, **found}


def set_fields(frozen: Any, **values: Any) -> None:
    """Sets fields of a frozen dataclass, in its `__post_init__`."""
    for name, value in values.items():
        object.__setattr__(frozen, name, value)


def trained_on(count: int, held_out: float) -> int:
    """How many of a list of instances are for training; the last ones, a share `held_out`, are not.

    >>> trained_on(10, 0.2), trained_on(3, 0.01), trained_on(5, 0)
    (8, 2, 5)
    """
    number("held_out", held_out, 0, 0.9)
    if held_out > 0 and count < 2:
        raise InputError("a single instance cannot be held out: set held_out to 0")
    return count - int(np.clip(round(count * held_out), held_out > 0, count - 1))


def check_checksum(prior: Any, given: dict[str, Any]) -> None:
    """Raises an error if a prior's file has changed since its checksum was written."""
    if given.get("checksum", prior.checksum) != prior.checksum:
        wanted = shown(given["checksum"])
        raise InputError(f"{prior.file} has changed: its checksum is {prior.checksum}, not {wanted}")


def check_unbounded(prior: Prior) -> None:
    """Raises an error if rewards are in [0, 1], for a prior whose means are not."""
    if prior.rewards.unit:
        raise InputError(
            f"a {prior.kind} prior has means outside [0, 1], which {prior.rewards.kind} rewards cannot: "
            "use gaussian rewards"
        )


def set_positive(prior: Any, *names: str) -> None:
    """Checks fields of a prior that must be above 0, and sets them as floats."""
    set_fields(
        prior,
        **{name: positive(f"{name} of the {prior.kind} prior", getattr(prior, name)) for name in names},
    )


def probabilities(what: str, given: Any, count: int, each: str) -> np.ndarray:
    """Probabilities that sum to 1, equal by default."""
    found = numbers(what, np.full(count, 1 / count) if given is None else given, axes=1)
    if found.shape != (count,) or (found < 0).any() or abs(found.sum() - 1) > 1e-6:
        wanted = f"{count} probabilities, one per {each}, that sum to 1"
        raise InputError(f"{what} must be {wanted}, not {shown(found.tolist())}")
    return found


def numbers(what: str, values: Any, axes: int) -> np.ndarray:
    """Finite numbers with this many axes, none of them empty, or an error that names them."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        array = np.asarray(None)
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


def positive_numbers(what: str, values: Any) -> np.ndarray:
    """Finite numbers above 0 in a row, or an error that names them."""
    array = numbers(what, values, axes=1)
    for entry in array:
        positive(what, float(entry))
    return array
