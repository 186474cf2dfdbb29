"""The scalar whose gradient is the estimator, on one block of instances.

With a_s a round's reward less its baseline and z_s = Σ_{t ≤ s} log p_t, the estimator
Σ_t ∇log p_t Σ_{s ≥ t} a_s is the gradient of the scalar Σ_s a_s z_s with a held fixed. One surrogate
thus serves every policy, and it is a running sum. With a critic, whose weights are [n, F], it is
Σ_t (G_t − V_t) log p_t, from what was recorded. Of a tail it is −z_n times (R − τ)⁺ / α.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from gradband.engine import rollout
from gradband.engine.again import Again, Done
from gradband.engine.observation import Regret, Round
from gradband.gradient import critic
from gradband.gradient.baselines import Baseline
from gradband.gradient.prices import Prices
from gradband.gradient.relaxed_prices import RelaxedPrices
from gradband.policies import Params, Policy
from gradband.problems import Problem


@dataclasses.dataclass(frozen=True)
class SurrogateSpec:
    """What the compiled code of a block's gradient depends on."""

    policy: Policy
    baseline: Baseline
    rollouts: int
    returns: str
    size: int
    few: bool
    """each instance has a gradient of its own, in forward mode unless it is `traced`"""
    prices: Prices | RelaxedPrices | None = None
    """computes the prices of decisions, if returns are priced"""
    tail: float | None = None
    """α, if the gradient is that of minus E(R − τ)⁺ / α"""
    traced: bool = False
    """∇z_s is summed along the rollouts: for policies whose states do not depend on parameters"""

    @property
    def rollout(self) -> rollout.RolloutSpec:
        ahead, judge = self.baseline.looks_ahead, None if self.prices is None else type(self.prices).of
        kept = not self.few and not isinstance(self.policy, Again)
        how = self.rollouts, kept, self.traced, ahead, self.prices, judge
        return rollout.RolloutSpec(self.policy, self.size, *how)


class Operands(NamedTuple):
    """What a gradient is computed with."""

    problem: Problem
    params: Params
    key: Array
    """of all iterations"""
    iteration: np.uint32
    instances: np.int32
    """those of all blocks"""
    temperature: np.float32 | None = None
    entropy: np.float32 | None = None
    weights: np.ndarray | None = None
    """of the critic [n, F]"""
    prices: Params | None = None
    """the parameters of `SurrogateSpec.prices`"""
    threshold: np.float32 | None = None
    """τ, the regret beyond which a tail counts"""


Seen = tuple[Array, tuple[Array, Array | None]]
"""a surrogate, and what else is seen: regrets [B], or [R, B] for a tail, and the critic's moments"""


@partial(jax.jit, static_argnums=0)
def differentiate(spec: SurrogateSpec, given: Operands, block: Array) -> tuple[Array, Array, Array | None]:
    """Gradients of a block's instances, their regrets, and what a critic learns from them.

    With `few` parameters each instance's own gradient [P, B], in forward mode; otherwise their sum [P].
    """
    flat, unravel = ravel_pytree(given.params)
    key = jax.random.fold_in(given.key, given.iteration)
    counted = block * spec.size + jnp.arange(spec.size) < given.instances
    kind = kind_of(spec, given)

    def surrogate(flat: Array) -> Seen:
        moved = given._replace(params=unravel(flat), key=key)
        return kind(spec, moved).of(block, counted)

    def along(direction: Array) -> Seen:
        _, derivative, seen = jax.jvp(surrogate, (flat,), (direction,), has_aux=True)
        return derivative, seen

    def total(flat: Array) -> Seen:
        value, seen = surrogate(flat)
        return jnp.where(counted, value, 0).sum(), seen

    if spec.traced:
        slopes, seen = surrogate(flat)
        return slopes, *seen
    if not spec.few:
        gradient, seen = jax.grad(total, has_aux=True)(flat)
        return gradient, *seen
    if flat.size == 1:
        derivative, seen = along(jnp.ones(1, flat.dtype))
        return derivative[None], *seen
    derivatives, seen = jax.vmap(along, out_axes=(0, None))(jnp.eye(flat.size, dtype=flat.dtype))
    return derivatives, *seen


