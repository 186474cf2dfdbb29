"""Rollout: plays a policy on a block of instances. This is the only loop over rounds.

All R runs on B instances advance together; every array ends in (R, B). The reward table Y is
virtual: a reward is a function of the seed, the instance, the round and the arm, so every run sees
the same Y and none of it is stored.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband import random
from gradband.batching import batch_last
from gradband.errors import InputError
from gradband.policies import Params, Policy
from gradband.problems import Problem
from gradband.pytrees import pick

MANY_ARMS = 64
BEFORE_THE_FIRST = np.uint32(0xFFFFFFFF)  # the "round" whose bits draw the latent


class Round(NamedTuple):
    """What is seen of a round; `mean` and `best_…` are None where means are unknown."""

    log_prob: Array
    """log p of the pulled arm [R, B]"""
    reward: Array
    """realised reward Y of the pulled arm [R, B]"""
    mean: Array | None
    """mean reward μ of the pulled arm [R, B]"""
    best_reward: Array | None
    """realised reward of the best arm [1, B]"""
    best_mean: Array | None
    """mean reward of the best arm [1, B]"""
    all_rewards: Callable[[], Array]
    """realised rewards of all arms [K, 1, B], drawn only if asked for"""


def check(policy: Policy, problem: Problem) -> Policy:
    """The policy bound to the problem, or an error if it can't play it."""
    bound = policy.bind(problem.arms, problem.horizon)
    if (bound.binary or bound.unit) and not problem.unit:
        raise InputError(f"{bound.name} needs rewards in [0, 1], which this problem does not have")
    return bound


def play(
    policy: Policy,
    problem: Problem,
    params: Params,
    key: Array,
    block: Array,
    size: int,
    runs: int,
    observe: Callable[[Any, Round], Any],
    start: Callable[[Array], Any],
    temperature: Array | None = None,
) -> Any:
    """Plays `runs` runs on each of the `size` instances of a block, and returns what was observed.

    `start(log_prob)` is what is seen before the first round, given the log-probability [R, B] of the
    latent. `observe(seen, round) → seen` is called in every round; what it does not use costs nothing.
    With a `temperature` τ, arms are pulled with probabilities proportional to p^(1/τ).
    """
    prior, shape = problem.prior, (runs, size)
    number = block * size + jnp.arange(size)
    instance = _instances(problem, random.stream(key, "prior"), number)
    # Each instance has a key for its rewards, and each run on it one for its actions. The keys of a
    # round are their hashes with the round's number.
    rows = [random.stream(key, "reward")]
    rows += [jax.random.fold_in(random.stream(key, "action"), run) for run in range(runs)]
    fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
    keys = random.words(fold(jnp.stack(rows), number))

    def hashed(t: Array | np.uint32) -> tuple[Array, Array]:
        counter = jnp.full_like(keys[0], t)
        return random.hash_words(keys, (jnp.zeros_like(counter), counter))

    def pull(key: Array, reward_key: Array, params: Params, state: Any, instance: Any, t: Array) -> Any:
        if policy.differentiable:
            log_probs = policy.log_probs(params, state)
            if temperature is not None:
                log_probs = jax.nn.log_softmax(log_probs / temperature)
            arm = _choose(random.words(key)[0], log_probs)
            log_prob = pick(log_probs, arm)
        else:
            arm, log_prob = policy.act(key, params, state), jnp.zeros(())
        reward = problem.reward(reward_key, instance, arm, t)
        heard = reward
        if policy.binary:
            heard = (random.unit(random.words(key)[1]) < reward).astype(reward.dtype)
        mean = pick(prior.means(instance), arm) if prior.knows_means else None
        return policy.update(params, state, arm, heard), log_prob, reward, mean

    def best_arm(reward_key: Array, instance: Any, t: Array) -> tuple[Array, Array]:
        means = prior.means(instance)
        return problem.reward(reward_key, instance, jnp.argmax(means), t), means.max()

    def all_arms(reward_key: Array, instance: Any, t: Array) -> Array:
        draws = [problem.reward(reward_key, instance, jnp.int32(i), t) for i in range(problem.arms)]
        return jnp.stack(draws)

    def step(carry: Any, t: Array) -> tuple[Any, None]:
        state, bits, seen = carry
        reward_key = random.from_words(bits[0][:1], bits[1][:1])
        key = random.from_words(bits[0][1:], bits[1][1:])
        state, log_prob, reward, mean = batch_last(pull, shape, (True, True, False, True, True, False))(
            key, reward_key, params, state, instance, t
        )

        def once(function: Callable[..., Any]) -> Any:
            """What is the same for all runs, computed once an instance."""
            return batch_last(function, (1, size), (True, True, False))(reward_key, instance, t)

        best_reward, best_mean = once(best_arm) if prior.knows_means else (None, None)
        seen = observe(seen, Round(log_prob, reward, mean, best_reward, best_mean, lambda: once(all_arms)))
        # The next round's bits are made here, and carried, so that the compiler computes them
        # once, in a loop of their own, rather than inside everything that reads them.
        return (state, hashed(t + 1), seen), None

    bits = hashed(BEFORE_THE_FIRST)[0][1:]
    state, score = batch_last(partial(_begin, policy), shape, (False, True))(params, bits)
    carry = state, hashed(jnp.uint32(0)), start(score)
    rounds = jnp.arange(problem.horizon, dtype=jnp.uint32)
    return jax.lax.scan(step, carry, rounds)[0][2]


