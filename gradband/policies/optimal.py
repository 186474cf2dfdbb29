"""Bayes-optimal policies, as tables that `gradband.exact.optimum` fills."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core.errors import InputError, number, shown, whole
from gradband.core.pytrees import one_hot
from gradband.policies.base import Counting, Counts, Params
from gradband.solvers.layout import LONGEST, byte_starts, cell, place, size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimal(Counting):
    """A policy that looks its arm up in a table made for one problem."""

    differentiable: ClassVar[bool] = False
    binary: ClassVar[bool] = True
    batches: ClassVar[bool] = False  # it is optimal where every reward is seen at once
    rounds: int = 0
    """the horizon that the table was made for"""
    afterwards: bool = False
    """whether the table also has the arm to stay with after the last round"""

    def check(self) -> None:
        super().check()
        if self.horizon != whole("rounds", self.rounds):
            raise InputError(f"{self.name} was made for {self.rounds} rounds, not for {self.horizon}")

    def choice(self, params: Params, state: Any) -> Array:
        """The arm to pull."""
        raise NotImplementedError

    def act(self, key: Array, params: Params, state: Any) -> Array:
        return self.choice(params, state)

    def recommend(self, params: Params, state: Any) -> Array:
        return self.choice(params, state) if self.afterwards else super().recommend(params, state)

    def probabilities(self, params: Params, state: Any) -> Array:
        return one_hot(self.choice(params, state), self.arms).astype(jnp.result_type(float))

    def init(self, key: Array) -> Params:
        raise InputError(f"{self.name} is made for one problem: use gb.exact.optimum(problem).policy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimalThresholds(Optimal):
    """Two arms: arm 0 if arm 1 has fewer ones than a threshold, which depends on the round and arm 0."""

    name: ClassVar[str] = "optimal-thresholds"

    def check(self) -> None:
        super().check()
        if self.arms != 2:
            raise InputError(f"{self.name} is a policy for 2 arms, not {self.arms}")

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        return {"thresholds": jax.ShapeDtypeStruct((size(self.horizon),), np.int16)}

    def bounds(self) -> tuple[dict[str, float], dict[str, float]]:
        return {"thresholds": 0.0}, {"thresholds": float(self.horizon)}

    def choice(self, params: Params, state: Counts) -> Array:
        pulls, ones, t = (x.astype(jnp.int32) for x in (state.pulls, state.sums, state.rounds))
        threshold = params["thresholds"][place(t, pulls[0], ones[0])]
        return (ones[1] >= threshold).astype(jnp.int32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimalChoices(Optimal):
    """Two arms, and pulls afterwards: a bit for each state, whether to pull the second arm."""

    name: ClassVar[str] = "optimal-choices"

    def check(self) -> None:
        super().check()
        if self.arms != 2:
            raise InputError(f"{self.name} is a policy for 2 arms, not {self.arms}")
        number(f"horizon of {self.name}", self.horizon, 1, LONGEST)

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        return {"choices": jax.ShapeDtypeStruct((int(byte_starts(self.horizon + 1)[-1]),), np.uint8)}

    def choice(self, params: Params, state: Counts) -> Array:
        pulls, ones, t = (x.astype(jnp.int32) for x in (state.pulls, state.sums, state.rounds))
        at = cell(t, pulls[0], ones[0], ones[1])
        start = jnp.asarray(byte_starts(self.horizon + 1), jnp.int32)[t]
        bits = params["choices"][start + at // 8].astype(jnp.int32)
        place_value = jnp.asarray(2 ** np.arange(8), jnp.int32)[at % 8]  # ONNX has no shifts of integers
        return bits // place_value % 2


class Node(NamedTuple):
    """Counts, and the number of the state in the graph."""

    counts: Counts
    number: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimalGraph(Optimal):
    """Any number of arms: a graph of states, whose nodes say which position to pull.

    An arm's position is its `kinds` entry, or with `exchangeable` arms its rank by kind and counts.
    """

    name: ClassVar[str] = "optimal-graph"
    nodes: int = 1
    positions: int = 1
    exchangeable: bool = True

    def check(self) -> None:
        super().check()
        whole("nodes", self.nodes)
        whole("positions", self.positions)
        if not isinstance(self.exchangeable, bool):
            raise InputError(f"exchangeable must be true or false, not {shown(self.exchangeable)}")

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        return {
            "action": jax.ShapeDtypeStruct((self.nodes,), np.int16),
            "child": jax.ShapeDtypeStruct((self.nodes, self.positions, 2), np.int32),
            "kinds": jax.ShapeDtypeStruct((self.arms,), np.int32),
        }

    def bounds(self) -> tuple[dict[str, float], dict[str, float]]:
        most = {"action": self.positions - 1, "child": self.nodes - 1, "kinds": self.arms - 1}
        return dict.fromkeys(most, 0.0), {name: float(value) for name, value in most.items()}

    def begin(self, params: Params, latent: Array) -> Node:
        return Node(Counts.zeros(self.arms), jnp.int32(0))

    def after(self, counts: Counts) -> Node:
        raise InputError(f"the state of {self.name} is a node of its graph, which counts do not tell")

    def places(self, params: Params, counts: Counts) -> Array:
        """The arms' positions [K]."""
        if not self.exchangeable:
            return params["kinds"]
        code = (counts.pulls * (counts.pulls + 1) / 2 + counts.sums).astype(jnp.int32)
        code = code + params["kinds"] * (self.horizon + 1) ** 2
        arm = jnp.arange(self.arms)
        before = (code[:, None] > code[None, :]) | (
            (code[:, None] == code[None, :]) & (arm[:, None] > arm[None, :])
        )
        return before.sum(1)

    def estimates(self, params: Params, state: Node) -> Array:
        return super().estimates(params, state.counts)

    def choice(self, params: Params, state: Node) -> Array:
        return jnp.argmax(self.places(params, state.counts) == params["action"][state.number])

    def update(self, params: Params, state: Node, arm: Array, reward: Array) -> Node:
        position = self.places(params, state.counts)[arm]
        after = params["child"][state.number, position, (reward > 0.5).astype(jnp.int32)]
        return Node(state.counts.add(arm, reward), after)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimalGrid(Optimal):
    """One of J known instances: the arm of the grid point nearest to the posterior, in each round.

    The posterior is proportional to the weights times the likelihood of the counts.
    """

    name: ClassVar[str] = "optimal-grid"
    instances: int = 2
    resolution: int = 1
    points: int = 2

    def check(self) -> None:
        super().check()
        for setting in ("instances", "resolution", "points"):
            whole(setting, getattr(self, setting))

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        return {
            "action": jax.ShapeDtypeStruct((self.horizon + self.afterwards, self.points), np.int16),
            "log_likelihood": jax.ShapeDtypeStruct((2, self.instances, self.arms), np.float32),
            "log_weights": jax.ShapeDtypeStruct((self.instances,), np.float32),
            "ranks": jax.ShapeDtypeStruct((self.resolution + 1, self.instances - 1), np.int32),
        }

    def bounds(self) -> tuple[dict[str, float], dict[str, float]]:
        lower, upper = super().bounds()
        return lower | {"action": 0, "ranks": 0}, upper | {
            "action": self.arms - 1,
            "ranks": self.points - 1,
        }

    def choice(self, params: Params, state: Counts) -> Array:
        zero, one = params["log_likelihood"]
        log = params["log_weights"] + one @ state.sums + zero @ (state.pulls - state.sums)
        posterior = jax.nn.softmax(log)
        tails = jnp.cumsum(posterior[:0:-1])[::-1] * self.resolution
        corner = jnp.clip(jnp.floor(tails + 0.5).astype(jnp.int32), 0, self.resolution)
        point = params["ranks"][corner, jnp.arange(self.instances - 1)].sum()
        return params["action"][state.rounds.astype(jnp.int32), point].astype(jnp.int32)
