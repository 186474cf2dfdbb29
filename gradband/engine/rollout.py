"""Rollout: plays a policy on a block of instances. This is the only loop over rounds.

All R rollouts on B instances advance together; every array ends in (R, B). The reward table Y is
never stored: a reward is a function of the seed, the instance, the round and the arm, so every
rollout sees the same Y.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.flatten_util import ravel_pytree

from gradband.core import prng
from gradband.core.arrays import one_hot, pick
from gradband.core.errors import LARGEST
from gradband.core.vmap_last import batch_last
from gradband.engine.again import Again, Done
from gradband.engine.arrivals import LATE, Late, as_played, remembered
from gradband.engine.observation import Round
from gradband.policies import Params, Policy
from gradband.policies.base import KEPT
from gradband.problems import Problem
from gradband.problems.rewards import Bernoulli

Scalar = Array | np.float32
FEW_ARMS = 16
CONTEXT = 0x434F4E54  # leads to draws that rewards do not use
BEFORE_THE_FIRST = np.uint32(0xFFFFFFFF)  # the "round" whose bits draw the latent


@dataclasses.dataclass(frozen=True)
class RolloutSpec:
    """What the compiled code of a rollout depends on, besides the shapes of its operands."""

    policy: Policy
    size: int
    """instances in the block, B"""
    rollouts: int = 1
    """on each instance, R"""
    kept: bool = False
    """a gradient through the rollout stores the states of all rounds and what policies name `KEPT`, and
    recomputes the rest of a round"""
    slopes: bool = False
    """whether rounds have `slope`; the policy's states must not depend on its parameters"""
    look_ahead: bool = False
    """whether rounds have `after`, which costs two more updates"""
    reference: Policy | None = None
    """a policy that observes the same arms and rewards, and is asked in every round what it would do"""
    judge: Callable[[Any, Params, Any], Array] | None = None
    """what the reference is asked instead: a function of it, its parameters and its state that gives a
    number for each arm [K]"""

    @property
    def shape(self) -> tuple[int, int]:
        return self.rollouts, self.size


class Operands(NamedTuple):
    """The operands of a rollout."""

    problem: Problem
    params: Params
    key: Array
    block: Array | np.int32
    temperature: Scalar | None = None
    """τ: arms are pulled with probabilities proportional to p^(1/τ)"""
    reference: Params | None = None
    """the parameters of the reference"""


def _nothing(round: Round) -> Any:
    return None


def play(
    spec: RolloutSpec,
    given: Operands,
    observe: Callable[[Any, Round], Any],
    start: Callable[[Array], Any],
    record: Callable[[Round], Any] = _nothing,
    done: Done | None = None,
) -> tuple[Any, Any, Round | None]:
    """Plays each instance of a block R times. Returns what was observed, what was recorded, and, if the
    problem has pulls afterwards, these as one more round.

    `start(log_prob)` is the observation before the first round, given the log-probability [R, B] of the
    latent. `observe(seen, round) → seen` is called in every round; what it does not use costs nothing.
    `record(round)` is stored for all rounds [n, …]. The policy `Again` plays what was `done`.
    """
    rollout = _Rollout(spec, given)
    rounds = jnp.arange(given.problem.rounds, dtype=jnp.uint32)
    at_once = spec.kept or done is not None
    all_bits = jax.vmap(rollout.bits)(rounds) if at_once else None

    def step(carry: Any, at: tuple[Array, Any, Done | None]) -> tuple[Any, Any]:
        (states, own, seen), (t, drawn, was) = carry, at
        states = states if was is None else (was, states[1])
        states, round = rollout.round(states, drawn if at_once else own, t)
        # The next round's bits are computed here and carried. Otherwise XLA would compute them again
        # inside everything that reads them. If rounds are stored anyway, all bits are computed first.
        return (states, None if at_once else rollout.bits(t + 1), observe(seen, round)), record(round)

    states, score = rollout.begin()
    carry = states, None if at_once else rollout.bits(jnp.uint32(0)), start(score)
    if spec.kept:
        saved = jax.checkpoint_policies.save_only_these_names(KEPT)
        step = jax.checkpoint(step, prevent_cse=False, policy=saved)
    (states, _, seen), recorded = jax.lax.scan(step, carry, (rounds, all_bits, done))
    return seen, recorded, rollout.end(states) if given.problem.afterwards else None


