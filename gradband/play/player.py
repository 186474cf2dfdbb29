"""Plays a policy in production, with NumPy alone.

    player = Player("policy.safetensors", journal="test.jsonl")
    arm = player.select()           # an arm's number, with arm.id and arm.propensity
    player.update(arm, reward)      # now or later, in any order; or update(arm.id, reward)

Only events change a player: a decision, a reward, an arm that is added or retired. `record` is called with
each of them, as a dictionary that JSON can hold, and `apply` brings another player to the same state.
"""

import copy
import secrets
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from gradband.core.arrays import flatten
from gradband.core.errors import InputError, number_of_arms, shown, whole
from gradband.play import events, newcomers, turns
from gradband.play.journal import Journal
from gradband.play.playable import Playable, as_playable
from gradband.policies import Policy
from gradband.policies.own import Trust

if TYPE_CHECKING:
    from gradband.policies.policy_file import Learned

SEED_BITS = 53  # of a random seed: JavaScript can represent it

Event = dict[str, Any]


class Decision(int):
    """The number of the chosen arm, with the decision's `id` and the probability of choosing it."""

    id: str
    propensity: float

    def __new__(cls, arm: int, id: str, propensity: float) -> "Decision":
        made = super().__new__(cls, arm)
        made.id, made.propensity = id, propensity
        return made

    def __reduce__(self) -> tuple[Any, ...]:  # so that it can be copied
        return Decision, (int(self), self.id, self.propensity)

    def __repr__(self) -> str:
        return f"Decision({int(self)}, id={self.id!r}, propensity={self.propensity:.6g})"


class Batch(tuple[int, ...]):
    """How often to pull each arm, with the batch's `id` and the arms' `propensities`."""

    id: str
    propensities: tuple[float, ...]

    def __new__(cls, pulls: Sequence[int], id: str, propensities: Sequence[float]) -> "Batch":
        made = super().__new__(cls, pulls)
        made.id, made.propensities = id, tuple(propensities)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (tuple(self), self.id, self.propensities)


