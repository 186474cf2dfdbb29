"""Plays a policy in production, with NumPy alone.

    player = Player("policy.safetensors", journal="test.jsonl", wait="24h", arms=["red", "blue"])
    arm = player.select()           # an arm's number, with arm.label, arm.id and arm.propensity
    player.update(arm, reward)      # now or later, in any order; or update(arm.id, reward)

A player changes only through events: a decision, a reward, a missed deadline, an added or retired arm,
another policy. `record` gets each event as a dictionary for JSON; `apply` replays it in another player.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import numpy as np

from gradband.core.errors import InputError, number_of_arms, shown, whole
from gradband.play import checks, contexts, states, turns
from gradband.play.arms import Arms
from gradband.play.decision import Batch, Decision
from gradband.play.draws import Draws
from gradband.play.journal import Journal
from gradband.play.memory import Memory
from gradband.play.pending import Event, Pending
from gradband.play.playable import Playable, as_playable
from gradband.play.settings import GUARDRAILS, STORAGE, Options, Settings
from gradband.policies import Policy
from gradband.policies.own import Trust

if TYPE_CHECKING:
    from gradband.policies.policy_file import Learned

SEED_BITS = 53  # of a random seed: JavaScript can represent it


class Player(AbstractContextManager["Player"]):
    """Runs one test: `select` an arm, show it, `update` with its reward.

    The policy observes rewards when they arrive. It ignores decisions that still wait for their rewards,
    except those for added arms (see `newcomers`). Arms are numbered from 0 and keep their numbers; a
    retired arm has probability 0. Threads may share a player; a forked process may not use it.
    """

    def __init__(
        self,
        policy: "str | PathLike[str] | Learned | Policy | Playable",
        seed: int | None = None,
        record: Callable[[Event], None] | None = None,
        journal: str | PathLike[str] | None = None,
        trust: Trust | None = None,
        *,
        settings: Settings | None = None,
        clock: Callable[[], float] = time.time,
        policies: Callable[[str], Playable] | None = None,
        **more: Unpack[Options],
    ) -> None:
        """Starts a test, or resumes the one in the journal.

        Args:
            policy: A policy file, what `gb.learn` returned, a bound policy, or another player's `playable`.
            seed: Seed of all random draws. By default the journal's seed, or a random one.
            record: Called with every event.
            journal: A file that stores every event before the player returns its result.
            trust: For a policy file with a class of your own: the class, or the Python file that has it.
            settings: Names of the arms, how long to wait for rewards, guardrails (see `Settings`). By
                default the journal's, or the guardrails of the problem that the policy was learned on.
            clock: Returns the time in seconds since 1970.
            policies: Finds a policy by its fingerprint, to replay a journal in which the policy changed.
            **more: Settings by name, as in `wait="24h"`.
        """
        self.playable = as_playable(policy, trust)
        self.record, self.clock, self.policies = record, clock, policies
        self.journal: Journal | None = None
        self.lock = turns.new_lock(self)
        self._turn: AbstractContextManager[Any] = self.lock  # for methods that change the player
        self.seed_given = seed is not None
        self.settings = dataclasses.replace(settings or Settings(), **more)
        if settings is None and not set(more) & set(GUARDRAILS):
            self.settings = self.settings.guarded_as_learned(self.playable.guardrails)
        self.settings_given = set(more if settings is None else self.settings.as_dict()) - set(STORAGE)
        self.begin(int.from_bytes(os.urandom(8)) >> 64 - SEED_BITS if seed is None else seed, self.settings)
        if journal is not None:
            self.journal = Journal(Path(journal), self)
            self._turn = turns.Turn(self.lock, self.journal)

    def begin(self, seed: int, settings: Settings, arms_first: int | None = None) -> None:
        """Starts over with this seed and these settings; by default with the policy's number of arms."""
        policy = self.playable.policy
        arms = Arms(arms_first or policy.arms, settings.arms, policy.opens)
        checks.check_settings(policy, settings, arms)
        self.settings, self.seed = settings, checks.check_count("seed", seed)
        self.time = 0.0  # of the last event
        self.told = 0  # events
        self.known_arms = arms
        self._draws = Draws(self.seed)
        self.pending = Pending(settings.window, settings.wait_seconds)
        self.memory = Memory(self.playable, settings, arms)
        self.memory.state = self.playable.begin(self._draws.next())

    def close(self) -> None:
        """Closes the journal, if there is one. Then the player makes no more decisions."""
        if self.journal is not None:
            self.journal.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise InputError("a copy of a player would repeat its draws: use state and restore instead")

    def disown(self) -> None:
        """In a fork: leaves the test to the parent process."""
        self.lock = self._turn = turns.Refusal("player")

    @property
    def policy(self) -> Policy:
        """The policy, for the number of arms that it was made for."""
        return self.playable.policy

    @property
    def arms(self) -> tuple[int, ...]:
        """Numbers of the active arms."""
        with self.lock:
            return tuple(self.known_arms.active)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of all arms by number, retired ones included."""
        with self.lock:
            return tuple(self.known_arms.labels)

    @property
    def open(self) -> tuple[str, ...]:
        """Ids of the decisions that wait for their rewards, oldest first."""
        with self.lock:
            return tuple(self.pending.open)

    @property
    def drawn(self) -> int:
        """How many random numbers were drawn."""
        return self._draws.drawn

    @property
    def rounds(self) -> int:
        """How many rewards were observed, defaults included."""
        return self.memory.rounds

    def waits(self, id: Any) -> bool:
        """Whether the decision with this id waits for its reward."""
        return self.pending.waits(id)

    def finished(self, id: Any) -> bool:
        """Whether the decision with this id has its reward, or its default."""
        return self.pending.finished(id)

    def probabilities(self, context: Any = None) -> np.ndarray:
        """Probability of each arm in the next decision, by number; 0 for retired arms.

        Args:
            context: As in `select`.
        """
        with self.lock:
            return self.known_arms.spread(self.memory.single(self._features(context)))

    def weights(self, context: Any = None) -> dict[str, float]:
        """Probability of each active arm in the next decision, by name.

        Args:
            context: As in `select`.
        """
        with self.lock:
            p = self.memory.single(self._features(context))
            return {
                self.known_arms.labels[arm]: float(share)
                for arm, share in zip(self.known_arms.active, p, strict=True)
            }

    def recommend(self, context: Any = None) -> int:
        """The arm to keep if the test ended now.

        Args:
            context: As in `select`.
        """
        with self.lock:
            memory = self.memory
            state = memory.seen(self._features(context))
            return self.known_arms.active[int(memory.policy.recommend(self.playable.params, state))]

    def _features(self, context: Any) -> np.ndarray | None:
        return contexts.read_context(self.playable, context, self.known_arms)

    def select(self, id: str | None = None, unit: str | None = None, context: Any = None) -> Decision:
        """Chooses an arm, or returns an earlier decision.

        An `id` that waits for its reward gets its decision again. So does a `unit`, unless its arm was
        retired or it has left the window (see `Settings.window`).

        Args:
            id: The decision's id; a number by default.
            unit: The id of a user, for example, who must see the same arm each time, whatever the context.
            context: For a policy with contexts: features of the active arms [K, d], as lists, an array or a
                dictionary by arm; or features of the visitor [d].
        """
        with self._turn:
            now = self._now()
            if id is not None or unit is not None:
                had = self.pending.find(id, unit, self.known_arms.active)
                if had is not None:
                    label = self.known_arms.labels[had["arm"]]
                    return Decision(had["arm"], had["id"], had["p"], label, True)
            id = self.pending.new_id(id)
            features = self._features(context)
            p = self.memory.single(features)
            place = self._draws.choose(p)
            arm, share = self.known_arms.active[place], float(p[place])
            made = {"op": "select", "id": id, "arm": arm, "p": share, "drawn": self._draws.drawn, "t": now}
            if unit is not None:
                made["unit"] = unit
            self._decide(made if features is None else {**made, "x": contexts.pack_pulled(features, place)})
            if self.journal is not None or self.record is not None:
                found = {} if features is None else {"xs": contexts.pack(features)}
                self._tell({**made, "ps": self.known_arms.spread(p).round(6).tolist(), **found})
            return Decision(arm, id, share, self.known_arms.labels[arm])

    def select_many(self, count: int, id: str | None = None) -> Batch:
        """Divides the next `count` pulls among the arms. Their rewards come together."""
        checks.check_batches(self.policy, self.settings)
        count = whole("count", count)
        with self._turn:
            now = self._now()
            if id is not None and self.waits(id):
                event = self.pending.open[id]
                if sum(event.get("arms", [])) != count:
                    raise InputError(f"{shown(id)} waits for its reward, and is not a batch of {count}")
                return Batch(event["arms"], id, event["p"])
            id = self.pending.new_id(id)
            p = self.memory.many(count)  # a batch has room for all untried arms at once
            pulls = self.known_arms.spread(self._draws.multinomial(count, p)).astype(int).tolist()
            shares = self.known_arms.spread(p).tolist()
            self._apply(
                {"op": "select", "id": id, "arms": pulls, "p": shares, "drawn": self.drawn, "t": now}
            )
            return Batch(pulls, id, shares)

    def update(self, decision: "Decision | str | int", reward: float) -> None:
        """Observes the reward of a decision: the one that `select` returned, its id, or its arm's number.

        An arm's number means the oldest decision for that arm that waits for a reward. A reward that comes
        after `wait` corrects the default, if the policy can take that back.
        """
        with self._turn:
            id, made, late = self.pending.find_rewarded(decision)
            if "arms" in made:
                raise InputError(f"{shown(id)} is a batch: update_many takes its sums of rewards")
            heard = reward = checks.check_reward(self.policy, reward)
            if late:
                checks.check_correction(self.memory, made, {"heard": reward})
            if self.policy.binary and 0 < reward < 1:
                heard = float(self._draws.next() < reward)
            drawn = self._draws.drawn
            found = {"op": "update", "id": id, "reward": reward, "heard": heard, "drawn": drawn}
            self._update(found, late)

    def update_many(self, batch: "Batch | str", sums: "Sequence[float] | np.ndarray") -> None:
        """Observes the sum of each arm's rewards in a batch.

        Rewards must be 0 or 1, unless the policy was learned on other rewards, such as revenue.
        """
        with self._turn:
            id, made, late = self.pending.find_rewarded(batch)
            if "arms" not in made:
                raise InputError(f"{shown(id)} is one decision, not a batch: update takes its reward")
            given = sums.tolist() if isinstance(sums, np.ndarray) else sums
            found = checks.check_sums(made, given, self.playable.any_sums)
            if late:
                checks.check_correction(self.memory, made, {"sums": found})
            self._update({"op": "update", "id": id, "sums": found, "drawn": self.drawn}, late)

    def _update(self, event: Event, late: bool) -> None:
        """Observes rewards, then expires what is due: a reward that has arrived counts."""
        now = self._time()
        event["t"] = now
        if late:
            event["late"] = True
        self._apply(event)
        if self.settings.wait is not None:
            self._expire(now)

    def expire(self, now: float | None = None) -> int:
        """Gives the default reward to decisions past their deadline, and returns how many there were.

        `select` and `update` do this too. Nothing expires without the setting `wait`.

        Args:
            now: The time in seconds since 1970; by default the clock's.
        """
        with self._turn:
            return self._expire(self._time() if now is None else max(checks.check_time(now), self.time))

    def _expire(self, now: float) -> int:
        count, default = 0, self.settings.default
        for made in self.pending.due(now):
            event: Event = {"op": "expire", "id": made["id"]}
            if "arms" in made:
                event["sums"] = [int(default) * pulls for pulls in made["arms"]]
            else:
                rounds = self.policy.binary and 0 < default < 1
                event["heard"] = float(self._draws.next() < default) if rounds else default
            self._apply({**event, "drawn": self.drawn, "t": now})
            count += 1
        return count

    def _time(self) -> float:
        """The current time, but never before the last event."""
        now = int(self.clock() * 1000) / 1000
        return now if now > self.time else self.time

    def _now(self) -> float:
        """The current time, after expiring what is due."""
        now = self._time()
        if self.settings.wait is not None:
            self._expire(now)
        return now

    def add_arm(self, arm: "int | str | None" = None) -> int:
        """Adds an unknown arm and returns its number.

        If you give its name or number as `arm`, you can repeat the call: no arm is added twice.
        """
        self.need_flexible("added")
        with self._turn:
            new, label = self.known_arms.ever, None
            if isinstance(arm, str):
                if (known := self.known_arms.number(arm)) is not None:
                    return known
                label = self.known_arms.check_new(arm)
            elif arm is not None:
                if whole("arm", arm, least=self.known_arms.first) < new:
                    return int(arm)
                if arm != new:
                    raise InputError(f"the next arm has the number {new}, not {shown(arm)}")
            if label is None:
                self.known_arms.check_new(str(new))
            number_of_arms(new + 1)
            self.settings.check_room([*self.known_arms.active, new], self.memory.control)
            named = {} if label is None else {"label": label}
            self._apply({"op": "add", "arm": new, **named, "t": self._now()})
            return new

    def retire(self, arm: "int | str") -> None:
        """Stops pulling an arm, given by its number or name.

        Rewards that arrive later are accepted. They are ignored, unless all arms share one θ.
        """
        self.need_flexible("retired")
        with self._turn:
            self._apply({"op": "retire", "arm": self.known_arms.find_retirable(arm), "t": self._now()})

    def swap(self, policy: "str | PathLike[str] | Learned | Policy | Playable", reason: str) -> None:
        """Continues with another policy, which takes over counts, arms, open decisions and draws.

        Args:
            policy: As for a new player. Both policies must remember counts, or have the same beliefs.
            reason: Recorded in the event.
        """
        playable = as_playable(policy)
        with self._turn:
            self.memory.check_swap(playable)
            checks.check_settings(playable.policy, self.settings, self.known_arms)
            self._swapped = playable
            about = {"fingerprint": playable.fingerprint, "policy": playable.policy.name}
            self._apply({"op": "swap", **about, "reason": checks.check_reason(reason), "t": self._now()})
            if self.journal is not None:
                self.journal.due = True  # a snapshot, so that a restart needs the new policy only

    def find_policy(self, fingerprint: str) -> Playable:
        """The policy with this fingerprint: the one that is played, or one that `policies` returns."""
        for known in (self.playable, getattr(self, "_swapped", None)):
            if known is not None and known.fingerprint == fingerprint:
                return known
        found = self.policies(fingerprint) if self.policies is not None else None
        if found is None or found.fingerprint != fingerprint:
            raise InputError(
                f"the policy {shown(fingerprint)} is needed here, but `policies` does not return it"
            )
        return found

    def apply(self, event: Event) -> None:
        """Replays a recorded event that was checked."""
        with self._turn:
            self._apply(event)

    def _apply(self, event: Event) -> None:
        op = event["op"]
        if op == "select":
            made = {key: value for key, value in event.items() if key not in ("ps", "xs")}
            made.setdefault("t", self._time())  # version 1 had none
            if "xs" in event:
                place = self.known_arms.active.index(event["arm"])
                made["x"] = contexts.keep(event, place, self.playable.dims)
            self._decide(made)
        elif op == "update":
            if event.get("late"):
                self.memory.correct(self.pending.finish_late(event["id"]), event)
            else:
                self.memory.observe(self.pending.finish(event["id"]), event)
        elif op == "expire":
            self.memory.observe(self.pending.expire(event), event)
        elif op == "add":
            self.memory.add_arm(event.get("label"))
        elif op == "retire":
            self.memory.retire_arm(event["arm"])
        else:
            self.playable = self.find_policy(event["fingerprint"])
            self.memory.swap(self.playable, {made.get("arm", -1) for made in self.pending.open.values()})
        self._draws.skip_to(event.get("drawn", 0))
        self._tell(event)

    def _decide(self, made: Event) -> None:
        self.pending.add(made)
        self.memory.decide(made)

    def _tell(self, event: Event) -> None:
        self.time = event.get("t", self.time)
        self.told += 1
        if self.journal is not None:
            self.journal.append(event)
        if self.record is not None:
            self.record(event)

    def state(self) -> dict[str, Any]:
        """Everything the player knows, ready for JSON."""
        with self.lock:
            return states.write_state(self)

    def restore(self, state: dict[str, Any]) -> None:
        """Resumes from what `state` returned, in this or another player of the same policy.

        The player continues as that one would have: with the same draws, none of them repeated.
        """
        with self._turn:
            if self.record is not None or self.journal is not None:
                raise InputError(
                    "a player with a record or a journal cannot be restored: the record would have a gap"
                )
            self.load(state)

    def load(self, state: Any) -> None:
        """Resumes from a state, as `restore` does, also for a player with a journal."""
        found = states.check_state(self, state)
        self.playable = found["playable"]
        self.begin(found["seed"], found["settings"].stored_as(self.settings), found["first"])
        self.time = found["t"]
        self._draws.skip_to(found["drawn"])
        self.known_arms.load(found)
        self.pending.load(found)
        self.memory.load(self.playable, found, self.pending.open.values())

    def need_flexible(self, done: str) -> None:
        """Raises an error unless the policy can play with any number of arms."""
        if not self.policy.flexible:
            raise InputError(f"{self.policy.name} is for {self.policy.arms} arms: none can be {done}")