def draws(spec: RolloutSpec, given: Operands) -> tuple[Array, Array]:
    """All draws of a block: uniforms [n, R, B] that choose arms, and rewards [n, K, 1, B] of all arms."""
    rollout = _Rollout(spec, given)

    def drawn(t: Array) -> tuple[Array, Array]:
        first, second = rollout.bits(t)
        reward_key = prng.from_words(first[:1], second[:1])
        rewards = batch_last(rollout.all_arms, (1, spec.size), (True, True, False))
        return prng.open_unit(first[1:]), rewards(reward_key, rollout.instance, t)

    return jax.vmap(drawn)(jnp.arange(given.problem.rounds, dtype=jnp.uint32))


class _Rollout:
    """A block of instances, with all that stays the same from round to round.

    States are pairs, of the policy's state and the reference's; so are parameters.
    """

    def __init__(self, spec: RolloutSpec, given: Operands) -> None:
        self.spec, self.problem = spec, given.problem
        self.policy = as_played(spec.policy, given.problem, given.temperature)
        self.calendar = self.policy.calendar if isinstance(self.policy, Late) else None
        # Guardrails hold at any temperature, which is then the guarded policy's.
        self.temperature = given.temperature if given.problem.guardrails is None else None
        problem, prior = given.problem, given.problem.prior
        theirs = None
        if spec.reference is not None:
            assert given.reference is not None
            theirs = spec.reference.folded(given.reference)
        self.params = spec.policy.folded(given.params), theirs
        number = given.block * spec.size + jnp.arange(spec.size)
        self.instance = _instances(problem, prng.stream(given.key, "prior"), number)
        # Rewards and the actions of each rollout have a key in every round. A hash has two words, so one
        # hash serves two of them: its words are the first words of their keys, which are all that most
        # draws read. The second words come from hashes that are computed only if something reads them.
        pairs = -(-(1 + spec.rollouts) // 2)
        fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))

        def hashed(stream: str) -> tuple[Array, Array]:
            rows = [jax.random.fold_in(prng.stream(given.key, stream), pair) for pair in range(pairs)]
            return prng.words(fold(jnp.stack(rows), number))

        self.keys = hashed("round"), hashed("more of a round")
        self.least, self.most = (0.0, 1.0) if prior.rewards.unit else (-LARGEST, LARGEST)
        self.means = self.best_mean = None
        if prior.knows_means and not prior.moves:
            self.means, self.best_mean = self.means_at(self.instance, np.uint32(0))

    def means_at(self, instance: Any, t: Array | np.uint32) -> tuple[Array, Array]:
        """Means [K, 1, B] in round t, and the best arm's mean [1, B] times the pulls of a round."""
        problem, pulls = self.problem, t * np.uint32(self.problem.pulls_at_once)
        of = batch_last(problem.prior.means_at, (1, self.spec.size), (True, False))
        means = of(instance, pulls)
        allowed = (means >= self.least) & (means <= self.most)
        # NaN if one of the means is not a number, or not allowed
        return means, problem.pulls_at_once * jnp.where(allowed, means, jnp.nan).max(0)

    def bits(self, t: Array | np.uint32) -> tuple[Array, Array]:
        """The words of a round's keys, for rewards and for the actions of each rollout [1 + R, B]."""

        def words(keys: tuple[Array, Array]) -> Array:
            counter = jnp.full_like(keys[0], t)
            both = prng.hash_words(keys, (jnp.zeros_like(counter), counter), prng.SHORT)
            return jnp.stack(both, 1).reshape(-1, self.spec.size)[: 1 + self.spec.rollouts]

        return words(self.keys[0]), words(self.keys[1])

    def begin(self) -> tuple[tuple[Any, Any], Array]:
        """The first states, and the log-probability of the latent [R, B]."""
        bits, (params, theirs) = self.bits(BEFORE_THE_FIRST)[0][1:], self.params
        first = partial(batch_last, batch_shape=self.spec.shape, batched=(False, True))
        state, score = first(partial(_begin, self.policy))(params, bits)
        their_state = None
        if self.spec.reference is not None:
            their_state, _ = first(partial(_begin, self.spec.reference))(theirs, bits)
        if self.calendar is not None:
            return (state, self.calendar.empty(self.spec.shape)), score
        return (state, their_state), score

    def round(self, states: tuple[Any, Any], bits: Any, t: Array) -> tuple[tuple[Any, Any], Round]:
        """Plays a round on all instances."""
        reward_key = prng.from_words(bits[0][:1], bits[1][:1])
        key = prng.from_words(bits[0][1:], bits[1][1:])
        pull = self.pull if self.problem.pulls_at_once == 1 else self.pull_many
        given = states if self.calendar is None else (states[0], None)
        instance, moves = self.instance, self.problem.prior.moves

        def once(function: Callable[..., Any]) -> Any:
            """What is the same for all rollouts, computed once per instance."""
            arguments = reward_key, instance, t
            return batch_last(function, (1, self.spec.size), (True, True, False))(*arguments)

        if self.problem.prior.contextual:
            instance = once(self.visit)
        after, played = batch_last(pull, self.spec.shape, (True, True, False, True, True, False))(
            key, reward_key, self.params, given, instance, t
        )

        if isinstance(self.policy, Late) and self.calendar is not None:
            u = once(lambda key, instance, t: prng.uniforms(prng.fold_in(key, LATE), 1)[0])
            rows, *heard = self.calendar.turn(states[1], u, t, played["arm"], played["reward"])
            hear = batch_last(self.policy.hear, self.spec.shape, (False, True, True, True))
            after, played["heard"] = (hear(self.params[0], after[0], *heard), rows), tuple(heard)
        best_reward = once(self.best_arm) if self.problem.prior.knows_means else None
        means, best = self.means_at(instance, t) if moves else (self.means, self.best_mean)
        known: dict[str, Any] = {"best_reward": best_reward, "best_mean": best}
        known |= {"means": means, "state": remembered(self.policy, states[0])}
        return after, Round(t=t, **played, **known, all_rewards=lambda: once(self.all_arms))

    def pull(self, key: Array, reward_key: Array, params: Any, states: Any, instance: Any, t: Array) -> Any:
        """One pull on one instance: the states after it, and what is seen of it."""
        policy, prior = self.policy, self.problem.prior
        (params, theirs), (state, their_state) = params, states
        state = self.seen(policy, params, state, instance)
        arm, log_probs, off = _pull(policy, key, params, state, t, self.temperature)
        arm = checkpoint_name(arm, KEPT)
        reward = checkpoint_name(self.problem.reward(reward_key, instance, arm, t), KEPT)
        rounded = (prng.fine_unit(prng.words(key)[1]) < reward).astype(reward.dtype)
        observed = rounded if policy.binary else reward
        mean = pick(prior.means_at(instance, t), arm) if prior.knows_means else None
        heard = wish = seen_next = None
        if isinstance(policy, Late):
            if self.calendar is not None:
                after = policy.decide(state, arm)
            else:
                pulled = one_hot(arm, self.problem.arms).astype(observed.dtype)
                given = pulled, pulled * observed, log_probs
                after, heard = policy.observe(reward_key, params, state, *given)
        else:
            after = policy.update(params, state, arm, observed)
        if self.spec.look_ahead and isinstance(policy, Again):
            seen_next = state.after
        elif self.spec.look_ahead:
            ends = (policy.update(params, state, arm, jnp.full_like(observed, y)) for y in (0, 1))
            # The next context does not depend on the reward: this one shows what the reward changed.
            ends = (self.seen(policy, params, end, instance) for end in ends)
            seen_next = tuple(_log_probs(policy, params, end, t + 1, self.temperature) for end in ends)
        if (other := self.spec.reference) is not None:
            their_state = self.seen(other, theirs, their_state, instance)
            if self.spec.judge is not None:
                wish = self.spec.judge(other, theirs, their_state)
            else:
                choice, wishes, _ = _pull(other, key, theirs, their_state, t, None)
                chosen = one_hot(choice, self.problem.arms).astype(float)
                wish = chosen if wishes is None else jnp.exp(wishes)
            their_state = other.update(theirs, their_state, arm, rounded if other.binary else reward)
        log_prob = jnp.zeros(()) if log_probs is None else pick(log_probs, arm)
        slope = _slope(policy, params, state, t, self.temperature, arm) if self.spec.slopes else None
        played = {"slope": slope}
        played |= {"arm": arm, "log_prob": log_prob, "log_probs": log_probs, "reward": reward, "mean": mean}
        played |= {"after": seen_next, "luck": None if mean is None else observed - mean, "reference": wish}
        if prior.knows_means and not isinstance(prior.rewards, Bernoulli):  # tables were checked before
            off = jnp.maximum(off, jnp.abs(reward - jnp.clip(reward, self.least, self.most)))
        return (after, their_state), played | {"off": off, "heard": heard}

    def pull_many(
        self, key: Array, reward_key: Array, params: Any, states: Any, instance: Any, t: Array
    ) -> Any:
        """A batch of pulls on one instance: the states after it, and what is seen of it."""
        policy, problem, (params, _), (state, _) = self.policy, self.problem, params, states
        pulls, log_probs = _pull_many(policy, key, params, state, self.temperature, problem.pulls_at_once)
        before = t * np.uint32(problem.pulls_at_once)
        pulls, means = checkpoint_name(pulls, KEPT), problem.prior.means_at(instance, before)
        # Each arm has its own noise, the same in all rollouts.
        sums = checkpoint_name(problem.prior.sums(reward_key, instance, pulls, before), KEPT)
        log_prob = off = jnp.zeros(())
        if log_probs is not None:
            log_prob = (pulls * jnp.where(pulls > 0, log_probs, 0)).sum()
            off = jnp.abs(jnp.exp(jax.lax.stop_gradient(log_probs)).sum() - 1)
        played = {"arm": None, "log_probs": log_probs, "reward": sums.sum(), "mean": (pulls * means).sum()}
        played |= {"log_prob": log_prob, "pulls": pulls, "sums": sums, "off": off}
        if isinstance(policy, Late):
            after, heard = policy.observe(reward_key, params, state, pulls, sums, log_probs)
            return (after, None), played | {"heard": heard}
        return (policy.update_many(params, state, pulls, sums), None), played

    def visit(self, reward_key: Array, instance: Any, t: Array) -> Any:
        """A round of an instance with contexts, whose draws are their own and the same for all rollouts."""
        return self.problem.prior.visit(prng.fold_in(reward_key, CONTEXT), instance, t)

    def seen(self, policy: Policy, params: Any, state: Any, instance: Any) -> Any:
        """The policy's state once it has seen the round's context, if there is one."""
        return policy.see(params, state, instance.features) if self.problem.prior.contextual else state

    def best_arm(self, reward_key: Array, instance: Any, t: Array) -> Array:
        """The realised reward of an instance's best arm."""
        problem, before = self.problem, t * np.uint32(self.problem.pulls_at_once)
        means = problem.prior.means_at(instance, before)
        if problem.pulls_at_once > 1:
            law, arms = problem.prior.rewards, problem.prior.described(instance, before)
            return law.sum_of(reward_key, jnp.argmax(means), problem.pulls_at_once, arms)
        return problem.reward(reward_key, instance, jnp.argmax(means), t)

    def all_arms(self, reward_key: Array, instance: Any, t: Array) -> Array:
        """The realised rewards of all arms [K] of an instance."""
        arms = range(self.problem.arms)
        return jnp.stack([self.problem.reward(reward_key, instance, jnp.int32(i), t) for i in arms])

    def end(self, states: tuple[Any, Any]) -> Round:
        """What the recommended arm earns after the last round, as one more."""
        problem, shape, (state, _), (params, _) = self.problem, self.spec.shape, states, self.params
        arm = batch_last(self.policy.recommend, shape, (False, True))(params, state)
        means, best_mean = self.means_at(self.instance, np.uint32(problem.rounds))
        mean = batch_last(lambda arm, means: pick(means, arm), shape, (True, True))(arm, means)
        gained = problem.afterwards * mean
        best = problem.afterwards / problem.pulls_at_once * best_mean
        known = {"mean": gained, "best_reward": best, "best_mean": best}
        known |= {"state": remembered(self.policy, state)}
        return Round(jnp.uint32(problem.rounds), arm, jnp.zeros(shape), gained, None, **known)


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
    policy: Policy, key: Array, params: Params, state: Any, t: Array, temperature: Scalar | None
) -> tuple[Array, Array | None, Array]:
    """The arm that a policy pulls in round t, log p [K] if it has a density, and how far the probabilities
    are from a sum of 1."""
    if isinstance(policy, Again):
        total = jnp.exp(jax.lax.stop_gradient(state.log_probs)).sum()
        return state.arm, state.log_probs, jnp.abs(total - 1)
    if not policy.differentiable:
        arm = policy.act(key, params, state)
        return arm, None, jnp.where((arm >= 0) & (arm < policy.arms), 0.0, jnp.inf)
    log_probs = _log_probs(policy, params, state, t, temperature)
    arm, total = _choose(prng.words(key)[0], log_probs)
    return arm, log_probs, jnp.abs(total - 1)


