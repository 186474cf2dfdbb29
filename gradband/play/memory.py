"""What a policy remembers of a test, and the probabilities of the next decision.

These are the policy's probabilities, within the limits for new arms (`newcomers`) and the guardrails.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from gradband.core.errors import InputError
from gradband.play import contexts, newcomers
from gradband.play.arms import Arms
from gradband.play.pending import Event
from gradband.play.playable import Playable
from gradband.play.settings import Settings
from gradband.policies import Counting, Policy
from gradband.policies.beliefs import Belief
from gradband.policies.by_group import ByGroup
from gradband.policies.guardrails import guard
from gradband.policies.text import as_text

BELIEFS = ("dims", "model", "link", "mean", "within", "sd", "hinges", "bend", "exclusive")
"""settings that determine the beliefs of a policy with contexts"""


class Memory:
    """A policy with its state. Probabilities are computed once, until the state changes."""

    def __init__(self, playable: Playable, settings: Settings, arms: Arms) -> None:
        self.playable, self.settings, self.arms = playable, settings, arms
        self.policy = playable.policy  # for the current number of arms
        self.state: Any = None
        self.rounds = 0  # with observed rewards
        self.waiting: Counter[int] = Counter()  # pulls of added arms without a reward so far
        self.control = None if settings.control is None else arms.number(settings.control)
        self._p: np.ndarray | None = None
        self._guarding = settings.guarded
        self._without: dict[bytes, np.ndarray] = {}
        self.resize()

    def resize(self) -> None:
        """Adapts to arms that were added or retired."""
        self.policy = self.playable.sized(len(self.arms.active))
        self._p = None
        if self._guarding:
            self._floors = self.settings.floors(self.arms.active, self.control)

    def decide(self, decision: Event) -> None:
        """Records a decision, before its reward."""
        state = self.policy.decided(self.state)
        if state is not self.state:
            self.state, self._p = state, None
        if self.arms.ever > self.arms.first:
            self.waiting.update(self.arms.pulls_of_added(decision))
        if self.arms.fresh:
            self.arms.tried(
                np.flatnonzero(decision["arms"]).tolist() if "arms" in decision else [decision["arm"]]
            )

    def observe(self, decision: Event, event: Event) -> None:
        """Observes the rewards in an event, or the default, of a decision."""
        arms, policy, params, missed = self.arms, self.policy, self.playable.params, 0
        if arms.ever > arms.first:
            self.waiting.subtract(arms.pulls_of_added(decision))
        if "arms" in decision:
            pulls, sums, p = map(arms.known, (decision["arms"], event["sums"], decision["p"]))
            self.state = policy.update_many_late(params, self.state, pulls, sums, p)
            self.rounds += sum(decision["arms"])
            missed = sum(decision["arms"]) - int(pulls.sum())
        elif self.playable.dims:  # tells of other arms too, so it counts if the arm is retired
            self.rounds += 1
            seen, place = self._seen(decision)
            self.state = policy.update_late(params, seen, place, event["heard"], decision["p"])
        else:
            self.rounds += 1
            if decision["arm"] in arms.active:
                place = arms.active.index(decision["arm"])
                self.state = policy.update_late(params, self.state, place, event["heard"], decision["p"])
            else:
                missed = 1
        if missed:  # rewards of arms that were retired meanwhile
            self.state = policy.missed(self.state, missed)
        self._p = None

    def _seen(self, decision: Event) -> tuple[Any, Any]:
        """The state with the features of the arm that a decision pulled, and the arm's place there."""
        policy: Any = self.policy
        (x,) = contexts.unpack(decision["x"], self.playable.dims)
        return policy.see_pulled(self.playable.params, self.state, x, np.int64(decision["arm"]))

    def corrected(self, expired: Event, event: Event) -> Any:
        """The state with late rewards in place of the default, or None if the policy cannot tell."""
        arms, policy = self.arms, self.policy
        if "arms" in expired:
            heard, sums, p = map(arms.known, (expired["sums"], event["sums"], expired["p"]))
            return policy.correct_many(self.state, heard, sums, p)
        if self.playable.dims:
            seen, place = self._seen(expired)
            return policy.correct(seen, place, expired["heard"], event["heard"], expired["p"])
        if expired["arm"] not in arms.active:
            return self.state
        place = arms.active.index(expired["arm"])
        return policy.correct(self.state, place, expired["heard"], event["heard"], expired["p"])

    def correct(self, expired: Event, event: Event) -> None:
        """Observes late rewards in place of the default, if `corrected` can."""
        self.state, self._p = self.corrected(expired, event), None

    def add_arm(self, label: str | None) -> None:
        self.state = self.policy.add_arm(self.state)
        self.arms.add(label, self.policy.opens)
        self.resize()

    def retire_arm(self, arm: int) -> None:
        self.state = self.policy.retire_arm(self.state, self.arms.retire(arm))
        self.resize()

    def check_swap(self, playable: Playable) -> Any:
        """The state of another policy after what this one has observed, or an error."""
        policy, new, count = self.policy, playable.policy, len(self.arms.active)
        if isinstance(policy, ByGroup) and isinstance(new, ByGroup) and policy.dims == new.dims:
            return self._check_groups(policy, new)
        if self.playable.dims or playable.dims:
            return self._check_beliefs(playable)
        if not isinstance(policy, Counting) or not isinstance(new, Counting):
            raise InputError(f"{policy.name} cannot be swapped for {new.name}: both must remember counts")
        if policy.forgets:
            why = "it has forgotten part of its counts"
            raise InputError(f"{policy.name} cannot be swapped for {new.name}: {why}")
        if new.arms != count and not new.flexible:
            raise InputError(f"{new.name} is for {new.arms} arms, and the test has {count}")
        sized: Any = playable.sized(count)
        state = sized.after(policy.counts(self.state))
        sized.check_state(state, self.rounds)
        return state

    def _check_groups(self, policy: ByGroup, new: ByGroup) -> Any:
        """The counts of all groups, which another policy can take over."""
        core: Any = policy.core
        if core.forgets or new.arms != policy.arms:
            why = "it has forgotten part of its counts" if core.forgets else f"it is for {policy.arms} arms"
            raise InputError(f"{as_text(policy)} cannot be swapped for {as_text(new)}: {why}")
        state = new.after(policy, self.state)
        new.check_state(state, self.rounds)
        return state

    def _check_beliefs(self, playable: Playable) -> Any:
        """What this policy believes, which another can take over if it had the same prior."""
        old, new = self.playable, playable
        same = all(getattr(old.policy, name, 0) == getattr(new.policy, name, 1) for name in BELIEFS)
        if not same or not isinstance(self.state, Belief) or not isinstance(new.begin(0.0), Belief):
            raise InputError(
                f"{old.policy.name} cannot be swapped for {new.policy.name}: both must have the same "
                f"{', '.join(BELIEFS)}"
            )
        if new.policy.arms != len(self.arms.active) and not new.policy.flexible:
            raise InputError(
                f"{new.policy.name} is for {new.policy.arms} arms, and the test has {len(self.arms.active)}"
            )
        return self.state

    def swap(self, playable: Playable, busy: set[int]) -> None:
        """Another policy takes over. If it `opens`, it tries unknown arms first, except those in `busy`."""
        self.state, self.playable = self.check_swap(playable), playable
        self.resize()
        policy: Any = self.policy
        if playable.dims:
            return
        pulls = policy.counts(self.state).pulls
        known = [arm for arm, count in zip(self.arms.active, pulls, strict=True) if count > 0]
        unknown = set(self.arms.active) - set(known) - busy if playable.policy.opens else set()
        self.arms.fresh = sorted(unknown)

    def load(self, playable: Playable, found: dict[str, Any], waiting: Iterable[Event]) -> None:
        """Loads a checked state."""
        self.playable, self.state, self.rounds = playable, found["memory"], found["rounds"]
        self.waiting = Counter()
        for decision in waiting:
            self.waiting.update(self.arms.pulls_of_added(decision))
        self.resize()

    def single(self, features: np.ndarray | None = None) -> np.ndarray:
        """Probabilities of the active arms for one decision, in a context if the policy takes one."""
        arms = self.arms
        if features is not None and not arms.fresh:
            return self._guarded(self._checked(self.policy, self.seen(features)))
        if not arms.fresh:
            usual = arms.ever == arms.first and not self._guarding
            return self._own() if usual else self.many(1)
        p = np.zeros(len(arms.active))
        p[arms.active.index(arms.fresh[0])] = 1.0
        return self._guarded(p)

    def seen(self, features: np.ndarray | None) -> Any:
        """The state with the features of a context, if there is one."""
        if features is None:
            return self.state
        self._check_rounds()
        return self.policy.see(self.playable.params, self.state, features)

    def many(self, count: int) -> np.ndarray:
        """Probabilities for `count` decisions in a row without rewards."""
        p = self._own()
        arms = self.arms
        if arms.ever > arms.first:
            first = bisect_left(arms.active, arms.first)  # arms are in the order in which they came
            waiting = np.array([self.waiting[arm] for arm in arms.active[first:]])
            limit = np.ones(len(p))
            policy: Any = self.policy
            observed = policy.counts(self.state).pulls[first:]
            limit[first:] = newcomers.limits(observed, waiting, count, len(p))
            p = newcomers.within(p, limit, self._others)
        return self._guarded(p)

    def _guarded(self, p: np.ndarray) -> np.ndarray:
        return guard(p, self._floors, self.settings.cap) if self._guarding else p

    def _own(self) -> np.ndarray:
        """The policy's probabilities."""
        if self._p is None:
            self._check_rounds()
            self._p = self._checked(self.policy, self.state)
            self._without.clear()
        return self._p

    def _check_rounds(self) -> None:
        policy = self.policy
        if policy.bounded and self.rounds >= policy.horizon:
            raise InputError(f"{policy.name} is for {policy.horizon} rounds, and all are played")

    def _others(self, among: np.ndarray) -> np.ndarray:
        """The policy's probabilities if there were only these active arms, given as a mask [K]."""
        key = among.tobytes()
        if key not in self._without:
            policy, state = self.policy, self.state
            for place in np.flatnonzero(~among)[::-1].tolist():
                state = policy.retire_arm(state, place)
                policy = self.playable.sized(policy.arms - 1)
            self._without[key] = self._checked(policy, state)
        return self._without[key]

    def _checked(self, policy: Policy, state: Any) -> np.ndarray:
        """The policy's probabilities, which must sum to 1."""
        p: np.ndarray = policy.probabilities(self.playable.params, state)
        if not abs(p.sum() - 1) < 1e-6:
            raise InputError(
                f"the probabilities of {policy.name} do not sum to 1: its numbers are too large"
            )
        return p
