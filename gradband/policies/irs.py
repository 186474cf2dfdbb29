"""Information relaxation sampling with the penalty V-Zero (Min, Maglaras and Moallemi, 2019)."""

import dataclasses
import zlib
from typing import Any, ClassVar

import numpy as np

from gradband.policies.base import Array, Believing, Counts, InputError, Params, namespace, pick

PATHS = 16  # sampled for a player's probabilities
LONGEST = 2000  # rounds: a decision takes K n² steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class InformationRelaxation(Believing):
    """Samples all future rewards, allots the remaining rounds in hindsight, and pulls the arm with most.

    An arm's mean is sampled from its Beta(a + ones, b + zeros) posterior, and its rewards with that mean.
    The k-th further pull of an arm is worth its posterior mean after the sampled rewards before it, and
    rounds are allotted so that they are worth most in total. A decision takes K n² steps.

    In a player, the probabilities are the shares of arms in a number of such samples, whose seed follows
    from the counts: pulls have the same distribution.
    """

    name: ClassVar[str] = "irs-v-zero"
    differentiable: ClassVar[bool] = False
    batches: ClassVar[bool] = False
    bounded: ClassVar[bool] = True

    def check(self) -> None:
        super().check()
        if self.horizon > LONGEST:
            raise InputError(f"{self.name} takes at most {LONGEST} rounds, not {self.horizon}")

    def worth(self, state: Counts, rewards: Array) -> Array:
        """What 0, 1, …, n further pulls of each arm are worth [K, n + 1], by their rewards [K, n]."""
        ones, zeros = self.posterior(state)
        xp = namespace(rewards)
        pulled = xp.arange(rewards.shape[1]).astype(rewards.dtype)[None]
        seen = xp.cumsum(rewards, axis=1) - rewards
        means = (ones[:, None] + seen) / ((ones + zeros)[:, None] + pulled)
        return xp.concatenate([xp.zeros_like(rewards[:, :1]), xp.cumsum(means, axis=1)], axis=1)

    def act(self, key: Array, params: Params, state: Counts) -> Array:
        from gradband.core import prng

        xp = namespace(state.pulls)
        drawn = prng.beta(prng.fold_in(key, xp.uint32(2)), *self.posterior(state))
        u = prng.uniforms(key, self.arms * self.horizon).reshape(self.arms, self.horizon)
        rewards = (u < drawn[:, None]).astype(drawn.dtype)
        left = xp.maximum(self.horizon - state.rounds, 0).astype(np.int32)
        return allot(self.worth(state, rewards), left).argmax()

    def probabilities(self, params: Params, state: Counts) -> Array:
        """The arms' shares in some samples, in NumPy; JAX samples one at a time."""
        if namespace(state.pulls) is not np:
            return super().probabilities(params, state)
        left = int(max(self.horizon - state.rounds, 1))
        rng = np.random.default_rng(zlib.crc32(np.concatenate([state.pulls, state.sums]).tobytes()))
        p = np.zeros(len(state.pulls))
        for _ in range(PATHS):
            drawn = np.asarray(rng.beta(*self.posterior(state)))
            rewards = (rng.random((len(p), left)) < drawn[:, None]).astype(np.float64)
            p[allot(self.worth(state, rewards), left).argmax()] += 1 / PATHS
        return p


def allot(worth: Array, left: Array | int) -> Array:
    """How many of the rounds left each arm gets [K], such that the sum of what they are worth is greatest.

    `worth` [K, n + 1] is that of 0, 1, …, n pulls. Arms are joined one after another: the best of t rounds
    for some arms, and the next arm with k of them.

    >>> worth = np.array([[0.0, 0.5, 1.0, 1.5], [0.0, 0.4, 1.3, 1.4]])
    >>> print(allot(worth, 3))
    [1 2]
    """
    xp = namespace(worth)
    arms, most = worth.shape[0], worth.shape[1] - 1
    total, chosen = worth[0], []
    for arm in range(1, arms):
        total, shares = _joined(total, worth[arm], left)
        chosen.append(shares)
    pulls: list[Any] = []
    rest: Any = xp.minimum(left, most)
    for shares in reversed(chosen):
        pulls.append(pick(shares, rest))
        rest = rest - pulls[-1]
    return xp.stack([rest, *reversed(pulls)])


def _joined(total: Array, own: Array, left: Array | int) -> tuple[Array, Array]:
    """The best of t = 0, …, n rounds if an arm gets some of them, and how many it gets."""
    xp, count = namespace(total), len(total)
    padded = xp.concatenate([xp.full(count - 1, -xp.inf, total.dtype), total])
    best, shares = total + own[0], xp.zeros(count, np.int32)
    if xp is np:
        for k in range(1, min(int(left), count - 1) + 1):
            found = padded[count - 1 - k : 2 * count - 1 - k] + own[k]
            shares[found > best] = k
            best = np.maximum(best, found)
        return best, shares
    from jax import lax

    def turn(carry: Any) -> Any:
        k, best, shares = carry
        found = lax.dynamic_slice(padded, (count - 1 - k,), (count,)) + lax.dynamic_slice(own, (k,), (1,))
        better = found > best
        return k + 1, xp.where(better, found, best), xp.where(better, k, shares)

    start = xp.int32(1), best, shares
    _, best, shares = lax.while_loop(lambda carry: carry[0] <= xp.minimum(left, count - 1), turn, start)
    return best, shares
