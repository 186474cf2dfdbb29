"""Index network: one small network that scores each arm by its counts, for any K and n."""

import dataclasses
import math
from typing import Any, ClassVar

from gradband.core.arrays import Array, namespace, nn
from gradband.policies.base import Counting, Counts, Params, Policy, Positive, Spec, Whole
from gradband.policies.kl_softelim import divergence

FEATURES = 8  # the network's inputs per arm, made of counts


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmNetwork(Policy):
    """p is a softmax of scores that one network gives all arms, from inputs of their own."""

    inputs: ClassVar[int] = FEATURES
    hidden: Whole = 32

    def specs(self) -> dict[str, Spec]:
        h = self.hidden
        shapes = {"w0": (h, self.inputs), "b0": (h,), "w1": (h, 3 * h), "b1": (h,), "w2": (h,), "doubt": ()}
        return {name: Spec(shape) for name, shape in shapes.items()}

    def init(self, key: Array) -> Params:
        import jax
        import jax.numpy as jnp

        params: Params = {name: jnp.zeros(spec.shape) for name, spec in self.specs().items()}
        for name, draw in zip(("w0", "w1"), jax.random.split(key, 2), strict=True):
            shape = params[name].shape
            params[name] = jax.random.normal(draw, shape) * math.sqrt(1 / shape[1])
        return params | {"doubt": jnp.ones(())}

    def inputs_and_doubt(self, state: Any) -> tuple[Array, Array]:
        """The network's inputs for each arm [F, K], and the evidence against it [K]."""
        raise NotImplementedError

    def scores(self, params: Params, state: Any) -> Array:
        """The arms' scores [K]."""
        x, doubt = self.inputs_and_doubt(state)
        return self.output(params, x) - params["doubt"] * doubt

    def output(self, params: Params, x: Array) -> Array:
        """What the network gives the arms [K] for their inputs [F, K]."""
        h, silu = self.hidden, nn(x).silu
        e = silu(params["w0"] @ x + params["b0"][:, None])
        pooled = params["w1"][:, h:] @ namespace(x).concatenate([e.max(1), e.mean(1)]) + params["b1"]
        y = silu(params["w1"][:, :h] @ e + pooled[:, None])
        return params["w2"] @ y

    def log_probs(self, params: Params, state: Any) -> Array:
        scores = self.scores(params, state)
        return nn(scores).log_softmax(scores)


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndexNetwork(ArmNetwork, Counting):
    """p is a softmax of the arms' scores, which depend on counts and the remaining rounds.

    An arm's score is that of KL-SoftElim, −w T_i kl(μ̂_i, max_j μ̂_j), plus the output of a network for its
    inputs x_i (see `inputs_and_doubt`): all arms share a layer, e_i = φ(A x_i + b), the maximum and the
    mean of e_j over all arms are joined to e_i, and a second layer scores the arm. Nothing depends on the
    order of arms or on K, and the scales of counts, spreads and rounds do not depend on n, so the same
    weights can play other K and n. The network's output is 0 at first: learning starts from KL-SoftElim,
    w = 10.

    Rewards are in [0, 1]; a and b are pseudo-counts, as of a Beta(a, b) prior, in means and spreads.
    """

    name: ClassVar[str] = "index"
    unit: ClassVar[bool] = True
    a: Positive = 1.0
    b: Positive = 1.0

    def inputs_and_doubt(self, counts: Counts) -> tuple[Array, Array]:
        """The network's inputs for each arm [8, K], and 10 T_i kl(μ̂_i, max_j μ̂_j) [K]."""
        xp = namespace(counts.pulls)
        pulls, left = counts.pulls, xp.maximum(counts.rounds_left(self.horizon), 0)
        total = pulls + self.a + self.b
        mean, rest = (counts.sums + self.a) / total, (pulls - counts.sums + self.b) / total
        spread = xp.sqrt(mean * rest / (total + 1))
        inputs = mean - 0.5, 10 * spread, *relative(mean.max() - mean, spread, total, left, self.horizon)
        return xp.stack(inputs), 10 * pulls * divergence(mean, rest)

    def estimates(self, params: Params, state: Counts) -> Array:
        return (state.sums + self.a) / (state.pulls + self.a + self.b)


def relative(gap: Array, spread: Array, total: Array, left: Array, horizon: int) -> tuple[Array, ...]:
    """Inputs [K] that have no unit: gaps in standard deviations, and logarithms of counts and rounds."""
    xp = namespace(gap)
    best, same = xp.where(gap == 0, spread, 0).max(), xp.ones_like(gap)
    return (
        gap / spread,
        gap / xp.sqrt(spread**2 + best**2),
        xp.log(total) - 1,
        xp.log(xp.maximum(left, 1)) / 5 * same,
        left / horizon * same,
        xp.log1p(left / total) - 1,
    )
