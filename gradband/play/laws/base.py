"""The shape that policies share when they are played: NumPy in place of JAX, and memory changed in place.

A law is a policy bound to K arms and n rounds, with its learned parameters. What a player remembers is a
dictionary of arrays, so that any number of players share one law, and all of it can be written as JSON.
"""

import dataclasses
import functools
import hashlib
import json
import math
from typing import ClassVar

import numpy as np

from gradband.core.errors import LARGEST, InputError, number, number_of_arms, shown, whole

Memory = dict[str, np.ndarray]
LEAST, MOST = 1e-6, 1e12  # of a beta distribution's parameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class Law:
    """What a policy does, as the policy of the same `name` in `gradband.policies` does it."""

    name: ClassVar[str]
    binary: ClassVar[bool] = False
    """Hears rewards in [0, 1] rounded to 0 or 1 at random."""
    unit: ClassVar[bool] = False
    """Is made for rewards in [0, 1] only."""
    batches: ClassVar[bool] = False
    """Can hear of a batch of pulls at once."""
    opens: ClassVar[bool] = False
    """Each arm is pulled once before anything else."""
    flexible: ClassVar[bool] = False
    """Arms can be added and retired."""
    bounded: ClassVar[bool] = False
    """Can't be played beyond its horizon."""

    arms: int
    horizon: int
    params: dict[str, np.ndarray] = dataclasses.field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        number_of_arms(self.arms)
        whole("horizon", self.horizon)
        for field in dataclasses.fields(self):
            if field.name in ("arms", "horizon", "params"):
                continue
            value = getattr(self, field.name)
            wanted = type(field.default)
            if isinstance(value, bool) != (wanted is bool) or not (
                isinstance(value, wanted) or (wanted is float and isinstance(value, int))
            ):
                raise InputError(f"{field.name} of {self.name} can't be {shown(value)}")
        self.check()
        self._check_params()

    def check(self) -> None:
        """Refuses settings that can't be played."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters."""
        return {}

    def bounds(self) -> dict[str, tuple[float, float]]:
        """Least and greatest values of those parameters that have them."""
        return {}

    def _check_params(self) -> None:
        shapes, bounds = self.shapes(), self.bounds()
        if set(self.params) != set(shapes):
            wanted = ", ".join(shapes) or "none"
            raise InputError(f"the parameters of {self.name} are: {wanted}; not {shown(list(self.params))}")
        for name, array in self.params.items():
            low, high = bounds.get(name, (-LARGEST, LARGEST))
            if array.dtype.kind == "f":  # as it was learned: float32 may round past a bound of float64
                low, high = float(np.float32(low)), float(np.float32(high))
            if array.shape != shapes[name] or array.dtype.kind not in "fiu":
                raise InputError(f"the parameter {name} must hold numbers of the shape {shapes[name]}")
            if array.size and not (low <= array.min() and array.max() <= high):  # NaN is in no interval
                raise InputError(f"the parameter {name} must lie in [{low:g}, {high:g}]")

    def begin(self, u: float) -> Memory:
        """What is remembered before the first round, with the `rounds` whose rewards were heard.

        u in [0, 1) draws a latent, if there is one.
        """
        raise NotImplementedError

    def decide(self, memory: Memory) -> bool:
        """Hears that an arm was chosen, before its reward, and says whether that changes anything."""
        return False

    def probabilities(self, memory: Memory) -> np.ndarray:
        """Probabilities [K] of pulling the arms."""
        raise NotImplementedError

    def recommend(self, memory: Memory) -> int:
        """The arm to stay with after the last round."""
        return int(self.probabilities(memory).argmax())

    def hear(self, memory: Memory, arm: int, reward: float, propensity: float) -> None:
        """Remembers the reward of an arm that was pulled with some probability."""
        raise NotImplementedError

    def hear_many(self, memory: Memory, pulls: np.ndarray, sums: np.ndarray, p: np.ndarray) -> None:
        """Remembers a batch: pulls and sums of rewards [K] of arms whose probabilities were p [K]."""
        raise NotImplementedError

    @functools.cached_property
    def fingerprint(self) -> str:
        """Sixteen digits that tell one law from another."""
        fields = (field.name for field in dataclasses.fields(self) if field.name != "params")
        settings = {name: getattr(self, name) for name in fields}
        digest = hashlib.sha256(json.dumps([self.name, settings], sort_keys=True).encode())
        for name, array in sorted(self.params.items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def check_memory(self, memory: Memory) -> None:
        """Refuses numbers that can't have come from playing."""
        if memory["rounds"] < 0:
            raise InputError("rounds in memory must be at least 0")

    def add(self, memory: Memory) -> None:
        """Makes room for one more arm."""
        for name, array in memory.items():
            if array.ndim:
                memory[name] = np.append(array, 0.0)

    def retire(self, memory: Memory, arm: int) -> None:
        """Forgets an arm; those behind it move up."""
        for name, array in memory.items():
            if array.ndim:
                memory[name] = np.delete(array, arm)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counting(Law):
    """A law that remembers pulls T [K], sums of rewards [K], and how many rewards it heard."""

    batches: ClassVar[bool] = True
    flexible: ClassVar[bool] = True

    def begin(self, u: float) -> Memory:
        return {"pulls": np.zeros(self.arms), "sums": np.zeros(self.arms), "rounds": np.zeros(())}

    def estimates(self, memory: Memory) -> np.ndarray:
        """What the arms' means are taken to be [K], the greatest of which is recommended."""
        return np.where(memory["pulls"] > 0, means(memory), -np.inf)

    def recommend(self, memory: Memory) -> int:
        return int(self.estimates(memory).argmax())

    def hear(self, memory: Memory, arm: int, reward: float, propensity: float) -> None:
        memory["pulls"][arm] += 1
        memory["sums"][arm] += reward
        memory["rounds"] += 1

    def hear_many(self, memory: Memory, pulls: np.ndarray, sums: np.ndarray, p: np.ndarray) -> None:
        memory["pulls"] += pulls
        memory["sums"] += sums
        memory["rounds"] += pulls.sum()

    def check_memory(self, memory: Memory) -> None:
        super().check_memory(memory)
        pulls, sums = memory["pulls"], memory["sums"]
        if (pulls < 0).any() or (pulls != np.floor(pulls)).any() or memory["rounds"] < pulls.sum():
            raise InputError("pulls in memory must be whole numbers, and no more than the rounds")
        if (self.unit or self.binary) and ((sums < 0) | (sums > pulls * (1 + 1e-9))).any():
            raise InputError("sums in memory must lie between 0 and the pulls")
        if self.binary and (sums != np.floor(sums)).any():
            raise InputError(f"{self.name} hears zeros and ones, whose sums are whole numbers")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Believing(Counting):
    """A law that believes an arm's mean to be Beta(a + ones, b + zeros)."""

    binary: ClassVar[bool] = True
    a: float = 1.0
    b: float = 1.0

    def check(self) -> None:
        super().check()
        number(f"a of {self.name}", self.a, LEAST, MOST)
        number(f"b of {self.name}", self.b, LEAST, MOST)

    def estimates(self, memory: Memory) -> np.ndarray:
        ones, zeros = self.posterior(memory)
        return ones / (ones + zeros)

    def posterior(self, memory: Memory) -> tuple[np.ndarray, np.ndarray]:
        """The parameters [K] of the arms' beta posteriors."""
        ones = memory["sums"]
        return self.a + ones, self.b + memory["pulls"] - ones


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneParameter(Law):
    """A law with one parameter θ in [`least`, `most`]."""

    least: ClassVar[float] = 1e-15
    most: ClassVar[float] = LARGEST
    theta: float = 1.0

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"theta": ()}

    def bounds(self) -> dict[str, tuple[float, float]]:
        return {"theta": (self.least, self.most)}

    def check(self) -> None:
        super().check()
        number(f"theta of {self.name}", self.theta)

    @property
    def value(self) -> float:
        """The learned θ."""
        return float(self.params["theta"])


def means(memory: Memory) -> np.ndarray:
    """Empirical means [K], 0 for arms not heard of."""
    return memory["sums"] / np.maximum(memory["pulls"], 1)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities proportional to exp(scores) [K]."""
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def greatest(index: np.ndarray) -> np.ndarray:
    """Equal probabilities for all arms whose index is greatest."""
    best = index == index.max()
    return best / best.sum()


def certain(arm: int, arms: int) -> np.ndarray:
    """All of the probability on one arm."""
    p = np.zeros(arms)
    p[arm] = 1.0
    return p


def log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
