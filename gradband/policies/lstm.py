"""LSTM: a recurrent network that learns what to remember (Section 4.3 and Appendix F)."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from gradband.core.arrays import Array, namespace, nn, one_hot
from gradband.core.errors import InputError, number, positive, whole
from gradband.policies.base import KEPT, Params, Policy, Spec


def kept_tanh(x: Array) -> Array:
    """tanh(x), stored for a gradient through a rollout: its derivative needs nothing else."""
    return np.tanh(x) if namespace(x) is np else _kept_tanh()(x)


@functools.cache
def _kept_tanh() -> Callable[[Array], Array]:
    import jax
    import jax.numpy as jnp
    from jax.ad_checkpoint import checkpoint_name

    tanh = jax.custom_jvp(jnp.tanh)

    def derivative(at: tuple[Array], along: tuple[Array]) -> tuple[Array, Array]:
        y = checkpoint_name(jnp.tanh(*at), KEPT)
        return y, (1 - y * y) * along[0]

    tanh.defjvp(derivative)
    return tanh


class Memory(NamedTuple):
    """The output h [d] and the cell c [d] of the network, both zero before the first round."""

    output: Array
    cell: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class LSTM(Policy):
    """One layer of d = `hidden` units that observes arms and rewards; p is a softmax of LeakyReLU(h) W + b.

    An arm and a reward are embedded in ℝᵈ each, and enter only the gates, linearly: `folded` combines them
    in one table of 2K rows, which saves two thirds of the arithmetic. A reward y between 0 and 1, which
    does not occur in the paper, is embedded as (1 − y) times reward 0 plus y times reward 1.

    Initial weights are PyTorch's, as in the paper. `forget` is added to the forget gate's initial bias, so
    that memories last, and `head` scales the initial weights of the head, so that the initial policy is
    nearly uniform. The head's bias is stored divided by `bias_scale`, so that steps of the same size move
    it that many times as far: since h is 0 at first, it alone decides the first arm.

    >>> {name: shape.shape for name, shape in LSTM().bind(arms=2, horizon=200).shapes().items()}["arm"]
    (2, 50)
    """

    name: ClassVar[str] = "lstm"
    unit: ClassVar[bool] = True
    hidden: int = 50
    forget: float = 1.0
    head: float = 0.1
    bias_scale: float = 20.0

    def check(self) -> None:
        super().check()
        whole("hidden of lstm", self.hidden)
        number("forget of lstm", self.forget, -100, 100)
        number("head of lstm", self.head, 0, 100)
        positive("bias_scale of lstm", self.bias_scale)

    def specs(self) -> dict[str, Spec]:
        d, k = self.hidden, self.arms
        gates = {"input": Spec((4 * d, 2 * d)), "recurrent": Spec((4 * d, d)), "bias": Spec((4 * d,))}
        head = {"head": Spec((k, d)), "head_bias": Spec((k,))}
        return {"arm": Spec((k, d)), "reward": Spec((2, d)), **gates, **head}

    def init(self, key: Array) -> Params:
        import jax
        import jax.numpy as jnp

        d, k = self.hidden, self.arms
        keys = iter(jax.random.split(key, 8))

        def weights(*shape: int) -> Array:
            most = 1 / math.sqrt(d)
            return jax.random.uniform(next(keys), shape, minval=-most, maxval=most)

        return {
            "arm": jax.random.normal(next(keys), (k, d)),
            "reward": jax.random.normal(next(keys), (2, d)),
            "input": weights(4 * d, 2 * d),
            "recurrent": weights(4 * d, d),
            "bias": weights(4 * d) + weights(4 * d) + self.forget * (jnp.arange(4 * d) // d == 1),
            "head": self.head * weights(k, d),
            "head_bias": self.head / self.bias_scale * weights(k),
        }

    def folded(self, params: Params) -> Params:
        """Matrices [4d, d] from h and [4d, 2K] from arm and reward to gates i, f, g, o; and the head."""
        xp = namespace(params["input"])
        arm, reward = params["input"][:, : self.hidden], params["input"][:, self.hidden :]
        of_arms, of_rewards = arm @ params["arm"].T, reward @ params["reward"].T + params["bias"][:, None]
        heard = (of_arms + of_rewards[:, y : y + 1] for y in (0, 1))
        halves = xp.where(xp.arange(4 * self.hidden) // self.hidden == 2, 1.0, 0.5)[:, None]
        return {
            "recurrent": halves * params["recurrent"],
            "heard": halves * xp.concatenate(list(heard), axis=1),
            "head": params["head"],
            "head_bias": self.bias_scale * params["head_bias"],
        }

    def heard(self, reward: Array) -> Array:
        """A reward as the network observes it, mostly between 0 and 1."""
        return reward

    def begin(self, params: Params, latent: Array) -> Memory:
        xp = namespace(latent)
        return Memory(xp.zeros(self.hidden), xp.zeros(self.hidden))

    def log_probs(self, params: Params, state: Memory) -> Array:
        functions = nn(state.output)
        scores = params["head"] @ functions.leaky_relu(state.output) + params["head_bias"]
        return functions.log_softmax(scores)

    def update(self, params: Params, state: Memory, arm: Array, reward: Array) -> Memory:
        xp = namespace(state.output)
        pulled = one_hot(arm, self.arms)
        heard = self.heard(reward)
        heard = (xp.where(pulled, 1 - heard, 0), xp.where(pulled, heard, 0))
        d = self.hidden
        # The product with h does not depend on the reward, so it is shared if several rewards are tried.
        sums = params["recurrent"] @ state.output + params["heard"] @ xp.concatenate(heard)
        t = kept_tanh(sums)
        add, forget, show = (0.5 + 0.5 * t[i * d : (i + 1) * d] for i in (0, 1, 3))
        cell = forget * state.cell + add * t[2 * d : 3 * d]
        return Memory(show * xp.tanh(cell), cell)

    def check_state(self, state: Memory, rounds: int) -> None:
        if (np.abs(state.output) > 1).any() or (np.abs(state.cell) > 1 + rounds).any():
            raise InputError("output or cell in memory is too large")
