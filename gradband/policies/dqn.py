"""DQN: the greedy arm of a learned Q-network (Mnih et al., 2013), a benchmark of Section 5.2."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import ClassVar

from gradband.policies.base import Array, Counts, Index, Params, Spec, Whole, namespace, nn

FEATURES = 6  # the network's inputs per arm


def network_inputs(counts: Counts) -> Array:
    """The network's inputs [6K]: ones, zeros, their log(1 + ·), μ̂ and 1 of each arm.

    As in the paper, counts are not scaled, and the remaining rounds are only implied by their sum.

    >>> import numpy as np
    >>> print(network_inputs(Counts(np.array([3.0]), np.array([1.0]))).round(1))
    [1.  2.  0.7 1.1 0.3 1. ]
    """
    xp = namespace(counts.pulls)
    ones, zeros = counts.sums, counts.pulls - counts.sums
    seen = (ones, zeros, xp.log1p(ones), xp.log1p(zeros), counts.means, xp.ones_like(ones))
    return xp.stack(seen, axis=1).reshape(-1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQN(Index):
    """The arm with the greatest Q(s, i), where Q is a network with two `hidden` layers of ReLUs.

    `learn` trains it by Q-learning (`gradband.learning.q_learning`), not by GradBand. Initial weights are
    random.

    >>> policy = DQN().bind(arms=2, horizon=200)
    >>> {name: shape.shape for name, shape in policy.shapes().items()}["w0"]
    (12, 64)
    """

    name: ClassVar[str] = "dqn"
    binary: ClassVar[bool] = True
    flexible: ClassVar[bool] = False
    trainer: ClassVar[str] = "q-learning"
    hidden: Whole = 64

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the inputs, the hidden layers and the outputs."""
        return FEATURES * self.arms, self.hidden, self.hidden, self.arms

    def specs(self) -> dict[str, Spec]:
        specs: dict[str, Spec] = {}
        for layer, (inputs, outputs) in enumerate(itertools.pairwise(self.sizes)):
            specs |= {f"w{layer}": Spec((inputs, outputs)), f"b{layer}": Spec((outputs,))}
        return specs

    def init(self, key: Array) -> Params:
        """Glorot's uniform weights and zero biases, as in Dopamine."""
        import jax
        import jax.numpy as jnp

        params: Params = {}
        for layer, (inputs, outputs) in enumerate(itertools.pairwise(self.sizes)):
            most = math.sqrt(6 / (inputs + outputs))
            draw = jax.random.fold_in(key, layer)
            params[f"w{layer}"] = jax.random.uniform(draw, (inputs, outputs), minval=-most, maxval=most)
            params[f"b{layer}"] = jnp.zeros(outputs)
        return params

    def values(self, params: Params, counts: Counts) -> Array:
        """Q(s, i) of all arms [K]."""
        return _network(params, network_inputs(counts), namespace(counts.pulls).matmul)

    def index(self, params: Params, state: Counts) -> Array:
        # Inside a rollout, which is one compiled function, XLA's matrix product is ten times slower.
        return _network(params, network_inputs(state), lambda x, w: (x[:, None] * w).sum(0))


def _network(params: Params, x: Array, product: Callable[[Array, Array], Array]) -> Array:
    """The outputs [K] of the network for inputs [6K]."""
    relu = nn(x).relu
    x = relu(product(x, params["w0"]) + params["b0"])
    x = relu(product(x, params["w1"]) + params["b1"])
    return product(x, params["w2"]) + params["b2"]