def kind_of(spec: SurrogateSpec, given: Operands) -> "type[Running]":
    """How the surrogate is summed."""
    if spec.prices is not None:
        return Priced
    if spec.tail is not None:
        return Tail
    if spec.traced:
        return Traced
    return Running if given.weights is None else Recorded


class Running:
    """Σ_s a_s z_s as a running sum, on a block's instances; of what was `done` there, if it was."""

    def __init__(self, spec: SurrogateSpec, given: Operands, done: Done | None = None) -> None:
        self.spec, self.given, self.done = spec, given, done

    def of(self, block: Array, counted: Array) -> Seen:
        """The surrogates [B] of the instances, averaged over rollouts, their regrets, critic's moments."""
        given = self.given
        which = given.params, given.key, block, given.temperature, given.prices
        operands = rollout.Operands(given.problem, *which)
        how = self.observe, self.start, self.record
        (score, total, regret), recorded, last = rollout.play(self.spec.rollout, operands, *how, self.done)
        ending = None if last is None else jax.lax.stop_gradient(self.centred(self.seen(last)))
        regret = regret if last is None else regret.add(last)
        total, moments = self.finish(score, total, ending, recorded, counted)
        return self.outcome(score, total, regret.total, moments)

    def outcome(self, score: Array, total: Array, regret: Array, moments: Array | None) -> Seen:
        """The surrogates [B], from those of each rollout [R, B], and what is seen of the regrets."""
        return total.mean(0), (regret.mean(0), moments)

    def seen(self, round: Round) -> Round:
        """The round with the rewards that returns are made of."""
        if self.spec.returns == "realised":
            return round
        assert round.mean is not None
        return round._replace(reward=round.mean, best_reward=round.best_mean)

    def centred(self, round: Round) -> Array:
        """a_s [R, B]."""
        return round.reward - jax.lax.stop_gradient(self.spec.baseline.of(round))

    def start(self, score: Array) -> tuple[Array, Array, Regret]:
        zeros = jnp.zeros_like(score)
        return score, zeros, Regret.zero(self.given.problem, zeros)

    def observe(self, seen: tuple[Array, Array, Regret], round: Round) -> Any:
        score, total, regret = seen
        score, total = self.add(score, total, self.seen(round))
        if (weight := self.given.entropy) is not None:
            total = total - weight * _negative_entropy(round)
        return score, total, regret.add(round)

    def add(self, score: Array, total: Array, round: Round) -> tuple[Array, Array]:
        """The sums z and Σ a z with another round."""
        score = score + round.log_prob
        total = total + self.centred(round) * score
        ahead = self.spec.baseline.ahead(round)
        if ahead is not None:
            total = total - jax.lax.stop_gradient(ahead) * round.log_prob
        return score, total

    def record(self, round: Round) -> Any:
        return None

    def finish(
        self, score: Array, total: Array, ending: Array | None, recorded: Any, counted: Array
    ) -> tuple[Array, Array | None]:
        """The surrogate [R, B] once all rounds are played, with what comes afterwards, and the moments."""
        return (total if ending is None else total + ending * score), None


class Traced(Running):
    """Its gradient Σ_s a_s ∇z_s [P, B], which takes no second pass: each round has ∇log p_t [P, R, B]."""

    def start(self, score: Array) -> tuple[Array, Array, Regret]:
        count = sum(leaf.size for leaf in jax.tree.leaves(self.given.params))
        zeros = jnp.zeros((count, *score.shape), score.dtype)
        return zeros, zeros, Regret.zero(self.given.problem, jnp.zeros_like(score))

    def add(self, score: Array, total: Array, round: Round) -> tuple[Array, Array]:
        assert round.slope is not None
        score = score + round.slope
        total = total + self.centred(round)[None] * score
        ahead = self.spec.baseline.ahead(round)
        return score, total if ahead is None else total - ahead[None] * round.slope

    def finish(
        self, score: Array, total: Array, ending: Array | None, recorded: Any, counted: Array
    ) -> tuple[Array, Array | None]:
        return (total if ending is None else total + ending[None] * score), None

    def outcome(self, score: Array, total: Array, regret: Array, moments: Array | None) -> Seen:
        return total.mean(1), (regret.mean(0), moments)