def _pull_many(
    policy: Policy, key: Array, params: Params, state: Any, temperature: Scalar | None, count: int
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


def _log_probs(policy: Policy, params: Params, state: Any, t: Array, temperature: Scalar | None) -> Array:
    return _tempered(policy.next_log_probs(params, state, t), temperature)


def _slope(
    policy: Policy, params: Params, state: Any, t: Array, temperature: Scalar | None, arm: Array
) -> Array:
    """The gradient [P] of the arm's log p."""
    flat, unravel = ravel_pytree(params)
    return jax.grad(lambda flat: pick(_log_probs(policy, unravel(flat), state, t, temperature), arm))(flat)


def _tempered(log_probs: Array, temperature: Scalar | None) -> Array:
    return log_probs if temperature is None else jax.nn.log_softmax(log_probs / temperature)


def _choose(bits: Array, log_probs: Array) -> tuple[Array, Array]:
    """An index drawn from log-probabilities [K] by inverting their distribution function, and their sum.

    An index has no derivative, so no tangents pass through it. An entry of probability 0 is never chosen,
    however sums are rounded. And u is never 0: that would choose an entry of probability 10⁻²⁰ once in a
    few million draws, and its score would throw θ off.
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
    # At the start of a group, skip entries that a running sum over all entries would round away.
    rest = jnp.maximum(point - jnp.where(passed, edges, 0).max(), np.float32(2.0**-25) * edges[-1])
    inner = jax.lax.cummax(jnp.cumsum(own))
    place = jnp.where(rest < inner[-1], jnp.sum(rest >= inner), jnp.argmax(own))
    return group * size + place, edges[-1]
