"""Keeps track of decisions: which wait for rewards, which are finished, and which unit got which."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

from gradband.core.errors import InputError, shown
from gradband.play.arms import is_whole
from gradband.play.decision import Batch, Decision

Event = dict[str, Any]
LONGEST_ID = 256


class Pending:
    """Decisions by id. Of finished decisions, and of units, only the latest `window` are remembered.

    A decision that missed its deadline is finished with its default. What the policy observed is kept in
    the window, in case the reward comes after all.
    """

    def __init__(self, window: int, wait: float | None) -> None:
        self.window, self.wait = window, wait
        self.made = 0  # decisions
        self.numbered = 0  # of them, those whose id is their number
        self.open: dict[str, Event] = {}
        self.closed: OrderedDict[str, Event | None] = OrderedDict()  # with the decision if it expired
        self.units: OrderedDict[str, Event] = OrderedDict()
        self._queue: deque[tuple[float, str]] = deque()  # open decisions by age, and some that were open

    def add(self, decision: Event) -> None:
        id = decision["id"]
        self.open[id] = decision
        self.made += 1
        if id[0] == "#":
            self.numbered += 1
        if self.wait is not None:
            self._queue.append((decision["t"], id))
        if "unit" in decision:
            self.remember_unit(decision["unit"], decision)

    def remember_unit(self, unit: str, decision: Event) -> None:
        self.units.pop(unit, None)
        if "x" in decision:  # features are kept no longer than their decision
            decision = {key: decision[key] for key in ("id", "arm", "p")}
        self.units[unit] = decision
        if len(self.units) > self.window:
            self.units.popitem(last=False)

    def finish(self, id: str) -> Event:
        """Closes a decision that has its reward, and returns it."""
        decision = self.open.pop(id)
        if id[0] != "#":  # the others are known by their number
            self._close(id, None)
        return decision

    def expire(self, event: Event) -> Event:
        """Closes a decision that missed its deadline, and returns it."""
        decision = self.open.pop(event["id"])
        what = "sums" if "sums" in event else "heard"
        self._close(event["id"], {**decision, what: event[what]})
        return decision

    def finish_late(self, id: str) -> Event:
        """Closes an expired decision whose reward came after all, and returns it."""
        expired = self.closed[id]
        assert expired is not None
        if id[0] == "#":
            del self.closed[id]
        else:
            self.closed[id] = None
        return expired

    def _close(self, id: str, expired: Event | None) -> None:
        self.closed[id] = expired
        if len(self.closed) > self.window:
            self.closed.popitem(last=False)

    def due(self, now: float) -> Iterator[Event]:
        """Decisions past their deadline, oldest first; each must be closed before the next."""
        if self.wait is None:
            return
        while self._queue:
            t, id = self._queue[0]
            decision = self.open.get(id)
            if decision is not None and decision["t"] == t:
                if t + self.wait > now:
                    return
                yield decision
            self._queue.popleft()

    def waits(self, id: Any) -> bool:
        """Whether the decision with this id waits for its reward."""
        return isinstance(id, str) and id in self.open

    def expired(self, id: Any) -> bool:
        """Whether the decision with this id has its default reward, which may still be corrected."""
        return isinstance(id, str) and self.closed.get(id) is not None

    def finished(self, id: Any) -> bool:
        """Whether the decision with this id has its reward or its default."""
        if self.waits(id) or not is_id(id):
            return False
        return id in self.closed or 0 < number_of(id) <= self.numbered

    def waiting(self, id: Any) -> Event:
        """The decision with this id, which must be waiting for its reward."""
        if isinstance(id, str) and id in self.open:
            return self.open[id]
        if self.finished(id):
            raise InputError(f"the decision {shown(id)} has its reward already{self._hint(id)}")
        raise InputError(f"there is no decision {shown(id)}")

    def _hint(self, id: str) -> str:
        forgotten = self.wait is not None and id not in self.closed
        return f", or got its default and left the window of {self.window}" if forgotten else ""

    def find(self, id: Any, unit: Any, active: list[int]) -> Event | None:
        """The decision that this id or this unit has, if any; not if its arm is no longer active."""
        if unit is not None and not is_id(unit):
            raise InputError(f"a unit must be a string of 1 to {LONGEST_ID} characters, not {shown(unit)}")
        made = self.open.get(id) if isinstance(id, str) else None
        if made is not None:
            if "arms" in made:
                raise InputError(f"{shown(id)} is a batch")
            if unit is not None and made.get("unit") != unit:
                raise InputError(f"the decision {shown(id)} was not made for the unit {shown(unit)}")
            return made
        had = self.units.get(unit) if unit is not None else None
        return had if had is not None and had["arm"] in active else None

    def new_id(self, id: Any) -> str:
        """The id of a new decision: the one given, if it can be, or the next number."""
        if id is None:
            return f"#{self.numbered + 1}"
        if not is_id(id) or id.startswith("#"):
            raise InputError(
                f"an id must be a string of 1 to {LONGEST_ID} characters that does not start with #, not "
                f"{shown(id)}"
            )
        if id in self.closed:
            raise InputError(f"the decision {shown(id)} has its reward, and cannot be made again")
        return id

    def find_rewarded(self, given: Any) -> tuple[str, Event, bool]:
        """The id of the decision that gets a reward, the decision, and whether the reward is late."""
        id = given.id if isinstance(given, Decision | Batch) else given
        if not isinstance(id, str):
            id = self._oldest(id)
        expired = self.closed.get(id)
        return (id, expired, True) if expired is not None else (id, self.waiting(id), False)

    def _oldest(self, arm: Any) -> str:
        """The id of the oldest decision for this arm that waits for its reward."""
        if is_whole(arm):
            for id, event in self.open.items():
                if event.get("arm") == arm:
                    return id
        raise InputError(f"no decision for arm {shown(arm)} waits for its reward")

    def load(self, state: dict[str, Any]) -> None:
        """Loads a checked state."""
        self.made, self.numbered = state["decisions"], state["numbered"]
        self.open = {event["id"]: _copied(event) for event in state["open"]}
        waiting = self.open.values() if self.wait is not None else ()
        self._queue = deque((event["t"], event["id"]) for event in waiting)
        last = state["finished"][-self.window :]
        entries = [(e, None) if isinstance(e, str) else (e["id"], _copied(e)) for e in last]
        self.closed = OrderedDict(entries)
        self.units = OrderedDict()
        for unit, id, arm, p in state["units"][-self.window :]:
            self.units[unit] = {"id": id, "arm": arm, "p": p}

    def as_dict(self) -> dict[str, Any]:
        """The same, ready for JSON."""
        return {
            "decisions": self.made,
            "numbered": self.numbered,
            "open": [_copied(event) for event in self.open.values()],
            "finished": [id if event is None else _copied(event) for id, event in self.closed.items()],
            "units": [[unit, e["id"], e["arm"], e["p"]] for unit, e in self.units.items()],
        }


def _copied(event: Event) -> Event:
    return {key: list(value) if isinstance(value, list) else value for key, value in event.items()}


def is_id(id: Any) -> bool:
    return isinstance(id, str) and 0 < len(id) <= LONGEST_ID


def number_of(id: str) -> int:
    """The number in an id such as #17, or 0.

    >>> number_of("#17"), number_of("#017"), number_of("visitor 17")
    (17, 0, 0)
    """
    if id[0] != "#":
        return 0
    digits = id[1:]
    return int(digits) if digits.isascii() and digits.isdecimal() and digits[0] != "0" else 0