class Priced(Running):
    """Minus the prices that decisions have along the way: Σ_s −(z_{s−1} + 1) Σ_i p_s(i) c_s(i).

    A decision's price is averaged over all arms, where it follows earlier decisions too: the luck of its
    own draw is in neither. Where instances have no gradients of their own, the mean price of a round on
    the block's other instances, which says nothing about z of this one, is subtracted from what follows.
    """

    def add(self, score: Array, total: Array, round: Round) -> tuple[Array, Array]:
        assert round.log_probs is not None
        assert round.reference is not None
        prices = jax.lax.stop_gradient(round.reference)
        possible = round.log_probs > -jnp.inf
        shares = jnp.exp(jnp.where(possible, round.log_probs, 0))
        mean = jnp.where(possible, shares * prices, 0).sum(0)
        return score + round.log_prob, total - jax.lax.stop_gradient(
            self.beyond_others(mean)
        ) * score - mean

    def beyond_others(self, price: Array) -> Array:
        """The price [R, B] less that of the block's other instances."""
        others = price.shape[-1] - 1
        if self.spec.few or not others:
            return price
        return price - (price.sum(-1, keepdims=True) - price) / others


class Recorded(Running):
    """Σ_t (G_t − V_t) log p_t, where a critic predicts V_t. The score is that of the latent alone."""

    def add(self, score: Array, total: Array, round: Round) -> tuple[Array, Array]:
        return score, total

    def record(self, round: Round) -> Any:
        """log p_t, and what stays fixed: a_t, and what the critic sees."""
        assert round.log_probs is not None
        assert round.means is not None
        gaps = round.means.max(0, keepdims=True) - round.means
        surprise = None
        if round.after is not None and round.luck is not None:
            surprise = critic.surprise(round.luck, round.after, gaps)
            # After the last round there is nothing to be surprised for, and a policy may not be asked.
            surprise = jnp.where(round.t + 1 < self.given.problem.rounds, surprise, 0)
        seen = self.centred(self.seen(round)), critic.beliefs(round.log_probs, gaps), surprise
        return round.log_prob, *jax.lax.stop_gradient(seen)

    def finish(
        self, score: Array, total: Array, ending: Array | None, recorded: Any, counted: Array
    ) -> tuple[Array, Array | None]:
        log_prob, gained, seen, surprises = recorded
        to_go = jax.lax.cumsum(gained, reverse=True)
        to_go = to_go if ending is None else to_go + ending[None]
        if surprises is not None:
            seen = jnp.concatenate([seen, jax.lax.cumsum(surprises, reverse=True)], axis=1)
        moments = critic.moments(seen, to_go, counted)
        advantage = to_go - jnp.einsum("tf,tfrb->trb", self.given.weights, seen)
        total += (advantage * log_prob).sum(0) + score * to_go[0]
        return total, moments


class Tail(Running):
    """−(R − τ)⁺ / α times the whole score, since the tail is not a sum over rounds.

    What other rollouts on the same instance and Y lose may be subtracted, since it says nothing about the
    arms of this one. A baseline of single rounds would not do: it would have to be a part of R.
    """

    def add(self, score: Array, total: Array, round: Round) -> tuple[Array, Array]:
        return score + round.log_prob, total

    def finish(
        self, score: Array, total: Array, ending: Array | None, recorded: Any, counted: Array
    ) -> tuple[Array, Array | None]:
        return total, None

    def outcome(self, score: Array, total: Array, regret: Array, moments: Array | None) -> Seen:
        assert self.spec.tail is not None
        assert self.given.threshold is not None
        loss = jnp.maximum(regret - self.given.threshold, 0) / self.spec.tail
        if self.spec.baseline.least > 1:
            loss = loss - (loss.sum(0, keepdims=True) - loss) / (self.spec.rollouts - 1)
        total = total - jax.lax.stop_gradient(loss) * score
        return total.mean(0), (regret, None)


def _negative_entropy(round: Round) -> Array:
    """Σ_i p(i) log p(i) [R, B]."""
    assert round.log_probs is not None
    possible = round.log_probs > -jnp.inf
    log_probs = jnp.where(possible, round.log_probs, 0)
    return jnp.where(possible, jnp.exp(log_probs) * log_probs, 0).sum(0)
