"""Laws whose probabilities are a formula of counts or weighted rewards."""

import dataclasses
import math
from typing import ClassVar

import numpy as np

from gradband.core.errors import InputError, number, positive
from gradband.play.laws.base import Counting, Memory, OneParameter, certain, greatest, means, softmax

MARGIN = 1e-3  # of explore-then-commit's latent, as in learning


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftElim(Counting, OneParameter):
    """p_i ∝ exp(−2 (max_j μ̂_j − μ̂_i)² T_i / θ)."""

    name: ClassVar[str] = "softelim"
    opens: ClassVar[bool] = True

    def probabilities(self, memory: Memory) -> np.ndarray:
        pulls = memory["pulls"]
        mean = means(memory)
        gap = mean - mean.max()
        weights = np.exp(gap * gap * pulls * (-2 / self.value))
        weights /= weights.sum()
        return weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class Boltzmann(Counting, OneParameter):
    """p_i ∝ exp(μ̂_i / θ)."""

    name: ClassVar[str] = "boltzmann"
    opens: ClassVar[bool] = True

    def probabilities(self, memory: Memory) -> np.ndarray:
        return softmax(means(memory) / self.value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpsilonGreedy(Counting, OneParameter):
    """p_i = θ/K + (1 − θ) 1{i is best} / #best."""

    name: ClassVar[str] = "epsilon-greedy"
    opens: ClassVar[bool] = True
    most: ClassVar[float] = 1.0

    def probabilities(self, memory: Memory) -> np.ndarray:
        best = greatest(means(memory))
        return self.value / len(best) + (1 - self.value) * best


@dataclasses.dataclass(frozen=True, kw_only=True)
class KLSoftElim(Counting, OneParameter):
    """p_i ∝ exp(−T_i kl(μ̂_i, max_j μ̂_j) / θ) with learned pseudo-counts a and b."""

    name: ClassVar[str] = "kl-softelim"
    unit: ClassVar[bool] = True
    a: float = 1.0
    b: float = 1.0

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"theta": (), "a": (), "b": ()}

    def bounds(self) -> dict[str, tuple[float, float]]:
        return super().bounds() | dict.fromkeys("ab", (1e-3, self.most))

    def check(self) -> None:
        super().check()
        positive("a of kl-softelim", self.a)
        positive("b of kl-softelim", self.b)

    def estimates(self, memory: Memory) -> np.ndarray:
        a, b = float(self.params["a"]), float(self.params["b"])
        return (a + memory["sums"]) / (a + b + memory["pulls"])

    def probabilities(self, memory: Memory) -> np.ndarray:
        ones = float(self.params["a"]) + memory["sums"]
        zeros = float(self.params["b"]) + memory["pulls"] - memory["sums"]
        total = ones + zeros
        return softmax(-memory["pulls"] * divergence(ones / total, zeros / total) / self.value)


def divergence(mean: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """kl(μ_i, max_j μ_j) [K] of Bernoulli variables, from μ [K] and 1 − μ."""
    return mean * np.log(mean / mean.max()) + rest * np.log(rest / rest.min())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Uniform(Counting):
    """p_i = 1/K."""

    name: ClassVar[str] = "uniform"

    def probabilities(self, memory: Memory) -> np.ndarray:
        arms = len(memory["pulls"])
        return np.full(arms, 1 / arms)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exp3(OneParameter):
    """Exponential weights of rewards, each divided by the probability with which its arm was pulled."""

    name: ClassVar[str] = "exp3"
    batches: ClassVar[bool] = True
    most: ClassVar[float] = 1.0
    gradient: str = "exact"

    def begin(self, u: float) -> Memory:
        return {"weighted": np.zeros(self.arms), "rounds": np.zeros(())}

    def probabilities(self, memory: Memory) -> np.ndarray:
        share = self.value / self.arms
        return share + (1 - self.value) * softmax(share * memory["weighted"])

    def hear(self, memory: Memory, arm: int, reward: float, propensity: float) -> None:
        memory["weighted"][arm] += reward / propensity
        memory["rounds"] += 1

    def hear_many(self, memory: Memory, pulls: np.ndarray, sums: np.ndarray, p: np.ndarray) -> None:
        memory["weighted"] += np.where(sums > 0, sums / np.where(p > 0, p, 1), 0)
        memory["rounds"] += pulls.sum()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExploreThenCommit(OneParameter):
    """Each arm θ̄ times in turn, and then the arm that was best until there.

    Turns go by decisions, so that exploration does not wait for rewards; the commitment rests on the first
    θ̄ rewards of each arm.
    """

    name: ClassVar[str] = "explore-then-commit"
    theta: float = 1.5

    def check(self) -> None:
        super().check()
        if self.horizon // self.arms < 2:
            raise InputError(f"{self.name} needs a horizon of at least twice its arms")

    def bounds(self) -> dict[str, tuple[float, float]]:
        return {"theta": (1 + MARGIN, self.horizon // self.arms - MARGIN)}

    def begin(self, u: float) -> Memory:
        least = math.floor(self.value)
        more = min(max(self.value - least, MARGIN), 1 - MARGIN)
        length = least + (u >= 1 - more)
        zeros = np.zeros(self.arms)
        return {
            "pulls": zeros,
            "sums": zeros.copy(),
            "rounds": np.zeros(()),
            "decided": np.zeros(()),
            "length": np.array(float(length)),
        }

    def probabilities(self, memory: Memory) -> np.ndarray:
        turn = int(memory["decided"])
        exploring = turn < self.arms * memory["length"]
        return certain(turn % self.arms if exploring else int(means(memory).argmax()), self.arms)

    def recommend(self, memory: Memory) -> int:
        return int(means(memory).argmax())

    def decide(self, memory: Memory) -> bool:
        memory["decided"] += 1
        return True

    def hear(self, memory: Memory, arm: int, reward: float, propensity: float) -> None:
        memory["rounds"] += 1
        if memory["pulls"][arm] < memory["length"]:
            memory["pulls"][arm] += 1
            memory["sums"][arm] += reward


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split(Counting):
    """All arms alike for a `share` of the pulls, and then the arm that was best until there."""

    name: ClassVar[str] = "split"
    flexible: ClassVar[bool] = False
    share: float = 0.5

    def check(self) -> None:
        super().check()
        number("share of split", self.share, 0, 1)

    def splitting(self, memory: Memory) -> bool:
        # Compared in float32, as when it was evaluated: .1 of 10 000 rounds is 1000 of them in both.
        return bool(memory["pulls"].sum() < np.float32(self.share * self.horizon))

    def probabilities(self, memory: Memory) -> np.ndarray:
        return greatest(np.zeros(self.arms) if self.splitting(memory) else means(memory))

    def hear(self, memory: Memory, arm: int, reward: float, propensity: float) -> None:
        if self.splitting(memory):
            super().hear(memory, arm, reward, propensity)
        else:
            memory["rounds"] += 1

    def hear_many(self, memory: Memory, pulls: np.ndarray, sums: np.ndarray, p: np.ndarray) -> None:
        if self.splitting(memory):
            super().hear_many(memory, pulls, sums, p)
        else:
            memory["rounds"] += pulls.sum()
