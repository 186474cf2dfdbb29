"""Tests with features that were drawn before: from posteriors of past experiments, or from a prior."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.core.pytrees import pytree
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior, Visit

BLOCK = 1 << 22  # numbers at a time


class Tests(NamedTuple):
    """N tests, or one of them without the first axis."""

    theta: Any
    """θ of every arm [N, K, d]"""
    features: Any
    """those of the arms [N, K, d], if these have features"""
    place: Any
    """which pool the visitors are from [N], if these have features"""
    factor: Any
    """by which mean rewards are multiplied [N]"""

    @property
    def size(self) -> int:
        """N."""
        return len(self.theta)

    def rows(self, chosen: Any) -> "Tests":
        """Some of the tests."""
        return Tests(*(None if leaf is None else leaf[chosen] for leaf in self))


@pytree("tests", "pools")
@dataclasses.dataclass(frozen=True, eq=False)
class PastContexts(Prior):
    """A list of tests in their order. Mean rewards are xᵀθᵢ, or its logistic function for rewards of 0 and
    1, times a factor, at most 1.

    Features x are those of the arms, which stay the same, or those of visitors: in every round a row of the
    test's pool in `pools` [G, P, d], each as likely.
    """

    kind: ClassVar[str] = "past-contexts"
    tests: Tests
    pools: Any
    arms: int
    dims: int
    rewards: laws.Reward = laws.Bernoulli()

    @classmethod
    def of(cls, tests: Tests, pools: np.ndarray, rewards: laws.Reward) -> "PastContexts":
        """From arrays in any precision."""
        single = Tests(*(None if leaf is None else _smaller(leaf) for leaf in tests))
        arms, dims = tests.theta.shape[1:]
        return cls(single, _smaller(pools), arms, dims, rewards)

    @property
    def shares_context(self) -> bool:
        return self.tests.features is None

    @property
    def size(self) -> int:
        return self.tests.size

    def nth(self, index: Array, key: Array) -> Tests:
        every = Tests(*(None if leaf is None else jnp.asarray(leaf) for leaf in self.tests))
        return every.rows(index % self.size)

    def context(self, key: Array, instance: Tests, t: Array) -> Array:
        if instance.features is not None:
            return instance.features
        _, rows, dims = self.pools.shape
        row = (prng.uniforms(key, 1)[0] * rows).astype(jnp.int32)
        return jnp.asarray(self.pools).reshape(-1, dims)[instance.place * rows + row]

    def means(self, instance: Visit) -> Array:
        """Mean rewards [K] in a round."""
        x, test = instance.features, instance.instance
        linear = (test.theta * (x if x.ndim == 2 else x[None])).sum(1)
        found = test.factor * (jax.nn.sigmoid(linear) if self.rewards.unit else linear)
        return jnp.minimum(found, 1) if self.rewards.unit else found

    def __len__(self) -> int:
        return self.size

    def first(self, count: int) -> "PastContexts":
        """The first tests of the list."""
        return dataclasses.replace(self, tests=self.tests.rows(slice(count)))

    def twice(self) -> "PastContexts":
        """Each test of the list twice in a row."""
        return dataclasses.replace(self, tests=self.tests.rows(np.repeat(np.arange(self.size), 2)))

    def scaled(self, factor: float) -> "PastContexts":
        """The same tests, with mean rewards times a factor."""
        scaled = (self.tests.factor * factor).astype(np.float32)
        return dataclasses.replace(self, tests=self.tests._replace(factor=scaled))

    def followed_by(self, others: list["PastContexts"]) -> "PastContexts":
        """These tests and then others, which have the same pools."""
        every = zip(self.tests, *(other.tests for other in others), strict=True)
        return dataclasses.replace(
            self, tests=Tests(*(None if leaves[0] is None else np.concatenate(leaves) for leaves in every))
        )

    def all_means(self) -> np.ndarray:
        """Mean rewards [N, K] of each test's arms, for its visitors together."""
        tests = Tests(*(None if leaf is None else np.asarray(leaf, float) for leaf in self.tests))
        if tests.features is not None:
            return self._paid((tests.theta * tests.features).sum(2), tests.factor[:, None])
        each = max(1, BLOCK // (self.arms * self.pools.shape[1]))
        found = []
        for start in range(0, tests.size, each):
            part = tests.rows(slice(start, start + each))
            x = np.swapaxes(np.asarray(self.pools, float)[part.place.astype(int)], 1, 2)  # [n, d, P]
            found.append(self._paid(part.theta @ x, part.factor[:, None, None]).mean(2))
        return np.concatenate(found)

    def _paid(self, linear: np.ndarray, factor: np.ndarray) -> np.ndarray:
        if not self.rewards.unit:
            return factor * linear
        return np.minimum(factor / (1 + np.exp(-np.clip(linear, -700, 700))), 1)

    def describe(self) -> dict[str, Any]:
        leaves = [jnp.asarray(leaf).ravel() for leaf in (*self.tests, self.pools) if leaf is not None]
        digest = prng.digest(jnp.concatenate([leaf.astype(jnp.float32) for leaf in leaves]))
        return {"kind": self.kind, "arms": self.arms, "dims": self.dims, "digest": digest}


def _smaller(values: Any) -> np.ndarray:
    """In single precision, unless they are whole numbers."""
    array = np.asarray(values)
    return array.astype(np.int32 if array.dtype.kind in "iu" else np.float32)
