"""Rollout: plays a policy on a block of instances. This is the only loop over rounds.

All R rollouts on B instances advance together; every array ends in (R, B). The reward table Y is
virtual: a reward is a function of the seed, the instance, the round and the arm, so every run sees
the same Y and none of it is stored.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from gradband.core import prng
from gradband.core.arrays import one_hot, pick
from gradband.core.errors import LARGEST
from gradband.core.vmap_last import batch_last
from gradband.policies import Params, Policy
from gradband.policies.base import KEPT
from gradband.problems import Problem
from gradband.problems.rewards import Bernoulli

FEW_ARMS = 16
FAULT = 1e-3  # what rounding in float32 stays below
BEFORE_THE_FIRST = np.uint32(0xFFFFFFFF)  # the "round" whose bits draw the latent


class Round(NamedTuple):
    """What is seen of a round; `mean` and `best_…` are None where means are unknown."""

    t: Array
    """rounds before this one"""
    arm: Array | None
    """the pulled arm [R, B]; None in batches"""
    log_prob: Array
    """its log p [R, B], 0 for policies without a density; of a batch the sum over its pulls"""
    reward: Array
    """realised reward Y of the pulled arm [R, B], or the sum of a batch"""
    all_rewards: Callable[[], Array] | None
    """realised rewards of all arms [K, 1, B], drawn only if asked for"""
    mean: Array | None = None
    """mean reward μ of the pulled arm [R, B]"""
    means: Array | None = None
    """mean rewards of all arms [K, 1, B]"""
    best_reward: Array | None = None
    """realised reward of the best arm [1, B]"""
    best_mean: Array | None = None
    """mean reward of the best arm [1, B]"""
    log_probs: Array | None = None
    """log p of all arms [K, R, B]; None for policies without a density"""
    luck: Array | None = None
    """what the policy hears, less the pulled arm's mean [R, B]"""
    after: tuple[Array, Array] | None = None
    """log p of all arms [K, R, B] in the next round, had the reward been 0 or 1, if asked for"""
    off: Array | None = None
    """how far probabilities are from a sum of 1, or a reward from its range [R, B]"""
    reference: Array | None = None
    """the reference's probabilities of all arms [K, R, B], or its choice as 0 and 1, if there is one"""
    pulls: Array | None = None
    """in batches, how often each arm is pulled [K, R, B]"""
    sums: Array | None = None
    """in batches, the rewards of each arm [K, R, B]"""


