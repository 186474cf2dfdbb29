"""Bayes-optimal policies, whose tables `gradband.exact.optimum` computes."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gradband.core.arrays import Array, namespace, nn, one_hot
from gradband.core.errors import number
from gradband.policies.base import Bounds, Counting, Counts, Flag, InputError, Params, Spec, Whole
from gradband.solvers.layout import LONGEST, byte_starts, cell, place, size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimal(Counting):
    """A policy that looks up its arm in a table made for one problem."""

    differentiable: ClassVar[bool] = False
    binary: ClassVar[bool] = True
    batches: ClassVar[bool] = False  # it is optimal only if rewards are observed one by one
    flexible: ClassVar[bool] = False
    bounded: ClassVar[bool] = True
    listed: ClassVar[bool] = False
    rounds: Whole = 0
    """the horizon that the table was made for"""
    afterwards: Flag = False
    """whether the table also has the arm to use after the last round"""

    def check(self) -> None:
        super().check()
        if self.horizon != self.rounds:
            raise InputError(f"{self.name} was made for {self.rounds} rounds, not for {self.horizon}")

    def choice(self, params: Params, state: Any) -> Array:
        """The arm to pull."""
        raise NotImplementedError

    def act(self, key: Array, params: Params, state: Any) -> Array:
        return self.choice(params, state)

    def recommend(self, params: Params, state: Any) -> Array:
        best = super().recommend(params, state)
        if not self.afterwards:
            return best
        counts = self.counts(state)
        over = counts.rounds == self.horizon
        return namespace(counts.pulls).where(over, self.choice(params, state), best)

    def probabilities(self, params: Params, state: Any) -> Array:
        return one_hot(self.choice(params, state), self.arms).astype(float)

    def init(self, key: Array) -> Params:
        raise InputError(f"{self.name} is made for one problem: use gb.exact.optimum(problem).policy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimalThresholds(Optimal):
    """Two arms: arm 0 if arm 1 has fewer ones than a threshold, given by the round and arm 0's counts."""

    name: ClassVar[str] = "optimal-thresholds"

    def check(self) -> None:
        super().check()
        if self.arms != 2:
            raise InputError(f"{self.name} is a policy for 2 arms, not {self.arms}")

    def specs(self) -> dict[str, Spec]:
        return {"thresholds": Spec((size(self.horizon),), np.int16)}

    def bounds(self) -> Bounds:
        return {"thresholds": 0.0}, {"thresholds": float(self.horizon)}

    def choice(self, params: Params, state: Counts) -> Array:
        pulls, ones, t = state.as_integers()
        threshold = params["thresholds"][place(t, pulls[0], ones[0])]
        return (ones[1] >= threshold).astype(np.int32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimalChoices(Optimal):
    """Two arms, with pulls afterwards: one bit per state, whether to pull the second arm."""

    name: ClassVar[str] = "optimal-choices"

    def check(self) -> None:
        super().check()
        if self.arms != 2:
            raise InputError(f"{self.name} is a policy for 2 arms, not {self.arms}")
        number(f"horizon of {self.name}", self.horizon, 1, LONGEST)

    def specs(self) -> dict[str, Spec]:
        return {"choices": Spec((int(byte_starts(self.horizon + 1)[-1]),), np.uint8)}

    def choice(self, params: Params, state: Counts) -> Array:
        pulls, ones, t = state.as_integers()
        at = cell(t, pulls[0], ones[0], ones[1])
        xp = namespace(at)
        start = xp.asarray(byte_starts(self.horizon + 1), np.int32)[t]
        bits = params["choices"][start + at // 8].astype(np.int32)
        place_value = xp.asarray(2 ** np.arange(8), np.int32)[at % 8]  # ONNX cannot shift integers
        return bits // place_value % 2


class Node(NamedTuple):
    """Counts, and the number of the state in the graph."""

    counts: Counts
    number: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimalGraph(Optimal):
    """Any number of arms: a graph of states, each of which has a position to pull.

    An arm's position is its entry in `kinds`, or its rank by kind and counts if arms are `exchangeable`.
    """

    name: ClassVar[str] = "optimal-graph"
    nodes: Whole = 1
    positions: Whole = 1
    exchangeable: Flag = True

    def check(self) -> None:
        super().check()
        if self.positions < self.arms and self.exchangeable:
            raise InputError(f"{self.name} has {self.positions} positions for {self.arms} arms")

    def specs(self) -> dict[str, Spec]:
        return {
            "action": Spec((self.nodes,), np.int16),
            "child": Spec((self.nodes, self.positions, 2), np.int32),
            "kinds": Spec((self.arms,), np.int32),
        }

    def bounds(self) -> Bounds:
        kinds = self.arms if self.exchangeable else min(self.arms, self.positions)
        most = {"action": self.positions - 1, "child": self.nodes - 1, "kinds": kinds - 1}
        return dict.fromkeys(most, 0.0), {name: float(value) for name, value in most.items()}

    def begin(self, params: Params, latent: Array) -> Node:
        xp = namespace(latent)
        return Node(Counts.zeros(self.arms, xp), xp.zeros((), np.int32))

    def counts(self, state: Node) -> Counts:
        return state.counts

    def after(self, counts: Counts) -> Node:
        raise InputError(f"{self.name} needs a node of its graph: counts do not determine it")

    def places(self, params: Params, counts: Counts) -> Array:
        """The arms' positions [K]."""
        if not self.exchangeable:
            return params["kinds"]
        code = (counts.pulls * (counts.pulls + 1) / 2 + counts.sums).astype(np.int32)
        code = code + params["kinds"] * (self.horizon + 1) ** 2
        earlier = np.tri(self.arms, k=-1, dtype=bool)  # of arms with the same code, the first is before
        before = (code[:, None] > code[None, :]) | ((code[:, None] == code[None, :]) & earlier)
        return before.sum(1)

    def choice(self, params: Params, state: Node) -> Array:
        return (self.places(params, state.counts) == params["action"][state.number]).argmax()

    def update(self, params: Params, state: Node, arm: Array, reward: Array) -> Node:
        position = self.places(params, state.counts)[arm]
        one = namespace(reward).asarray(reward > 0.5, np.int32)
        return Node(state.counts.add(arm, reward), params["child"][state.number, position, one])

    def check_state(self, state: Node, rounds: int) -> None:
        super().check_state(state, rounds)
        if int(state.number) not in range(self.nodes):
            raise InputError(f"{self.name} has no node {state.number}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimalGrid(Optimal):
    """One of J known instances: the arm of the grid point nearest to the posterior, in each round."""

    name: ClassVar[str] = "optimal-grid"
    instances: Whole = 2
    resolution: Whole = 1
    points: Whole = 2

    def specs(self) -> dict[str, Spec]:
        return {
            "action": Spec((self.horizon + self.afterwards, self.points), np.int16),
            "log_likelihood": Spec((2, self.instances, self.arms), np.float32),
            "log_weights": Spec((self.instances,), np.float32),
            "ranks": Spec((self.resolution + 1, self.instances - 1), np.int32),
        }

    def bounds(self) -> Bounds:
        lower, upper = super().bounds()
        most = {"action": self.arms - 1, "ranks": self.points - 1}
        return lower | dict.fromkeys(most, 0), upper | most

    def choice(self, params: Params, state: Counts) -> Array:
        zero, one = params["log_likelihood"]
        log = params["log_weights"] + one @ state.sums + zero @ (state.pulls - state.sums)
        xp, posterior = namespace(log), nn(log).softmax(log)
        tails = xp.cumsum(posterior[:0:-1])[::-1] * self.resolution
        corner = xp.clip(xp.floor(tails + 0.5).astype(np.int32), 0, self.resolution)
        point = params["ranks"][corner, xp.arange(self.instances - 1)].sum()
        point = xp.minimum(point, self.points - 1)
        return params["action"][state.rounds.astype(np.int32), point].astype(np.int32)
