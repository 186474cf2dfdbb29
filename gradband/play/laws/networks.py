"""Laws that are networks."""

import dataclasses
import functools
from typing import ClassVar

import numpy as np

from gradband.core.errors import InputError, number, positive, whole
from gradband.play.laws.base import Counting, Law, Memory, greatest, means, softmax
from gradband.play.laws.softmaxes import divergence

SEEN_OF_ARM = 6  # by a Q-network
FEATURES = 8  # of an arm, for the index network


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQN(Counting):
    """The arm with the greatest Q(s, i)."""

    name: ClassVar[str] = "dqn"
    binary: ClassVar[bool] = True
    flexible: ClassVar[bool] = False
    hidden: int = 64

    def check(self) -> None:
        super().check()
        whole("hidden of dqn", self.hidden)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        sizes = (SEEN_OF_ARM * self.arms, self.hidden, self.hidden, self.arms)
        layers = enumerate(zip(sizes[:-1], sizes[1:], strict=True))
        return {
            name: shape
            for layer, (inputs, outputs) in layers
            for name, shape in ((f"w{layer}", (inputs, outputs)), (f"b{layer}", (outputs,)))
        }

    def probabilities(self, memory: Memory) -> np.ndarray:
        ones, zeros = memory["sums"], memory["pulls"] - memory["sums"]
        seen = (ones, zeros, np.log1p(ones), np.log1p(zeros), means(memory), np.ones_like(ones))
        x = np.stack(seen, axis=1).reshape(-1)
        w = self.params
        x = np.maximum(x @ w["w0"] + w["b0"], 0)
        x = np.maximum(x @ w["w1"] + w["b1"], 0)
        return greatest(x @ w["w2"] + w["b2"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class LSTM(Law):
    """A softmax of LeakyReLU(h) W + b, where h is the output of an LSTM that hears arms and rewards.

    Rewards are heard in the order in which they arrive.
    """

    name: ClassVar[str] = "lstm"
    unit: ClassVar[bool] = True
    hidden: int = 50
    forget: float = 1.0
    head: float = 0.1
    bias_scale: float = 20.0

    def check(self) -> None:
        whole("hidden of lstm", self.hidden)
        positive("bias_scale of lstm", self.bias_scale)
        number("forget of lstm", self.forget)
        number("head of lstm", self.head)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        d, k = self.hidden, self.arms
        return {
            "arm": (k, d),
            "reward": (2, d),
            "input": (4 * d, 2 * d),
            "recurrent": (4 * d, d),
            "bias": (4 * d,),
            "head": (k, d),
            "head_bias": (k,),
        }

    @functools.cached_property
    def heard(self) -> tuple[np.ndarray, np.ndarray]:
        """What pulling an arm adds to the gates [K, 4d] with reward 0, and with reward 1."""
        w, d = self.params, self.hidden
        of_arms = w["arm"] @ w["input"][:, :d].T
        zero, one = w["reward"] @ w["input"][:, d:].T + w["bias"]
        return of_arms + zero, of_arms + one

    def begin(self, u: float) -> Memory:
        zeros = np.zeros(self.hidden)
        return {"output": zeros, "cell": zeros.copy(), "rounds": np.zeros(())}

    def probabilities(self, memory: Memory) -> np.ndarray:
        h = memory["output"]
        logits = self.params["head"] @ np.where(h < 0, 0.01 * h, h)
        return softmax(logits + self.bias_scale * self.params["head_bias"])

    def check_memory(self, memory: Memory) -> None:
        super().check_memory(memory)
        if (np.abs(memory["output"]) > 1).any() or (np.abs(memory["cell"]) > 1 + memory["rounds"]).any():
            raise InputError("output and cell in memory can't be so large")

    def hear(self, memory: Memory, arm: int, reward: float, propensity: float) -> None:
        zero, one = self.heard
        gates = self.params["recurrent"] @ memory["output"] + (1 - reward) * zero[arm] + reward * one[arm]
        add, forget, new, show = gates.reshape(4, self.hidden)
        cell = sigmoid(forget) * memory["cell"] + sigmoid(add) * np.tanh(new)
        memory["cell"], memory["output"] = cell, sigmoid(show) * np.tanh(cell)
        memory["rounds"] += 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndexNetwork(Counting):
    """A softmax of scores that one network gives to all arms, from counts and the rounds left.

    Beyond its horizon it plays as in the last round.
    """

    name: ClassVar[str] = "index"
    unit: ClassVar[bool] = True
    hidden: int = 32
    a: float = 1.0
    b: float = 1.0

    def check(self) -> None:
        super().check()
        whole("hidden of index", self.hidden)
        positive("a of index", self.a)
        positive("b of index", self.b)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        h = self.hidden
        return {"w0": (h, FEATURES), "b0": (h,), "w1": (h, 3 * h), "b1": (h,), "w2": (h,), "doubt": ()}

    def estimates(self, memory: Memory) -> np.ndarray:
        return (memory["sums"] + self.a) / (memory["pulls"] + self.a + self.b)

    def probabilities(self, memory: Memory) -> np.ndarray:
        pulls, sums = memory["pulls"], memory["sums"]
        left = max(self.horizon - float(memory["rounds"]), 0.0)
        total = pulls + self.a + self.b
        mean, rest = (sums + self.a) / total, (pulls - sums + self.b) / total
        spread = np.sqrt(mean * rest / (total + 1))
        gap = mean.max() - mean
        best = np.where(gap == 0, spread, 0).max()
        x = np.empty((FEATURES, len(pulls)))
        x[0] = mean - 0.5
        x[1] = 10 * spread
        x[2] = gap / spread
        x[3] = gap / np.sqrt(spread**2 + best**2)
        x[4] = np.log(total) - 1
        x[5] = np.log(max(left, 1.0)) / 5
        x[6] = left / self.horizon
        x[7] = np.log1p(left / total) - 1
        w, h = self.params, self.hidden
        e = silu(w["w0"] @ x + w["b0"][:, None])
        pooled = w["w1"][:, h:] @ np.concatenate([e.max(1), e.mean(1)]) + w["b1"]
        y = silu(w["w1"][:, :h] @ e + pooled[:, None])
        return softmax(w["w2"] @ y - w["doubt"] * 10 * pulls * divergence(mean, rest))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def silu(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)