def play(
    policy: Policy,
    problem: Problem,
    params: Params,
    key: Array,
    block: Array,
    size: int,
    rollouts: int,
    observe: Callable[[Any, Round], Any],
    start: Callable[[Array], Any],
    temperature: Array | None = None,
    kept: bool = False,
    reference: tuple[Policy, Params] | None = None,
    record: Callable[[Round], Any] = lambda round: None,
    look_ahead: bool = False,
) -> tuple[Any, Any, Round | None]:
    """Plays each of the `size` instances of a block `rollouts` times, and returns what was observed, what
    was recorded, and what comes afterwards as one more round, if anything does.

    `start(log_prob)` is what is seen before the first round, given the log-probability [R, B] of the
    latent. `observe(seen, round) → seen` is called in every round; what it does not use costs nothing.
    `record(round)` is kept of all rounds [n, …].
    With a `temperature` τ, arms are pulled with probabilities proportional to p^(1/τ). With `kept`, a
    gradient through the rollout keeps the states of the rounds and what policies name `KEPT`, and
    computes the rest of a round again. A `reference`, a policy with parameters, hears the same arms and
    rewards, and says in every round what it would do. To `look_ahead` is to find a round's `after`, at the
    price of two more updates.
    """
    prior, shape = problem.prior, (rollouts, size)
    least, most = (0.0, 1.0) if prior.rewards.unit else (-LARGEST, LARGEST)
    params = policy.folded(params)
    other = None if reference is None else reference[0]
    theirs = None if reference is None else reference[0].folded(reference[1])
    number = block * size + jnp.arange(size)
    instance = _instances(problem, prng.stream(key, "prior"), number)
    # Each instance has a key for its rewards, and each run on it one for its actions. The keys of a
    # round are their hashes with the round's number.
    rows = [prng.stream(key, "reward")]
    rows += [jax.random.fold_in(prng.stream(key, "action"), run) for run in range(rollouts)]
    fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
    keys = prng.words(fold(jnp.stack(rows), number))

    def hashed(t: Array | np.uint32) -> tuple[Array, Array]:
        counter = jnp.full_like(keys[0], t)
        return prng.hash_words(keys, (jnp.zeros_like(counter), counter))

    rounds = jnp.arange(problem.rounds, dtype=jnp.uint32)
    all_bits = jax.vmap(hashed)(rounds) if kept else None

    def pull(key: Array, reward_key: Array, params: Any, states: Any, instance: Any, t: Array) -> Any:
        (params, theirs), (state, their_state) = params, states
        arm, log_probs, off = _pull(policy, key, params, state, t, temperature)
        arm = checkpoint_name(arm, KEPT)
        reward = checkpoint_name(problem.reward(reward_key, instance, arm, t), KEPT)
        rounded = (prng.fine_unit(prng.words(key)[1]) < reward).astype(reward.dtype)
        heard = rounded if policy.binary else reward
        mean = pick(prior.means(instance), arm) if prior.knows_means else None
        after, wish = policy.update(params, state, arm, heard), None
        seen_next = None
        if look_ahead:
            ends = (policy.update(params, state, arm, jnp.full_like(heard, y)) for y in (0, 1))
            seen_next = tuple(_log_probs(policy, params, end, t + 1, temperature) for end in ends)
        if other is not None:
            choice, wishes, _ = _pull(other, key, theirs, their_state, t, None)
            wish = one_hot(choice, problem.arms).astype(float) if wishes is None else jnp.exp(wishes)
            their_state = other.update(theirs, their_state, arm, rounded if other.binary else reward)
        log_prob = jnp.zeros(()) if log_probs is None else pick(log_probs, arm)
        played = {"arm": arm, "log_prob": log_prob, "log_probs": log_probs, "reward": reward, "mean": mean}
        played |= {"after": seen_next, "luck": None if mean is None else heard - mean, "reference": wish}
        if prior.knows_means and not isinstance(prior.rewards, Bernoulli):  # tables were checked before
            off = jnp.maximum(off, jnp.abs(reward - jnp.clip(reward, least, most)))
        played["off"] = off
        return (after, their_state), played

    def pull_many(key: Array, reward_key: Array, params: Any, states: Any, instance: Any, t: Array) -> Any:
        (params, _), (state, _) = params, states
        pulls, log_probs = _pull_many(policy, key, params, state, temperature, problem.pulls_per_round)
        pulls, means = checkpoint_name(pulls, KEPT), prior.means(instance)
        # Each arm has a noise of its own, the same in all rollouts.
        sums = checkpoint_name(prng.binomial(prng.uniforms(reward_key, problem.arms), pulls, means), KEPT)
        played = {"arm": None, "log_probs": log_probs, "reward": sums.sum(), "mean": (pulls * means).sum()}
        log_prob = jnp.zeros(())
        if log_probs is not None:
            log_prob = (pulls * jnp.where(pulls > 0, log_probs, 0)).sum()
        played |= {"log_prob": log_prob, "after": None, "luck": None, "reference": None}
        played |= {"pulls": pulls, "sums": sums}
        played["off"] = jnp.zeros(())
        if log_probs is not None:
            played["off"] = jnp.abs(jnp.exp(jax.lax.stop_gradient(log_probs)).sum() - 1)
        return (policy.update_many(params, state, pulls, sums), None), played

    def best_arm(reward_key: Array, instance: Any, t: Array) -> Array:
        means = prior.means(instance)
        if problem.pulls_per_round > 1:
            best = one_hot(jnp.argmax(means), problem.arms)
            u = jnp.where(best, prng.uniforms(reward_key, problem.arms), 0).sum()
            return prng.binomial(u[None], jnp.full(1, float(problem.pulls_per_round)), means.max()[None])[0]
        return problem.reward(reward_key, instance, jnp.argmax(means), t)

    def all_arms(reward_key: Array, instance: Any, t: Array) -> Array:
        draws = [problem.reward(reward_key, instance, jnp.int32(i), t) for i in range(problem.arms)]
        return jnp.stack(draws)

    means = batch_last(prior.means, (1, size), (True,))(instance) if prior.knows_means else None
    best_mean = None
    if means is not None:  # not a number if one of the means is none, or not allowed
        allowed = (means >= least) & (means <= most)
        best_mean = problem.pulls_per_round * jnp.where(allowed, means, jnp.nan).max(0)

    def step(carry: Any, at: tuple[Array, Any]) -> tuple[Any, Any]:
        (state, own, seen), (t, drawn) = carry, at
        bits = drawn if kept else own
        reward_key = prng.from_words(bits[0][:1], bits[1][:1])
        key = prng.from_words(bits[0][1:], bits[1][1:])
        one = pull if problem.pulls_per_round == 1 else pull_many
        state, played = batch_last(one, shape, (True, True, False, True, True, False))(
            key, reward_key, (params, theirs), state, instance, t
        )

        def once(function: Callable[..., Any]) -> Any:
            """What is the same for all rollouts, computed once an instance."""
            return batch_last(function, (1, size), (True, True, False))(reward_key, instance, t)

        best_reward = once(best_arm) if prior.knows_means else None
        known: dict[str, Any] = {"best_reward": best_reward, "best_mean": best_mean, "means": means}
        round = Round(t=t, **played, **known, all_rewards=lambda: once(all_arms))
        # The next round's bits are made here, and carried, so that the compiler computes them
        # once, in a loop of their own, rather than inside everything that reads them. Where rounds
        # are kept anyway, so are bits, all made at once.
        return (state, None if kept else hashed(t + 1), observe(seen, round)), record(round)

    bits = hashed(BEFORE_THE_FIRST)[0][1:]
    state, score = batch_last(partial(_begin, policy), shape, (False, True))(params, bits)
    their_state = None
    if other is not None:
        their_state, _ = batch_last(partial(_begin, other), shape, (False, True))(theirs, bits)
    carry = (state, their_state), None if kept else hashed(jnp.uint32(0)), start(score)
    if kept:
        saved = jax.checkpoint_policies.save_only_these_names(KEPT)
        step = jax.checkpoint(step, prevent_cse=False, policy=saved)
    ((state, _), _, seen), recorded = jax.lax.scan(step, carry, (rounds, all_bits))
    if not problem.afterwards:
        return seen, recorded, None
    arm = batch_last(policy.recommend, shape, (False, True))(params, state)
    mean = batch_last(lambda arm, means: pick(means, arm), shape, (True, True))(arm, means)
    assert best_mean is not None
    gained, best = problem.afterwards * mean, problem.afterwards / problem.pulls_per_round * best_mean
    known = {"mean": gained, "best_reward": best, "best_mean": best}
    return seen, recorded, Round(jnp.uint32(problem.rounds), arm, jnp.zeros(shape), gained, None, **known)


