"""Laws that pull the arm with the greatest index, any of them where several are equal."""

import dataclasses
import math
from typing import ClassVar

import numpy as np

from gradband.core.errors import number
from gradband.play.laws.base import Believing, Counting, Memory, greatest, log_beta, means

FARTHEST = 700.0  # of a logit: e⁷⁰⁰ is still a number
STEPS = 10  # of Newton's method, which comes from the right and never oversteps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Index(Counting):
    """Pulls an arm whose index is greatest; an arm not heard of comes first."""

    def index(self, memory: Memory) -> np.ndarray:
        """The indices [K] of arms that were heard of."""
        raise NotImplementedError

    def probabilities(self, memory: Memory) -> np.ndarray:
        return greatest(np.where(memory["pulls"] == 0, np.inf, self.index(memory)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Greedy(Index):
    """The greatest μ̂_i."""

    name: ClassVar[str] = "greedy"

    def index(self, memory: Memory) -> np.ndarray:
        return means(memory)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UCB1(Index):
    """The greatest μ̂_i + √(2 log t / T_i)."""

    name: ClassVar[str] = "ucb1"

    def index(self, memory: Memory) -> np.ndarray:
        log_t = math.log(memory["rounds"] + 1)
        return means(memory) + np.sqrt(2 * log_t / np.maximum(memory["pulls"], 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class UCBV(Index):
    """The greatest μ̂_i + √(2 V_i E / T_i) + 3 c E / T_i with E = log ζ₀ + ζ log t."""

    name: ClassVar[str] = "ucb-v"
    unit: ClassVar[bool] = True
    c: float = 1.0
    zeta: float = 2.0
    zeta_0: float = 3.0

    def check(self) -> None:
        super().check()
        number("c of ucb-v", self.c, 0, 1e6)
        number("zeta of ucb-v", self.zeta, 0, 1e6)
        number("zeta_0 of ucb-v", self.zeta_0, 1, 1e6)

    def begin(self, u: float) -> Memory:
        return super().begin(u) | {"squares": np.zeros(self.arms)}

    def index(self, memory: Memory) -> np.ndarray:
        pulls, mean = np.maximum(memory["pulls"], 1), means(memory)
        variance = np.maximum(memory["squares"] / pulls - mean**2, 0)
        exploration = math.log(self.zeta_0) + self.zeta * math.log(memory["rounds"] + 1)
        return mean + np.sqrt(2 * variance * exploration / pulls) + 3 * self.c * exploration / pulls

    def hear(self, memory: Memory, arm: int, reward: float, propensity: float) -> None:
        super().hear(memory, arm, reward, propensity)
        memory["squares"][arm] += reward**2

    def hear_many(self, memory: Memory, pulls: np.ndarray, sums: np.ndarray, p: np.ndarray) -> None:
        super().hear_many(memory, pulls, sums, p)
        memory["squares"] += sums  # rewards of 0 and 1 are their own squares


@dataclasses.dataclass(frozen=True, kw_only=True)
class KLUCB(Index):
    """The greatest q ≤ 1 with T_i kl(μ̂_i, q) ≤ log t + c log log t."""

    name: ClassVar[str] = "kl-ucb"
    unit: ClassVar[bool] = True
    c: float = 0.0

    def check(self) -> None:
        super().check()
        number("c of kl-ucb", self.c, 0, 1e6)

    def index(self, memory: Memory) -> np.ndarray:
        log_t = math.log(memory["rounds"] + 1)
        budget = log_t + self.c * math.log(max(log_t, 1))
        return upper_bound(means(memory), budget / np.maximum(memory["pulls"], 1))


def upper_bound(mean: np.ndarray, divergence: np.ndarray) -> np.ndarray:
    """The q ≥ p = `mean` with kl(p, q) = `divergence`, by Newton's steps from the right.

    >>> q = upper_bound(np.array([0.5]), np.array([0.1]))
    >>> print((0.5 * np.log(0.25 / (q * (1 - q)))).round(6))
    [0.1]
    """
    eps = np.finfo(float).eps
    rest = np.maximum(1 - mean, eps)
    tail = 1 - rest * np.exp(-(divergence - xlogy(mean, mean)) / rest)
    q = np.clip(np.minimum(mean + np.sqrt(divergence / 2), tail), mean, 1 - eps)
    entropy = xlogy(mean, mean) + xlogy(1 - mean, 1 - mean)
    for _ in range(STEPS):
        excess = entropy - xlogy(mean, q) - xlogy(1 - mean, 1 - q) - divergence
        slope = (q - mean) / np.maximum(q * (1 - q), 1e-300)
        q = np.clip(q - np.where(slope > 0, excess / np.maximum(slope, 1e-300), 0), mean, 1 - eps)
    return q


def xlogy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x log y, and 0 where x is 0."""
    return x * np.log(np.where(x == 0, 1, np.maximum(y, 1e-300)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesUCB(Believing):
    """The greatest 1 − 1/t quantile of a Beta(a + ones, b + zeros) posterior."""

    name: ClassVar[str] = "bayes-ucb"

    def probabilities(self, memory: Memory) -> np.ndarray:
        t = float(memory["rounds"]) + 1
        if t == 1:  # all quantiles are 0
            return np.full(len(memory["pulls"]), 1 / len(memory["pulls"]))
        logits = {
            (ones, zeros): upper_logit(1 / t, ones, zeros)
            for ones, zeros in zip(*(x.tolist() for x in self.posterior(memory)), strict=True)
        }
        return greatest(np.array([logits[pair] for pair in zip(*self.posterior(memory), strict=True)]))


def upper_logit(tail: float, a: float, b: float) -> float:
    """log(x / (1 − x)) of the x that a Beta(a, b) variable exceeds with probability `tail`.

    Newton's method on the logarithm of the tail, kept inside an interval that is halved where a step would
    leave it.
    """
    scale, low, high = log_beta(a, b), -FARTHEST, FARTHEST
    z = min(max(math.log(a / b) + math.sqrt(1 / a + 1 / b), low + 1), high - 1)
    target = math.log(tail)
    for _ in range(200):
        above = log_upper_tail(z, a, b, scale)
        low, high = (z, high) if above > target else (low, z)
        log_density = a * log_sigmoid(z) + b * log_sigmoid(-z) - scale
        slope = math.exp(min(log_density - above, 700))
        step = (above - target) / slope if slope > 0 else math.inf
        following = z + step
        if not low < following < high:
            following = (low + high) / 2
        if abs(following - z) <= 1e-13 * max(1.0, abs(z)):
            break
        z = following
    return z


def log_sigmoid(z: float) -> float:
    return -math.log1p(math.exp(-z)) if z > 0 else z - math.log1p(math.exp(z))


def log_upper_tail(z: float, a: float, b: float, scale: float) -> float:
    """log P(X > x) for X ~ Beta(a, b) and x = 1 / (1 + e⁻ᶻ), with log B(a, b) as `scale`.

    The continued fraction of the incomplete beta function, on the side where it converges fast.
    """
    x, rest = 1 / (1 + math.exp(-z)), 1 / (1 + math.exp(z))
    front = a * log_sigmoid(z) + b * log_sigmoid(-z) - scale
    if rest < (b + 1) / (a + b + 2):
        return front - math.log(b) + math.log(_fraction(rest, b, a))
    return math.log1p(-min(math.exp(front) / a * _fraction(x, a, b), 1 - 1e-16))


def _fraction(x: float, a: float, b: float) -> float:
    """Lentz's evaluation of the continued fraction for I_x(a, b)."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    h = d
    for m in range(1, 10_000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 + numerator * d, 1 + numerator / c
            d, c = 1 / (d if abs(d) > tiny else tiny), c if abs(c) > tiny else tiny
            h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return h
