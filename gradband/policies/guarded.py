"""A policy within guardrails, as a problem has them: the probabilities that a player would use.

The density of a policy becomes that of the guarded probabilities, so gradients include the guardrails. If a
policy only draws arms, arms are drawn from the mixture f + (1 − Σf) w. A cap is not a mixture: it needs the
policy's probabilities, which are estimated from many draws if there is nothing else.
"""

from typing import Any, NamedTuple, cast

import numpy as np

from gradband.core.arrays import Array, namespace, nn, one_hot, pick
from gradband.core.errors import InputError
from gradband.policies.base import Params, Policy, State
from gradband.policies.guardrails import guard
from gradband.policies.policy import certain
from gradband.problems import Problem

DRAWS = 64  # whose shares stand for probabilities under a cap, if a policy only draws arms
APART = 0x47554152  # leads to draws that the policy does not use


class Opening(NamedTuple):
    """The state of a policy that pulls each arm once first, and which arms were pulled [K].

    Guardrails may pull another arm than the next one, so the round's number does not tell.
    """

    own: State
    tried: Array


class Guarded:
    """A bound policy within guardrails, for rounds of one pull or many; the rest is the policy's own."""

    def __init__(
        self,
        policy: Policy,
        floors: np.ndarray,
        cap: float,
        single: bool,
        temperature: Array | None = None,
    ) -> None:
        self.own, self.floors, self.cap, self.temperature = policy, floors, cap, temperature
        self.opening = policy.opens and single and policy.differentiable
        self.remembers = type(policy).update_late is not Policy.update_late
        if self.remembers and not policy.differentiable:
            raise InputError(f"{policy.name} needs the probability of each pull, but only draws arms")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def begin(self, params: Params, latent: Array) -> State:
        """The state before the first round."""
        state = self.own.begin(params, latent)
        return Opening(state, namespace(latent).zeros(self.own.arms)) if self.opening else state

    def state(self, state: State) -> State:
        """What the policy itself remembers."""
        return state.own if self.opening else state

    def log_probs(self, params: Params, state: State) -> Array:
        """The logarithms of the guarded probabilities [K]; −inf where they are 0."""
        log_probs = self.own.log_probs(params, self.state(state))
        if self.opening:
            fresh = state.tried == 0
            first = certain(fresh.argmax(), self.own.arms)
            log_probs = namespace(log_probs).where(fresh.any(), first, log_probs)
        if self.temperature is not None:
            log_probs = nn(log_probs).log_softmax(log_probs / self.temperature)
        xp = namespace(log_probs)
        p = guard(xp.exp(log_probs), self.floors, self.cap)
        return xp.where(p > 0, xp.log(xp.where(p > 0, p, 1)), -np.inf)

    def next_log_probs(self, params: Params, state: State, t: Array | int) -> Array:
        """The same: the state has the arms that were pulled."""
        return self.log_probs(params, state)

    def act(self, key: Array, params: Params, state: State) -> Array:
        """The arm to pull, for a policy that only draws arms."""
        from gradband.core import prng

        apart, xp = prng.fold_in(key, APART), namespace(key)
        u = prng.open_unit(prng.words(apart)[0])
        if self.cap < 1:
            edges = guard(self._shares(key, params, state), self.floors, self.cap).cumsum()
            return xp.sum(u * edges[-1] >= edges)
        edges = xp.cumsum(xp.asarray(self.floors, u.dtype))
        return xp.where(u < edges[-1], xp.sum(u >= edges), self.own.act(key, params, state))

    def allocate(self, key: Array, params: Params, state: State, batch: int) -> Array:
        """The pulls of each arm [K] in a batch, for a policy that only draws arms."""
        from gradband.core import prng

        apart, xp = prng.fold_in(key, APART), namespace(key)
        if self.cap < 1:
            p = guard(self._shares(key, params, state), self.floors, self.cap)
            return prng.multinomial(apart, xp.asarray(batch, p.dtype), p)
        pulls, total = self.own.allocate(key, params, state, batch), float(self.floors.sum())
        # Each pull is left to the policy or taken from it, and then goes to an arm by its floor.
        kept = prng.binomial(prng.uniforms(apart, self.own.arms), pulls, xp.full_like(pulls, 1 - total))
        floors = xp.asarray(self.floors / total, pulls.dtype)
        return kept + prng.multinomial(prng.fold_in(apart, 2), (pulls - kept).sum(), floors)

    def _shares(self, key: Array, params: Params, state: State) -> Array:
        """The policy's probabilities [K], or the shares of the arms among many draws."""
        try:
            return self.own.probabilities(params, state)
        except NotImplementedError:
            pass
        try:
            return self.own.allocate(key, params, state, DRAWS) / DRAWS
        except NotImplementedError:
            why = "and a cap needs them: define probabilities or allocate"
            raise InputError(f"{self.own.name} has no probabilities, {why}") from None

    def update(self, params: Params, state: State, arm: Array, reward: Array) -> State:
        """The state after pulling an arm."""
        own = self.state(state)
        if not self.remembers:
            after = self.own.update(params, own, arm, reward)
        else:
            p = namespace(reward).exp(pick(self.log_probs(params, state), arm))
            after = self.own.update_late(params, own, arm, reward, p)
        return self._with(self.tried(state, one_hot(arm, self.own.arms)), after)

    def update_many(self, params: Params, state: State, pulls: Array, sums: Array) -> State:
        """The state after a batch."""
        own = self.state(state)
        if not self.remembers:
            return self._with(state, self.own.update_many(params, own, pulls, sums))
        p = namespace(pulls).exp(self.log_probs(params, state))
        return self._with(state, self.own.update_many_late(params, own, pulls, sums, p))

    def update_many_late(self, params: Params, state: State, pulls: Array, sums: Array, p: Array) -> State:
        """The state after late rewards."""
        own = self.own.update_many_late(params, self.state(state), pulls, sums, p)
        return self._with(state, own)

    def decided(self, state: State) -> State:
        """The state after a decision, before its reward."""
        return self._with(state, self.own.decided(self.state(state)))

    def tried(self, state: State, pulls: Array) -> State:
        """The state after a decision that pulls arms so often [K]."""
        if not self.opening:
            return state
        return state._replace(tried=namespace(pulls).maximum(state.tried, pulls.astype(state.tried.dtype)))

    def _with(self, state: State, own: State) -> State:
        return state._replace(own=own) if self.opening else own

    def recommend(self, params: Params, state: State) -> Array:
        """The arm to use after the last round; guardrails do not apply to it."""
        return self.own.recommend(params, self.state(state))


def within_guardrails(policy: Policy, problem: Problem, temperature: Array | None = None) -> Policy:
    """The bound policy within the problem's guardrails, or the same if there are none.

    With a temperature τ, guardrails hold for probabilities proportional to p^(1/τ).
    """
    if (rails := problem.guardrails) is None:
        return policy
    floors, single = rails.floors(problem.arms), problem.pulls_per_round == 1
    return cast(Policy, Guarded(policy, floors, rails.cap, single, temperature))


def own_state(policy: Policy, state: State) -> State:
    """The state of a policy that may be within guardrails."""
    return policy.state(state) if isinstance(policy, Guarded) else state