class Sum(NamedTuple):
    """A running sum with what rounding took from it (Kahan, 1965).

    In float32, a million additions of .6 would be off by a percent.
    """

    value: Array
    excess: Array
    """how much too large the value is"""

    @classmethod
    def zero(cls, like: Array) -> "Sum":
        return cls(jnp.zeros_like(like), jnp.zeros_like(like))

    def add(self, term: Array) -> "Sum":
        term = term - self.excess
        value = self.value + term
        return Sum(value, (value - self.value) - term)


class Regret(NamedTuple):
    """Regret so far: by means where they are known, else against the best arm in hindsight."""

    lost: Sum
    """Σ (μ* − μ) of the pulled arms, or minus the realised rewards [R, B]"""
    off: Array
    """the greatest fault of a round [R, B]"""
    totals: Sum | None
    """realised rewards of every arm [K, 1, B], where means are unknown"""

    @classmethod
    def zero(cls, problem: Problem, zeros: Array) -> "Regret":
        arms = None
        if not problem.prior.knows_means:
            arms = Sum.zero(jnp.zeros((problem.arms, 1, zeros.shape[-1])))
        return cls(Sum.zero(zeros), zeros, arms)

    def add(self, round: Round) -> "Regret":
        off = self.off if round.off is None else jnp.maximum(self.off, round.off)
        if round.best_mean is not None and round.mean is not None:
            return Regret(self.lost.add(round.best_mean - round.mean), off, None)
        assert self.totals is not None
        assert round.all_rewards is not None
        return Regret(self.lost.add(-round.reward), off, self.totals.add(round.all_rewards()))

    @property
    def total(self) -> Array:
        """Regrets [R, B], NaN where a round had a fault."""
        total = self.lost.value if self.totals is None else self.lost.value + self.totals.value.max(0)
        return jnp.where(self.off < FAULT, total, jnp.nan)


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
    latent, _ = _choose(bits, log_probs)
    return policy.begin(params, latent), pick(log_probs, latent)