class Regret(NamedTuple):
    """Regret so far: by means where they are known, else against the best arm in hindsight."""

    lost: Array
    """Σ (μ* − μ) of the pulled arms, or minus the realised rewards [R, B]"""
    totals: Array | None
    """realised rewards of every arm [K, 1, B], where means are unknown"""

    @classmethod
    def zero(cls, problem: Problem, zeros: Array) -> "Regret":
        if problem.prior.knows_means:
            return cls(zeros, None)
        return cls(zeros, jnp.zeros((problem.arms, 1, zeros.shape[-1])))

    def add(self, round: Round) -> "Regret":
        if round.best_mean is not None and round.mean is not None:
            return Regret(self.lost + round.best_mean - round.mean, None)
        assert self.totals is not None
        return Regret(self.lost - round.reward, self.totals + round.all_rewards())

    @property
    def total(self) -> Array:
        """Regrets [R, B]."""
        return self.lost if self.totals is None else self.lost + self.totals.max(0)


def _instances(problem: Problem, key: Array, number: Array) -> Any:
    """The instances of a block: leaves [..., 1, B]."""
    keys = jax.vmap(partial(jax.random.fold_in, key))(number)
    instances = jax.vmap(problem.prior.nth, out_axes=-1)(number, keys)
    return jax.tree.map(lambda leaf: leaf[..., None, :], instances)


def _begin(policy: Policy, params: Params, bits: Array) -> tuple[Any, Array]:
    """The first state, and the log-probability of the latent that it comes from."""
    if policy.latents == 1:
        return policy.begin(params, jnp.int32(0)), jnp.zeros(())
    log_probs = policy.latent_log_probs(params)
    latent = _choose(bits, log_probs)
    return policy.begin(params, latent), pick(log_probs, latent)


def _choose(bits: Array, log_probs: Array) -> Array:
    """An index drawn from log-probabilities [K] by inverting their distribution function.

    An index comes out, with no derivative, so tangents pass through a whole rollout untouched. An
    entry of probability 0 is never chosen, whatever the rounding of the sum, and u is never 0, which
    would choose an entry of probability 10⁻²⁰ once in a few million draws and shake θ with its score.
    """
    probabilities = jnp.exp(log_probs)
    edges = jnp.cumsum(probabilities)
    index = jnp.sum(random.open_unit(bits) * edges[-1] >= edges)
    if log_probs.shape[0] <= MANY_ARMS:
        return index
    # A long cumulative sum is not taken in order, and an edge may fall below the one before it.
    return jnp.where(pick(probabilities, index) > 0, index, jnp.argmax(probabilities))
