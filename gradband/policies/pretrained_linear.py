"""SoftElim on linear beliefs that was learned for all sizes: it comes with the package."""

import dataclasses
import functools
from pathlib import Path
from typing import ClassVar

import numpy as np

from gradband.core import tensor_file
from gradband.core.arrays import Array, namespace, nn, real
from gradband.policies.base import Bounds, Params, Spec
from gradband.policies.beliefs import Seen, relief
from gradband.policies.directed_softelim import DirectedSoftElim, directed
from gradband.policies.lin_softelim import LEAST
from gradband.policies.linear_policy import LinearPolicy
from gradband.policies.policy import unbounded

FILE = Path(__file__).with_name("pretrained_linear.safetensors")
HINTS = 11  # numbers about an arm
FAR = 10.0  # a gap in standard deviations; beyond it, gaps are alike


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainedLinear(LinearPolicy):
    """p is a softmax of the scores of `directed-softelim` + power · wᵀx, for any K, d and n.

    x are numbers about an arm's belief beside those of the other arms (`hints_of`), which have no unit. The
    three numbers of directed SoftElim and the weights w were learned over problems of several sizes
    (`gradband.learning.pretraining_linear`); learning starts from there.
    """

    name: ClassVar[str] = "pretrained-linear"
    log_scale: ClassVar[frozenset[str]] = DirectedSoftElim.log_scale
    lead: ClassVar[str] = "a"

    def specs(self) -> dict[str, Spec]:
        return dict.fromkeys(sorted(self.log_scale), Spec()) | {"hints": Spec((HINTS,))}

    def init(self, key: Array) -> Params:
        return {name: real(array) for name, array in weights().items()}

    def stored(self) -> dict[str, np.ndarray] | None:
        """The parameters that come with the package; this needs no JAX."""
        return self.as_arrays(weights())

    def bounds(self) -> Bounds:
        lower, upper = unbounded(self.specs())
        ends = DirectedSoftElim.limits.items()
        return lower | {n: low for n, (low, _) in ends}, upper | {n: high for n, (_, high) in ends}

    def log_probs(self, params: Params, state: Seen) -> Array:
        scores = self.scores(params, state)
        return nn(scores).log_softmax(scores)

    def scores(self, params: Params, state: Seen) -> Array:
        """The arms' scores [K]."""
        noise, xp = self.noise(state), namespace(state.mean)
        left = xp.maximum(self.horizon - state.belief.rewards, 1)
        hints = hints_of(state, noise, left, left / self.horizon)
        given = (params["hints"][:, None] * xp.stack(hints)).sum(0)
        return directed(params, state, noise, left) + params["power"] * given


def hints_of(seen: Seen, noise: Array | float, left: Array, share: Array) -> list[Array]:
    """What scores depend on [11, K], with noise variances σ², m rounds left, and their share of all.

    With gaps g and standard deviations s, and s' of the difference to the best arm, these are g / s, g /
    s', log s, the logarithm of 1 + m s² / σ², by how much a reward would lower uncertainty about the arms
    that may be best, g² relative to that, and the probability to be one of those; then four of them once
    more, the sooner the end the less.
    """
    xp, gap = namespace(seen.mean), seen.gap
    least = np.float32(LEAST) * noise
    v, apart = xp.maximum(seen.variance, least), xp.maximum(seen.apart, least)
    rivals = nn(gap).softmax(-(gap**2) / apart)
    told = xp.maximum(relief(seen, rivals, noise), least)
    deviations = xp.minimum(gap / xp.sqrt(v), FAR) / 2
    unknown = xp.log(v / v.max()) / 2
    telling = xp.maximum(xp.log(told / told.max()) / 4, -FAR / 2)
    early = 2 * share - 1
    return [
        deviations,
        xp.minimum(gap / xp.sqrt(apart), FAR) / 2,
        unknown,
        xp.log1p(left * v / noise) / 2,
        telling,
        xp.minimum(xp.log1p(gap**2 / told) / 2, FAR),
        rivals,
        early * deviations,
        early * unknown,
        early * telling,
        early * rivals,
    ]


@functools.cache
def weights() -> dict[str, np.ndarray]:
    """The parameters in the package's file, read when they are first used."""
    arrays, _ = tensor_file.load(FILE, "policy")
    return tensor_file.named(arrays, "params.")