def _pull(
    policy: Policy, key: Array, params: Params, state: Any, t: Array, temperature: Array | None
) -> tuple[Array, Array | None, Array]:
    """The arm that a policy pulls in round t, log p [K] if it has a density, and how far that is from
    being one."""
    if not policy.differentiable:
        arm = policy.act(key, params, state)
        return arm, None, jnp.where((arm >= 0) & (arm < policy.arms), 0.0, jnp.inf)
    log_probs = _log_probs(policy, params, state, t, temperature)
    arm, total = _choose(prng.words(key)[0], log_probs)
    return arm, log_probs, jnp.abs(total - 1)


def _pull_many(
    policy: Policy, key: Array, params: Params, state: Any, temperature: Array | None, count: int
) -> tuple[Array, Array | None]:
    """How often a policy pulls each arm [K] in a batch, and log p [K] if it has a density.

    The policy's probabilities hold from the first batch on: like the player, it does not open with each arm
    once, since a batch may be smaller than K.
    """
    if not policy.differentiable:
        return policy.allocate(key, params, state, count), None
    log_probs = _tempered(policy.log_probs(params, state), temperature)
    p = jnp.exp(jax.lax.stop_gradient(log_probs))
    return prng.multinomial(key, jnp.asarray(count, p.dtype), p), log_probs


def _log_probs(policy: Policy, params: Params, state: Any, t: Array, temperature: Array | None) -> Array:
    return _tempered(policy.next_log_probs(params, state, t), temperature)


def _tempered(log_probs: Array, temperature: Array | None) -> Array:
    return log_probs if temperature is None else jax.nn.log_softmax(log_probs / temperature)


def _choose(bits: Array, log_probs: Array) -> tuple[Array, Array]:
    """An index drawn from log-probabilities [K] by inverting their distribution function, and their sum.

    An index comes out, with no derivative, so tangents pass through a whole rollout untouched. An
    entry of probability 0 is never chosen, whatever the rounding of the sum, and u is never 0, which
    would choose an entry of probability 10⁻²⁰ once in a few million draws and shake θ with its score.
    """
    probabilities = jnp.exp(jax.lax.stop_gradient(log_probs))
    count = log_probs.shape[0]
    if count <= FEW_ARMS:
        edges = jnp.cumsum(probabilities)
        return jnp.sum(prng.open_unit(bits) * edges[-1] >= edges), edges[-1]
    # Running sums take long: first a group of √K entries is drawn, and then one of them.
    size = math.isqrt(count - 1) + 1
    groups = -(-count // size)
    padded = jnp.concatenate([probabilities, jnp.zeros(groups * size - count, probabilities.dtype)])
    table = padded.reshape(groups, size)
    edges = jax.lax.cummax(jnp.cumsum(table.sum(1)))
    point = prng.open_unit(bits) * edges[-1]
    passed = point >= edges
    group = jnp.sum(passed)
    own = jnp.where(one_hot(group, groups)[:, None], table, 0).sum(0)
    # Where a group begins, entries that a running sum over all would not notice have no share either.
    rest = jnp.maximum(point - jnp.where(passed, edges, 0).max(), np.float32(2.0**-25) * edges[-1])
    inner = jax.lax.cummax(jnp.cumsum(own))
    place = jnp.where(rest < inner[-1], jnp.sum(rest >= inner), jnp.argmax(own))
    return group * size + place, edges[-1]
