"""Laws that look their arm up in a table: the Gittins index, and Bayes-optimal policies."""

import dataclasses
from typing import ClassVar

import numpy as np

from gradband.core.errors import InputError, number, whole
from gradband.play.laws.base import Believing, Counting, Memory, certain, greatest, softmax
from gradband.solvers.layout import LONGEST, byte_starts, cell, place, size


def whole_counts(memory: Memory) -> tuple[np.ndarray, np.ndarray, int]:
    """Pulls and ones [K] as integers, and the rounds so far."""
    return memory["pulls"].astype(np.int64), memory["sums"].astype(np.int64), int(memory["rounds"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gittins(Believing):
    """The arm with the greatest Gittins index for the rounds left."""

    name: ClassVar[str] = "gittins"
    bounded: ClassVar[bool] = True

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"table": (size(self.horizon),)}

    def probabilities(self, memory: Memory) -> np.ndarray:
        pulls, ones, t = whole_counts(memory)
        return greatest(self.params["table"][place(t, pulls, ones)])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimal(Counting):
    """A law with a table that was made for one problem of so many `rounds`."""

    binary: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    batches: ClassVar[bool] = False  # it is optimal where every reward is seen at once
    flexible: ClassVar[bool] = False
    rounds: int = 0
    afterwards: bool = False

    def check(self) -> None:
        super().check()
        if self.horizon != whole("rounds", self.rounds):
            raise InputError(f"{self.name} was made for {self.rounds} rounds, not for {self.horizon}")

    def choice(self, memory: Memory) -> int:
        """The arm to pull."""
        raise NotImplementedError

    def probabilities(self, memory: Memory) -> np.ndarray:
        return certain(self.choice(memory), self.arms)

    def recommend(self, memory: Memory) -> int:
        over = self.afterwards and memory["rounds"] == self.horizon
        return self.choice(memory) if over else super().recommend(memory)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimalThresholds(Optimal):
    """Two arms: arm 0 if arm 1 has fewer ones than a threshold."""

    name: ClassVar[str] = "optimal-thresholds"

    def check(self) -> None:
        super().check()
        if self.arms != 2:
            raise InputError(f"{self.name} is a policy for 2 arms, not {self.arms}")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"thresholds": (size(self.horizon),)}

    def choice(self, memory: Memory) -> int:
        pulls, ones, t = whole_counts(memory)
        return int(ones[1] >= self.params["thresholds"][place(t, pulls[0], ones[0])])


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimalChoices(Optimal):
    """Two arms: a bit for each state, whether to pull the second arm."""

    name: ClassVar[str] = "optimal-choices"

    def check(self) -> None:
        super().check()
        if self.arms != 2:
            raise InputError(f"{self.name} is a policy for 2 arms, not {self.arms}")
        number(f"horizon of {self.name}", self.horizon, 1, LONGEST)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"choices": (int(byte_starts(self.horizon + 1)[-1]),)}

    def choice(self, memory: Memory) -> int:
        pulls, ones, t = whole_counts(memory)
        at = cell(t, pulls[0], ones[0], ones[1])
        start = byte_starts(t)[-1]
        return int(self.params["choices"][start + at // 8] >> (at % 8)) & 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimalGraph(Optimal):
    """A graph of states, whose nodes say which position to pull."""

    name: ClassVar[str] = "optimal-graph"
    nodes: int = 1
    positions: int = 1
    exchangeable: bool = True

    def check(self) -> None:
        super().check()
        whole("nodes", self.nodes)
        if self.exchangeable and whole("positions", self.positions) < self.arms:
            raise InputError(f"{self.name} has {self.positions} positions for {self.arms} arms")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"action": (self.nodes,), "child": (self.nodes, self.positions, 2), "kinds": (self.arms,)}

    def bounds(self) -> dict[str, tuple[float, float]]:
        kinds = self.arms if self.exchangeable else min(self.arms, self.positions)
        return {"action": (0, self.positions - 1), "child": (0, self.nodes - 1), "kinds": (0, kinds - 1)}

    def begin(self, u: float) -> Memory:
        return super().begin(u) | {"node": np.zeros(())}

    def check_memory(self, memory: Memory) -> None:
        super().check_memory(memory)
        if float(memory["node"]) not in range(self.nodes):
            raise InputError(f"there is no node {memory['node']:g}")

    def places(self, memory: Memory) -> np.ndarray:
        """The arms' positions [K]: their kinds, or their ranks by kind and counts if exchangeable."""
        kinds = self.params["kinds"].astype(np.int64)
        if not self.exchangeable:
            return kinds
        pulls, ones, _ = whole_counts(memory)
        code = pulls * (pulls + 1) // 2 + ones + kinds * (self.horizon + 1) ** 2
        ranks = np.empty(self.arms, int)
        ranks[np.argsort(code, kind="stable")] = np.arange(self.arms)
        return ranks

    def choice(self, memory: Memory) -> int:
        return int(np.argmax(self.places(memory) == self.params["action"][int(memory["node"])]))

    def hear(self, memory: Memory, arm: int, reward: float, propensity: float) -> None:
        after = self.params["child"][int(memory["node"]), self.places(memory)[arm], int(reward > 0.5)]
        super().hear(memory, arm, reward, propensity)
        memory["node"] = np.array(float(after))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimalGrid(Optimal):
    """One of J known instances: the arm of the grid point nearest to the posterior."""

    name: ClassVar[str] = "optimal-grid"
    instances: int = 2
    resolution: int = 1
    points: int = 2

    def check(self) -> None:
        super().check()
        for setting in ("instances", "resolution", "points"):
            whole(setting, getattr(self, setting))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "action": (self.horizon + self.afterwards, self.points),
            "log_likelihood": (2, self.instances, self.arms),
            "log_weights": (self.instances,),
            "ranks": (self.resolution + 1, self.instances - 1),
        }

    def bounds(self) -> dict[str, tuple[float, float]]:
        return {"action": (0, self.arms - 1), "ranks": (0, self.points - 1)}

    def choice(self, memory: Memory) -> int:
        zero, one = self.params["log_likelihood"]
        ones = memory["sums"]
        log = self.params["log_weights"] + one @ ones + zero @ (memory["pulls"] - ones)
        tails = np.cumsum(softmax(log)[:0:-1])[::-1] * self.resolution
        corner = np.clip(np.floor(tails + 0.5).astype(int), 0, self.resolution)
        point = int(self.params["ranks"][corner, np.arange(self.instances - 1)].sum())
        return int(self.params["action"][int(memory["rounds"]), min(point, self.points - 1)])
