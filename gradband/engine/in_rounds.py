"""Rounds of several pulls with contexts: all pulls are decided by what was known when the round began.

Every visitor of a round has a context of their own and a decision of their own. The policy learns the
rewards when the round ends, in the order of the pulls, as a player does whose rewards come then.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from gradband.core.arrays import pick
from gradband.policies import Params, Policy
from gradband.policies.base import State
from gradband.policies.guarded import Guarded, own_state


class Apart(NamedTuple):
    """What a policy remembers for its decisions, and what it has learned since."""

    deciding: State
    learning: State
    pulls: Array
    """how many pulls the round has had"""
    seen: State = None
    """`deciding` with the pull's context"""


class InRounds:
    """A bound policy whose rewards are learned at the end of each round; all else is its own."""

    def __init__(self, policy: Policy, size: int) -> None:
        self.own, self.size = policy, size
        inner = policy.own if isinstance(policy, Guarded) else policy
        self.asks = type(inner).update_late is not Policy.update_late

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def begin(self, params: Params, latent: Array) -> Apart:
        """The state before the first round."""
        state = self.own.begin(params, latent)
        return Apart(state, state, jnp.zeros(()))

    def see(self, params: Params, state: Apart, features: Array) -> Apart:
        """The state with a pull's context."""
        deciding, learning = (self.own.see(params, each, features) for each in state[:2])
        return Apart(state.deciding, learning, state.pulls, deciding)

    def log_probs(self, params: Params, state: Apart) -> Array:
        return self.own.log_probs(params, state.seen)

    def next_log_probs(self, params: Params, state: Apart, t: Array | int) -> Array:
        """The same: a round may be shorter than one pull of each arm."""
        return self.own.log_probs(params, state.seen)

    def act(self, key: Array, params: Params, state: Apart) -> Array:
        return self.own.act(key, params, state.seen)

    def update(self, params: Params, state: Apart, arm: Array, reward: Array) -> Apart:
        """The state after a pull; after the round's last one, decisions know all rewards."""
        if self.asks:
            p = jnp.exp(pick(self.log_probs(params, state), arm))
            learning = self.own.update_late(params, state.learning, arm, reward, p)
        else:
            learning = self.own.update(params, state.learning, arm, reward)
        ends = state.pulls + 1 >= self.size
        deciding = jax.tree.map(lambda new, old: jnp.where(ends, new, old), learning, state.deciding)
        return Apart(deciding, learning, jnp.where(ends, 0, state.pulls + 1))

    def remembered(self, state: Apart) -> State:
        """What the policy itself remembers for its decisions."""
        return own_state(self.own, state.deciding)
