"""Rows of features with labels as a bandit: guess the class of one row after another."""

import dataclasses
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.arrays import one_hot, pick
from gradband.core.errors import InputError, shown
from gradband.core.feature_names import INTERCEPT, FeatureNames
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.labelled_rows import LabelledRows, read_file
from gradband.problems.priors.base import Prior, Visit, check_checksum, numbers, set_fields, trained_on


class Order(NamedTuple):
    """An instance: an order of the rows, as the two words of a key, and which arm each class is [K]."""

    words: Array
    arm_of: Array


@pytree("table", "targets", dropped=("features", "labels", "file", "label", "columns", "centre", "spread"))
@dataclasses.dataclass(frozen=True, eq=False)
class Classification(Prior):
    """Features [N, d] of rows, and their classes [N] as numbers from 0: the arm of the right class pays 1.

    An instance is an order of the rows, which begins anew after the last, and an assignment of classes to
    arms, so that nothing is known of an arm before it is pulled. Learning sees the training rows; a share
    `held_out` of the rows, chosen at random and always the same, is for evaluation. Features have mean 0
    and variance 1 on the training rows; with an `intercept`, another feature is 1 and comes first.

    >>> rows = np.random.default_rng(0).normal(size=(50, 2))
    >>> Classification(rows, (rows[:, 0] > 0).astype(int)).dims
    3
    """

    kind: ClassVar[str] = "classification"
    features: Any
    labels: Any
    held_out: float = 0.2
    intercept: bool = True
    file: str = ""
    label: str = ""
    columns: Any = ()
    testing: bool = False
    rewards: laws.Reward = laws.Bernoulli()
    table: Any = dataclasses.field(init=False)
    targets: Any = dataclasses.field(init=False)
    arms: int = dataclasses.field(init=False)
    dims: int = dataclasses.field(init=False)
    centre: Any = dataclasses.field(init=False)
    """means of the training rows' features"""
    spread: Any = dataclasses.field(init=False)
    """and their standard deviations"""

    def __post_init__(self) -> None:
        features = numbers("features", self.features, axes=2)
        labels = numbers("labels", self.labels, axes=1)
        classes = np.unique(labels)
        if len(labels) != len(features):
            raise InputError(f"there must be {len(features)} labels, one per row, not {len(labels)}")
        if len(classes) < 2 or not np.array_equal(classes, np.arange(len(classes))):
            raise InputError(f"labels must be 0, 1, … with no gaps, at least two, not {shown(classes)}")
        if not isinstance(self.intercept, bool):
            raise InputError(f"intercept must be true or false, not {shown(self.intercept)}")
        if not isinstance(self.rewards, laws.Bernoulli):
            raise InputError("a classification pays 1 or 0: remove [rewards]")
        # Files are often sorted by class.
        order = np.random.RandomState(0).permutation(len(features))
        count = trained_on(len(features), self.held_out)
        training = features[order[:count]]
        set_fields(self, centre=training.mean(0), spread=training.std(0))
        flat = np.flatnonzero(self.spread <= 1e-12 * np.abs(features).max(0))
        if len(flat):
            name = self.columns[flat[0]] if len(self.columns) else f"number {flat[0]}"
            raise InputError(f"the feature {shown(name)} is the same in all training rows: leave it out")
        rows = order[count:] if self.testing and self.held_out else order[:count]
        table = (features[rows] - self.centre) / self.spread
        if self.intercept:
            table = np.concatenate([np.ones((len(table), 1)), table], axis=1)
        set_fields(self, table=table.astype(np.float32), targets=labels[rows].astype(np.int32))
        set_fields(self, arms=len(classes), dims=table.shape[1])

    @property
    def feature_names(self) -> FeatureNames | None:
        """What features are called, and their units; a table without names has none."""
        if not self.columns:
            return None
        names = (*(INTERCEPT,) * self.intercept, *self.columns)
        return FeatureNames(names, (), tuple(self.centre.tolist()), tuple(self.spread.tolist()))

    @classmethod
    def of(cls, rows: LabelledRows, **more: Any) -> Self:
        """The prior of rows that were read."""
        return cls(rows.features, rows.labels, columns=rows.columns, **more)

    @property
    def shares_context(self) -> bool:
        return True

    @property
    def checksum(self) -> str:
        """A checksum that identifies the rows."""
        parts = np.asarray(self.features, np.float32), np.asarray(self.labels, np.int32)
        return f"{zlib.crc32(b''.join(part.tobytes() for part in parts)):08x}"

    def sample(self, key: Array) -> Order:
        drawn = prng.uniforms(key, self.arms)
        place = np.arange(self.arms)
        tied = (drawn[:, None] == drawn[None]) & (place[:, None] > place[None])
        ranks = ((drawn[:, None] > drawn[None]) | tied).sum(1)  # lanes do not sort
        return Order(jnp.stack(prng.words(key)), ranks.astype(jnp.int32))

    def visit(self, key: Array, instance: Order, t: Array) -> Visit:
        count, t = np.uint32(len(self.table)), jnp.asarray(t, jnp.uint32)
        again = prng.fold_in(prng.from_words(*instance.words), t // count)
        row = prng.permuted(again, t % count, len(self.table)).astype(jnp.int32)
        arm = pick(instance.arm_of, jnp.asarray(self.targets)[row])
        return Visit(arm, jnp.asarray(self.table)[row])

    def context(self, key: Array, instance: Order, t: Array) -> Array:
        return self.visit(key, instance, t).features

    def means(self, instance: Visit) -> Array:
        """1 for the arm of the row's class, 0 for others [K]."""
        return one_hot(instance.instance, self.arms).astype(jnp.float32)

    def fresh(self) -> "Classification":
        """The prior on rows that were held out."""
        if self.testing or not self.held_out:
            return self
        return dataclasses.replace(self, testing=True)

    @classmethod
    def keys(cls) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("file", "label"), ("features", "held_out", "intercept", "checksum")

    @classmethod
    def read(cls, given: dict[str, Any], rewards: laws.Reward | None, find: Callable[[Any], Path]) -> Self:
        rows = read_file(find(given["file"]), given["label"], given.get("features", ()))
        chosen = {name: given[name] for name in ("file", "label", "held_out", "intercept") if name in given}
        prior = cls.of(rows, **chosen, **({} if rewards is None else {"rewards": rewards}))
        check_checksum(prior, given)
        return prior

    def describe(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in ("kind", "file", "label", "held_out", "intercept")}
        return {**found, "features": list(self.columns), "checksum": self.checksum}
