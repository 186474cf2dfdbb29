"""Late rewards: a policy observes rewards when they arrive, as a player does.

Pending rewards are counted by arm, by value (0 or 1) and by age. In every round, those of each age arrive
with the same probability, so the numbers that arrive are binomial, and single pulls need not be remembered.
With geometric delays, all but the newest rewards have the same probability, and ages are not told apart.
Single pulls with a measured delay may be pending for very many rounds: a calendar has their rewards.
"""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from gradband.core import prng
from gradband.core.arrays import one_hot
from gradband.core.errors import InputError
from gradband.engine.in_rounds import InRounds
from gradband.policies import Params, Policy
from gradband.policies.base import KEPT, State
from gradband.policies.guarded import Guarded, own_state, within_guardrails
from gradband.problems import Problem

LATE = 0x4C415445  # leads to draws that rewards do not use
MOST_AGES = 256
FEW_AGES = 16  # of single pulls, above which a calendar takes less time


class Waiting(NamedTuple):
    """What a policy remembers, and the pending rewards by age [A, K], unless they are in a calendar."""

    own: State
    zeros: Array | None
    ones: Array | None
    p: Array | None
    """the probabilities with which arms were pulled, for policies that need them"""


class Late:
    """A bound policy whose rewards come late; everything else is the policy's."""

    def __init__(self, policy: Policy, problem: Problem) -> None:
        assert problem.delay is not None
        self.own, self.arms = policy, problem.arms
        inner = policy.own if isinstance(policy, Guarded) else policy
        self.asks = type(inner).update_many_late is not Policy.update_many_late
        hazards = problem.delay.hazards(problem.pulls_per_round, problem.rounds)
        self.chances, self.lasting = hazards
        if self.asks and self.lasting:  # a reward is worth more if its arm was unlikely: ages are kept
            more = np.full(max(problem.rounds, 2) - len(self.chances), self.chances[-1])
            self.chances, self.lasting = np.append(self.chances, more), False
        single, many = problem.pulls_per_round == 1, len(self.chances)
        dated = single and many > FEW_AGES and not self.asks
        self.calendar = Calendar(self.chances, problem.arms) if dated else None
        if self.calendar is None and many > MOST_AGES:
            raise InputError(
                f"rewards of up to {many} rounds may be pending, and at most {MOST_AGES} are feasible with "
                f"{inner.name if self.asks else 'batches'}: use more pulls per round (pulls_per_round)"
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def begin(self, params: Params, latent: Array) -> Waiting:
        """The state before the first round."""
        if self.calendar is not None:
            return Waiting(self.own.begin(params, latent), None, None, None)
        classes = max(len(self.chances) - 1, 1)
        none = jnp.zeros((classes, self.arms))
        return Waiting(self.own.begin(params, latent), none, none, none if self.asks else None)

    def log_probs(self, params: Params, state: Waiting) -> Array:
        return self.own.log_probs(params, state.own)

    def next_log_probs(self, params: Params, state: Waiting, t: Array | int) -> Array:
        return self.own.next_log_probs(params, state.own, t)

    def act(self, key: Array, params: Params, state: Waiting) -> Array:
        return self.own.act(key, params, state.own)

    def allocate(self, key: Array, params: Params, state: Waiting, batch: int) -> Array:
        return self.own.allocate(key, params, state.own, batch)

    def recommend(self, params: Params, state: Waiting) -> Array:
        return self.own.recommend(params, state.own)

    def observe(
        self, key: Array, params: Params, state: Waiting, pulls: Array, sums: Array, log_probs: Array | None
    ) -> tuple[Waiting, tuple[Array, Array]]:
        """The state after a round with these pulls [K] and sums of rewards [K], and what arrived."""
        own = self._decided(state, pulls)
        assert state.zeros is not None
        assert state.ones is not None
        zeros, ones = self._joined(state.zeros, pulls - sums), self._joined(state.ones, sums)
        # Arrivals are the same in all rollouts of an instance, as far as the same rewards are pending.
        u = prng.uniforms(prng.fold_in(key, LATE), 2 * zeros.size)
        chance = jnp.broadcast_to(jnp.asarray(self.chances, zeros.dtype)[:, None], zeros.shape)
        both = jnp.concatenate([zeros.ravel(), ones.ravel()])
        arrived = prng.binomial(u, both, jnp.concatenate([chance.ravel(), chance.ravel()]))
        arrived = checkpoint_name(arrived, KEPT).reshape(2, *zeros.shape)
        p = None
        if self.asks and state.p is not None:
            assert log_probs is not None
            p = self._joined(state.p, jnp.exp(log_probs))
            own = self._heard_by_age(params, own, arrived[0] + arrived[1], arrived[1], p)
        else:
            own = self.own.update_many(params, own, arrived.sum((0, 1)), arrived[1].sum(0))
        left = self._older(zeros - arrived[0]), self._older(ones - arrived[1])
        after = Waiting(own, *left, None if p is None else p[:-1])
        return after, (arrived.sum((0, 1)), arrived[1].sum(0))

    def decide(self, state: Waiting, arm: Array) -> Waiting:
        """The state after a decision whose reward is entered in the calendar."""
        return state._replace(own=self._decided(state, one_hot(arm, self.arms)))

    def hear(self, params: Params, state: Waiting, pulls: Array, sums: Array) -> Waiting:
        """The state after rewards that were in the calendar for this round."""
        return state._replace(own=self.own.update_many(params, state.own, pulls, sums))

    def _decided(self, state: Waiting, pulls: Array) -> State:
        own = self.own.decided(state.own)
        return self.own.tried(own, pulls) if isinstance(self.own, Guarded) else own

    def _joined(self, waiting: Array, new: Array) -> Array:
        """The pending rewards [A, K], with the newest first."""
        if len(self.chances) == 1:
            return waiting + new[None]
        return jnp.concatenate([new[None].astype(waiting.dtype), waiting])

    def _older(self, left: Array) -> Array:
        """The pending rewards, a round later."""
        if len(self.chances) == 1:
            return left
        if not self.lasting:
            return left[:-1]
        return jnp.concatenate([left[:-2], left[-2:].sum(0, keepdims=True)])

    def _heard_by_age(self, params: Params, own: State, pulls: Array, sums: Array, p: Array) -> State:
        """The state after arrivals [A, K] of arms that were pulled with probabilities p [A, K]."""

        def hear(own: State, one: tuple[Array, Array, Array]) -> tuple[State, None]:
            return self.own.update_many_late(params, own, *one), None

        return jax.lax.scan(hear, own, (pulls, sums, p), reverse=True)[0]


class Calendar:
    """Rewards of single pulls by the round of their arrival, for a block: [W, 2K, R, B].

    W is the longest delay. Round t has the row t mod W, with each arm's pulls and sum of rewards.
    """

    def __init__(self, chances: np.ndarray, arms: int) -> None:
        self.arms = arms
        self.arrived = 1 - np.cumprod(1 - chances)  # share by wait [W]

    def empty(self, shape: tuple[int, int]) -> Array:
        return jnp.zeros((len(self.arrived), 2 * self.arms, *shape))

    def turn(
        self, rows: Array, u: Array, t: Array, arm: Array, reward: Array
    ) -> tuple[Array, Array, Array]:
        """The calendar after round t, and the pulls and sums [K, R, B] that arrive in it.

        The reward [R, B] of an arm [R, B] is delayed by an amount that u [1, B] decides.
        """
        longest, (rollouts, size) = len(self.arrived), arm.shape
        wait = jnp.searchsorted(jnp.asarray(self.arrived, u.dtype), u, side="right").astype(jnp.int32)
        place = jnp.broadcast_to((t.astype(jnp.int32) + wait) % longest, arm.shape)
        comes = jnp.broadcast_to(wait < longest, arm.shape).astype(rows.dtype)
        run, instance = jnp.arange(rollouts)[:, None], jnp.arange(size)[None]
        rows = rows.at[place, arm, run, instance].add(comes)
        rows = rows.at[place, self.arms + arm, run, instance].add(comes * reward.astype(rows.dtype))
        now = t.astype(jnp.int32) % longest
        here = checkpoint_name(jax.lax.dynamic_index_in_dim(rows, now, keepdims=False), KEPT)
        return rows.at[now].set(0.0), here[: self.arms], here[self.arms :]


def as_played(policy: Policy, problem: Problem, temperature: Any = None) -> Policy:
    """The bound policy as a problem has it played: within guardrails, and with late rewards."""
    guarded = within_guardrails(policy, problem, temperature)
    if problem.prior.contextual and problem.pulls_per_round > 1:
        return cast(Policy, InRounds(guarded, problem.pulls_per_round))
    return guarded if problem.delay is None else cast(Policy, Late(guarded, problem))


def remembered(policy: Policy, state: State) -> State:
    """What the policy itself remembers, in a state of `as_played`."""
    if isinstance(policy, InRounds):
        return policy.remembered(state)
    return own_state(policy.own, state.own) if isinstance(policy, Late) else own_state(policy, state)
