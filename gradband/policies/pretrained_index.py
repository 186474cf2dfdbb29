"""An index network that was learned for all sizes: it comes with the package and plays without learning."""

import dataclasses
import functools
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from gradband.core import tensor_file
from gradband.core.arrays import Array, namespace, nn, real
from gradband.policies.base import Believing, Bounds, Counting, Counts, Params, Spec, in_range
from gradband.policies.policy import unbounded

FILE = Path(__file__).with_name("pretrained.safetensors")
HIDDEN, FEATURES = 32, 7  # units of each layer, and inputs per arm
FEWEST = 0.2  # pseudo-counts of successes or failures that the network was learned with
MOST_COUNTS = 4000.0  # of an arm: what lies beyond is scaled to these
LEARNED_ROUNDS = 4000.0  # left, up to which the network was learned
MOST_ROUNDS = 20_000.0  # up to which it is right within .065 σ
SHARPNESS = 1000.0
LEAST_SHARPNESS, MOST_SHARPNESS = 1e-3, 1e6


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainedNetwork(Counting):
    """A sharp softmax of indices: p ∝ exp(c (index − greatest index) / σ of the arm that has it).

    The sharpness c is a parameter that starts at `sharpness`: about the arm with the greatest index at
    1000, and nearly random at 1. The others are the weights of the network that comes with the package.
    """

    differentiable: ClassVar[bool] = True
    unit: ClassVar[bool] = True
    log_scale: ClassVar[frozenset[str]] = frozenset({"sharpness"})
    sharpness: Annotated[float, in_range(LEAST_SHARPNESS, MOST_SHARPNESS)] = SHARPNESS

    def specs(self) -> dict[str, Spec]:
        h = HIDDEN
        shapes = {"w0": (h, FEATURES), "b0": (h,), "w1": (h, h), "b1": (h,), "w2": (h,), "b2": ()}
        return {name: Spec(shape) for name, shape in shapes.items()} | {"sharpness": Spec()}

    def init(self, key: Array) -> Params:
        return {name: real(array) for name, array in self.stored().items()}

    def stored(self) -> dict[str, np.ndarray]:
        """The parameters that come with the package; this needs no JAX."""
        return self.as_arrays(weights() | {"sharpness": np.float64(self.sharpness)})

    def compiled(self) -> Self:
        return dataclasses.replace(self, sharpness=SHARPNESS)  # only the first parameters depend on it

    def bounds(self) -> Bounds:
        lower, upper = unbounded(self.specs())
        return lower | {"sharpness": LEAST_SHARPNESS}, upper | {"sharpness": MOST_SHARPNESS}

    def index(self, params: Params, state: Any) -> tuple[Array, Array]:
        """The arms' indices [K], and their posterior standard deviations [K]."""
        raise NotImplementedError

    def log_probs(self, params: Params, state: Any) -> Array:
        index, spread = self.index(params, state)
        gap = index.max() - index
        scale = namespace(index).where(gap == 0, spread, 0).max()
        scores = -params["sharpness"] * gap / scale
        return nn(scores).log_softmax(scores)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretrained(PretrainedNetwork, Believing):
    """p is a sharp softmax of indices that a network has learned, for any K, n and Beta(a, b) prior.

    An arm with the posterior Beta(α, β) and m rounds left has the index μ + σ √(k / (α + β + k)) h, where
    μ and σ are its posterior mean and standard deviation, k = m − 1, and h is a network's output for α, β
    and m. The root is the share of σ that k more pulls can resolve, so the last round is greedy. The
    network was fitted to finite-horizon Gittins indices (docs/pretrained.md); learning starts from there.

    Rewards are in [0, 1]; a and b are those of the Beta(a, b) prior of the arms' means.
    """

    name: ClassVar[str] = "pretrained"
    binary: ClassVar[bool] = False
    takes_prior: ClassVar[bool] = True

    def suited(self, a: float, b: float, pulls_per_round: int = 1) -> Self:
        """The policy for this prior, and for batches, within which decisions should be spread.

        The sharpness for batches is that with the least regret on a few problems (docs/pretrained.md).
        """
        sharpness = self.sharpness
        if pulls_per_round > 1:
            sharpness = max(4.0, 30 * pulls_per_round**-0.4)
        return dataclasses.replace(self, a=a, b=b, sharpness=sharpness)

    def index(self, params: Params, counts: Counts) -> tuple[Array, Array]:
        left = namespace(counts.pulls).maximum(counts.rounds_left(self.horizon), 1)
        ones, zeros = self.posterior(counts)
        mean, spread, resolved = moments(ones, zeros, left)
        return mean + spread * resolved * network(params, network_inputs(ones, zeros, left)), spread


def pretrained(a: float = 1.0, b: float = 1.0) -> Pretrained:
    """The policy that comes with the package, for arms whose means are Beta(a, b). It needs no learning.

    >>> pretrained(a=1, b=30).bind(arms=4, horizon=2000)
    Pretrained(arms=4, horizon=2000, a=1, b=30, sharpness=1000.0)

    Args:
        a: Pseudo-count of successes before the first pull.
        b: Pseudo-count of failures before the first pull.
    """
    return Pretrained(a=a, b=b)


def moments(ones: Array, zeros: Array, left: Array) -> tuple[Array, Array, Array]:
    """Means and standard deviations of Beta(ones, zeros), and the share that the rounds left can resolve.

    This is the standard deviation of the posterior mean before the last round, in units of the posterior's.
    """
    xp, total = namespace(ones, left), ones + zeros
    mean = ones / total
    spread = xp.sqrt(mean * (zeros / total) / (total + 1))
    return mean, spread, xp.sqrt((left - 1) / (total + left - 1))


def network_inputs(ones: Array, zeros: Array, left: Array, most: float = MOST_ROUNDS) -> Array:
    """The network's inputs [7, …] for posteriors Beta(ones, zeros) with `left` rounds left, m ≥ 1.

    Large counts are scaled down together with the rounds left: in the limit only m / (α + β) matters.
    """
    xp = namespace(ones, left)
    much = xp.maximum((ones + zeros) / MOST_COUNTS, 1)
    ones, zeros = xp.maximum(ones / much, FEWEST), xp.maximum(zeros / much, FEWEST)
    left = xp.clip(left / much, 1, most)
    total = ones + zeros
    seen = (
        xp.log(ones) / 2 - 1,
        xp.log(zeros) / 2 - 1,
        xp.log(total) / 2 - 2,
        xp.log(left) / 2 - 2,
        xp.log1p((left - 1) / total) - 1,
        2 * ones / total - 1,
        4 * xp.sqrt(ones * zeros) / total - 1,
    )
    return xp.stack([xp.broadcast_to(x, total.shape) for x in seen])


def network(params: Params, x: Array) -> Array:
    """The network's outputs [K] for its inputs [7, K]."""
    silu = nn(x).silu
    e = silu(params["w0"] @ x + params["b0"][:, None])
    return params["w2"] @ silu(params["w1"] @ e + params["b1"][:, None]) + params["b2"]


@functools.cache
def weights() -> dict[str, np.ndarray]:
    """The parameters in the package's file, read when they are first used."""
    arrays, _ = tensor_file.load(FILE, "policy")
    return tensor_file.named(arrays, "params.")