class Player(AbstractContextManager["Player"]):
    """One test that a policy plays: `select` an arm, show it, `update` with its reward.

    A policy observes rewards when they arrive, and ignores decisions that still wait for theirs, except
    those for added arms (see `newcomers`). Arms have numbers from 0 and keep them; a retired arm has
    probability 0. Any number of threads may share a player, but a fork may not use it.
    """

    def __init__(
        self,
        policy: "str | PathLike[str] | Learned | Policy | Playable",
        seed: int | None = None,
        record: Callable[[Event], None] | None = None,
        journal: str | PathLike[str] | None = None,
        trust: Trust | None = None,
    ) -> None:
        """Starts a test, or resumes the one in the journal.

        Args:
            policy: A policy file, what `gb.learn` returned, a bound policy, or another player's `playable`.
            seed: Determines all draws, together with the rewards. By default the journal's seed, or a
                random one.
            record: Called with every event.
            journal: A file that keeps every event. What the player returns is on disk by then.
            trust: For a policy file with a class of your own: the class, or the Python file that has it.
        """
        self.playable = as_playable(policy, trust)
        self.policy, self._params = self.playable.policy, self.playable.params
        self.record = record
        self.journal: Journal | None = None
        self._lock = turns.new_lock(self)
        self._turn: AbstractContextManager[Any] = self._lock  # for methods that change the player
        self.seed_given = seed is not None
        self.reseed(secrets.randbits(SEED_BITS) if seed is None else seed)
        self._arms = self.policy.arms  # without added ones
        self._active = list(range(self._arms))  # numbers of the arms in the policy's state, in its order
        self.arms_ever = self._arms
        self._fresh = list(self._active) if self.policy.opens else []  # arms that must be tried first
        self._decisions = 0
        self.numbered = 0  # decisions whose id is their number
        self._open: dict[str, Event] = {}
        self._waiting: Counter[int] = Counter()  # pulls of added arms without a reward so far
        self._finished: set[str] = set()
        self._p: np.ndarray | None = None
        self._without: dict[bytes, np.ndarray] = {}
        if journal is not None:
            self.journal = Journal(Path(journal), self)
            self._turn = turns.Turn(self._lock, self.journal)

    def reseed(self, seed: int) -> None:
        """Sets the seed of a player that has made no decision yet."""
        self.seed = events.check_count("seed", seed)
        self._bits = np.random.PCG64(self.seed)
        self.drawn = 0
        self.rounds = 0  # with observed rewards
        self._policy = self.policy  # for the current number of arms
        self._state = self.playable.begin(self._draw())

    def close(self) -> None:
        """Closes the journal, if there is one. After that the player makes no more decisions."""
        if self.journal is not None:
            self.journal.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise InputError("a player cannot be copied, or it would repeat its draws: use state and restore")

    def disown(self) -> None:
        """In a fork: leaves the test to the parent process."""
        self._lock = self._turn = turns.Refusal("player")

    @property
    def arms(self) -> tuple[int, ...]:
        """Numbers of the arms that can be pulled."""
        with self._lock:
            return tuple(self._active)

    @property
    def open(self) -> tuple[str, ...]:
        """Ids of the decisions that wait for their rewards, oldest first."""
        with self._lock:
            return tuple(self._open)

    def waits(self, id: Any) -> bool:
        """Whether the decision with this id waits for its reward."""
        return isinstance(id, str) and id in self._open

    def finished(self, id: Any) -> bool:
        """Whether the decision with this id has its reward."""
        if self.waits(id) or not events.is_id(id):
            return False
        return id in self._finished or 0 < events.number_of(id) <= self.numbered

    def waiting(self, id: Any) -> Event:
        """The decision with this id, which must be waiting for its reward."""
        if not self.waits(id):
            if self.finished(id):
                raise InputError(f"the decision {shown(id)} has its reward already")
            raise InputError(f"there is no decision {shown(id)}")
        return self._open[id]

    def probabilities(self) -> np.ndarray:
        """Probability of each arm in the next decision, by number; 0 for retired arms."""
        with self._lock:
            return self._spread(self._current())

    def recommend(self) -> int:
        """The arm to stay with if the test ended now."""
        with self._lock:
            return self._active[int(self._policy.recommend(self._params, self._state))]

    def select(self, id: str | None = None) -> Decision:
        """Chooses an arm. With an `id` that waits for its reward, returns that decision again."""
        with self._turn:
            if id is not None and self.waits(id):
                event = self._open[id]
                if "arms" in event:
                    raise InputError(f"{shown(id)} is a batch")
                return Decision(event["arm"], id, event["p"])
            id = self._new_id(id)
            p = self._current()
            place = self._choose(p)
            arm, share = self._active[place], float(p[place])
            self._apply({"op": "select", "id": id, "arm": arm, "p": share, "drawn": self.drawn})
            return Decision(arm, id, share)

    def select_many(self, count: int, id: str | None = None) -> Batch:
        """Distributes the next `count` pulls over the arms; their rewards come together."""
        if not self.policy.batches:
            raise InputError(f"{self.policy.name} must observe each reward before the next: no batches")
        count = whole("count", count)
        with self._turn:
            if id is not None and self.waits(id):
                event = self._open[id]
                if sum(event.get("arms", [])) != count:
                    raise InputError(f"{shown(id)} waits for its reward, and is not a batch of {count}")
                return Batch(event["arms"], id, event["p"])
            id = self._new_id(id)
            p = self._shares(count)  # no arm has to be first: a batch has room for all
            self._draw()
            draws = np.random.default_rng([self.seed, self.drawn])  # the batch's own stream
            pulls = self._spread(draws.multinomial(count, p / p.sum())).astype(int).tolist()
            shares = self._spread(p).tolist()
            self._apply({"op": "select", "id": id, "arms": pulls, "p": shares, "drawn": self.drawn})
            return Batch(pulls, id, shares)

    def update(self, decision: "Decision | str | int", reward: float) -> None:
        """Observes the reward of a decision, given as it was returned or by its id.

        The number of an arm stands for the oldest decision for it that waits for a reward.
        """
        with self._turn:
            id = self._which(decision)
            if "arms" in self.waiting(id):
                raise InputError(f"{shown(id)} is a batch: update_many takes its sums of rewards")
            observed = reward = events.check_reward(self.policy, reward)
            if self.policy.binary and 0 < reward < 1:
                observed = float(self._draw() < reward)
            self._apply(
                {"op": "update", "id": id, "reward": reward, "heard": observed, "drawn": self.drawn}
            )

    def update_many(self, batch: "Batch | str", sums: "Sequence[int] | np.ndarray") -> None:
        """Observes the rewards of a batch: how many of each arm's pulls had the reward 1, not 0."""
        with self._turn:
            id = batch.id if isinstance(batch, Batch | Decision) else batch
            event = self.waiting(id)
            if "arms" not in event:
                raise InputError(f"{shown(id)} is one decision, not a batch: update takes its reward")
            found = events.check_sums(event, sums.tolist() if isinstance(sums, np.ndarray) else sums)
            self._apply({"op": "update", "id": id, "sums": found, "drawn": self.drawn})

    def add_arm(self, arm: int | None = None) -> int:
        """Adds an arm that nothing is known about, and returns its number.

        With `arm`, its number, the call can be repeated: no arm is added twice.
        """
        self.need_flexible("added")
        with self._turn:
            if arm is not None and whole("arm", arm, least=self.policy.arms) < self.arms_ever:
                return int(arm)
            new = self.arms_ever
            if arm not in (None, new):
                raise InputError(f"the next arm has the number {new}, not {shown(arm)}")
            number_of_arms(new + 1)
            self._apply({"op": "add", "arm": new})
            return new

    def retire(self, arm: int) -> None:
        """Stops pulling an arm. Its late rewards are accepted and ignored."""
        self.need_flexible("retired")
        with self._turn:
            if not _is_whole(arm) or arm not in self._active:
                arms = ", ".join(map(str, self._active))
                raise InputError(f"there is no arm {shown(arm)} to retire: the arms are {arms}")
            if len(self._active) == 1:
                raise InputError(f"arm {arm} is the last one, and cannot be retired")
            self._apply({"op": "retire", "arm": int(arm)})

    def apply(self, event: Event) -> None:
        """Repeats a recorded event, which must have been checked."""
        with self._turn:
            self._apply(event)

    def _apply(self, event: Event) -> None:
        op = event["op"]
        if op == "select":
            self._decide(event)
        elif op == "update":
            self._observe(event)
        elif op == "add":
            self._state = self._policy.add_arm(self._state)
            self._active.append(event["arm"])
            self._fresh += [event["arm"]] if self.policy.opens else []
            self.arms_ever = event["arm"] + 1
        else:
            place = self._active.index(event["arm"])
            self._state = self._policy.retire_arm(self._state, place)
            del self._active[place]
            self._fresh = [arm for arm in self._fresh if arm != event["arm"]]
        if op in ("add", "retire"):
            self._policy = self.playable.sized(len(self._active))
            self._p = None
        self._advance(event.get("drawn", self.drawn))
        if self.journal is not None:
            self.journal.append(event)
        if self.record is not None:
            self.record(event)

    def _decide(self, event: Event) -> None:
        self._open[event["id"]] = event
        self._decisions += 1
        if events.number_of(event["id"]):
            self.numbered += 1
        state = self._policy.decided(self._state)
        if state is not self._state:
            self._state, self._p = state, None
        if self.arms_ever > self._arms:
            self._waiting.update(self._pulls_of_added(event))
        if self._fresh:
            tried = np.flatnonzero(event["arms"]) if "arms" in event else [event["arm"]]
            self._fresh = [arm for arm in self._fresh if arm not in tried]

    def _observe(self, event: Event) -> None:
        id = event["id"]
        decision = self._open.pop(id)
        if not events.number_of(id):
            self._finished.add(id)
        if self.arms_ever > self._arms:
            self._waiting.subtract(self._pulls_of_added(decision))
        policy, params, missed = self._policy, self._params, 0
        if "arms" in decision:
            by_number = decision["arms"], event["sums"], decision["p"]
            pulls, sums, p = map(self._known, by_number)
            self._state = policy.update_many_late(params, self._state, pulls, sums, p)
            self.rounds += sum(decision["arms"])
            missed = sum(decision["arms"]) - int(pulls.sum())
        else:
            self.rounds += 1
            if decision["arm"] in self._active:
                place = self._active.index(decision["arm"])
                self._state = policy.update_late(params, self._state, place, event["heard"], decision["p"])
            else:
                missed = 1
        if missed:  # rewards of arms that were retired meanwhile
            self._state = policy.missed(self._state, missed)
        self._p = None

    def state(self) -> dict[str, Any]:
        """Everything the player knows, as JSON can hold it."""
        with self._lock:
            return {
                "format": "gradband-state",
                "version": events.VERSION,
                "policy": self.policy.name,
                "fingerprint": self.playable.fingerprint,
                "seed": self.seed,
                "drawn": self.drawn,
                "decisions": self._decisions,
                "numbered": self.numbered,
                "arms": self.arms_ever,
                "active": list(self._active),
                "fresh": list(self._fresh),
                "rounds": self.rounds,
                "memory": {name: np.asarray(leaf).tolist() for name, leaf in flatten(self._state).items()},
                "open": copy.deepcopy(list(self._open.values())),
                "finished": sorted(self._finished),
            }

    def restore(self, state: dict[str, Any]) -> None:
        """Resumes from what `state` returned, in this or another player of the same policy.

        The player continues as that one would have: with the same draws, none of them repeated.
        """
        with self._turn:
            if self.record is not None or self.journal is not None:
                raise InputError(
                    "a player with a record or a journal cannot be restored: it would have a gap"
                )
            found = events.check_state(self, state)
            self.reseed(found["seed"])
            self._advance(found["drawn"])
            self._state, self.rounds = found["memory"], found["rounds"]
            self._active, self._fresh = list(found["active"]), list(found["fresh"])
            self._policy = self.playable.sized(len(self._active))
            self.arms_ever, self._decisions = found["arms"], found["decisions"]
            self.numbered = found["numbered"]
            self._open = {event["id"]: event for event in copy.deepcopy(found["open"])}
            self._waiting = Counter()
            for event in self._open.values():
                self._waiting.update(self._pulls_of_added(event))
            self._finished = set(found["finished"])
            self._p = None

    def _current(self) -> np.ndarray:
        """Probabilities of the active arms for one decision."""
        if self._fresh:
            p = np.zeros(len(self._active))
            p[self._active.index(self._fresh[0])] = 1.0
            return p
        return self._shares(1)

    def _shares(self, count: int) -> np.ndarray:
        """Probabilities for `count` decisions in a row without rewards, within the limits of new arms."""
        if self.arms_ever == self._arms:
            return self._probabilities()
        p = self._probabilities()
        first = bisect_left(self._active, self._arms)  # arms are in the order in which they came
        waiting = np.array([self._waiting[arm] for arm in self._active[first:]])
        limit = np.ones(len(p))
        policy: Any = self._policy
        observed = policy.counts(self._state).pulls[first:]
        limit[first:] = newcomers.limits(observed, waiting, count, len(p))
        return newcomers.within(p, limit, self._others)

    def _probabilities(self) -> np.ndarray:
        """The policy's probabilities, computed once until the next reward."""
        if self._p is None:
            if self.policy.bounded and self.rounds >= self.policy.horizon:
                raise InputError(f"{self.policy.name} is for {self.policy.horizon} rounds, which are over")
            self._p = self._checked(self._policy, self._state)
            self._without.clear()
        return self._p

    def _others(self, among: np.ndarray) -> np.ndarray:
        """The policy's probabilities if there were only these active arms, given as a mask [K]."""
        key = among.tobytes()
        if key not in self._without:
            policy, state = self._policy, self._state
            for place in np.flatnonzero(~among)[::-1].tolist():
                state = policy.retire_arm(state, place)
                policy = self.playable.sized(policy.arms - 1)
            self._without[key] = self._checked(policy, state)
        return self._without[key]

    def _checked(self, policy: Policy, state: Any) -> np.ndarray:
        """The policy's probabilities, which must sum to 1."""
        p: np.ndarray = policy.probabilities(self._params, state)
        if not abs(p.sum() - 1) < 1e-6:
            raise InputError(
                f"the probabilities of {policy.name} do not sum to 1: its numbers are too large"
            )
        return p

    def _pulls_of_added(self, decision: Event) -> dict[int, int]:
        """How often a decision or a batch pulls each added arm."""
        if "arm" in decision:
            return {decision["arm"]: 1} if decision["arm"] >= self._arms else {}
        return dict(enumerate(decision["arms"][self._arms :], self._arms))

    def _spread(self, values: np.ndarray) -> np.ndarray:
        """Values of the active arms, by number, with 0 for retired arms."""
        if len(values) == self.arms_ever:
            return values.copy()
        spread = np.zeros(self.arms_ever)
        spread[self._active] = values
        return spread

    def _known(self, values: Sequence[float]) -> np.ndarray:
        """Values by number, for the active arms; 0 for arms that were added later."""
        return np.array([values[arm] if arm < len(values) else 0.0 for arm in self._active])

    def _draw(self) -> float:
        """A uniform on [0, 1). NumPy promises that these bits never change."""
        self.drawn += 1
        return float(self._bits.random_raw() >> 11) * 2.0**-53

    def _advance(self, drawn: int) -> None:
        """Skips draws until this many were made."""
        if drawn > self.drawn:
            self._bits.advance(drawn - self.drawn)
            self.drawn = drawn

    def _choose(self, p: np.ndarray) -> int:
        edges = p.cumsum()
        place = int(edges.searchsorted(self._draw() * edges[-1], "right"))
        return place if place < len(p) else int(p.nonzero()[0][-1])

    def _new_id(self, id: str | None) -> str:
        if id is None:
            return f"#{self.numbered + 1}"
        if not events.is_id(id) or id.startswith("#"):
            raise InputError(
                f"an id must be a string of 1 to {events.LONGEST_ID} characters that does not start with "
                f"#, not {shown(id)}"
            )
        if id in self._finished:
            raise InputError(f"the decision {shown(id)} has its reward, and cannot be made again")
        return id

    def _which(self, decision: Any) -> str:
        if isinstance(decision, Decision | Batch):
            return decision.id
        if isinstance(decision, str):
            return decision
        if _is_whole(decision):
            for id, event in self._open.items():
                if event.get("arm") == decision:
                    return id
        raise InputError(f"no decision for arm {shown(decision)} waits for its reward")

    def need_flexible(self, done: str) -> None:
        """Raises an error unless the policy can play with any number of arms."""
        if not self.policy.flexible:
            raise InputError(f"{self.policy.name} is for {self.policy.arms} arms: none can be {done}")


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral)
