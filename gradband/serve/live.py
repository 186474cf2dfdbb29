"""A test in the memory of a worker: its row in the database, and the player that its events lead to."""

import json
import time
from collections import Counter
from functools import partial
from typing import Any

import orjson

from gradband.play.player import Player
from gradband.play.settings import Settings
from gradband.serve.library import Library
from gradband.serve.store import Store

COLUMNS = "id, key, spec, status, policy, arms, version, rewards"
SNAPSHOT_AFTER = 20_000  # events, or twice as many as the last snapshot had entries
SNAPSHOT_AT_THE_END = 1000


class LiveTest:
    """A test at some version.

    `events` wait to be written; None stands for a change that is recorded elsewhere, and has a number too.
    """

    def __init__(self, row: Any, player: Player) -> None:
        self.id, self.key, self.spec = row[0], row[1], json.loads(row[2])
        self.player = player
        self.version = 0
        self.snapshot = 0  # version of the last one
        self.snapshot_size = 0
        self.events: list[dict[str, Any] | None] = []
        self.read_row(row)

    def read_row(self, row: Any) -> None:
        """Takes over what others may have changed."""
        self.status, self.policy, self.rewards = row[3], row[4], row[7]

    @property
    def arms(self) -> list[dict[str, Any]]:
        """All arms by number, retired ones included."""
        known = self.player.known_arms
        active = set(known.active)
        return [
            {"label": label, "retired": number not in active} for number, label in enumerate(known.labels)
        ]

    @property
    def waiting(self) -> int:
        """How many decisions wait for their rewards."""
        return len(self.player.pending.open)

    @property
    def due(self) -> float | None:
        """When the next decision without a reward gets the default, in seconds since 1970."""
        wait = self.player.settings.wait_seconds
        oldest = next(iter(self.player.pending.open.values()), None)
        return None if wait is None or oldest is None else oldest["t"] + wait

    def catch_up(self, store: Store, version: int) -> None:
        """Applies the events that other workers wrote."""
        self.events.clear()
        rows = store.execute(
            "SELECT body FROM events WHERE test = ? AND seq > ? ORDER BY seq", (self.id, self.version)
        )
        self.player.record = None
        for (body,) in rows:
            self.player.apply(orjson.loads(body))
        self.version = version
        self.player.record = self.events.append

    def write(self, store: Store) -> Counter[str]:
        """Writes the events since the last time, and the row; returns how many there were of each kind."""
        kinds = Counter(event["op"] for event in self.events if event is not None)
        rows = [
            (self.id, self.version + place, orjson.dumps(event).decode())
            for place, event in enumerate(self.events, 1)
            if event is not None
        ]
        if rows:
            store.insert_events(rows)
        self.version += len(self.events)
        self.events.clear()
        store.execute(
            "UPDATE tests SET status = ?, policy = ?, arms = ?, version = ?, decisions = ?, rewards = ?, "
            "waiting = ?, due = ?, changed = ? WHERE id = ?",
            (
                self.status,
                self.policy,
                orjson.dumps(self.arms).decode(),
                self.version,
                self.player.pending.made,
                self.rewards,
                self.waiting,
                self.due,
                time.time(),
                self.id,
            ),
        )
        if self.version - self.snapshot >= max(SNAPSHOT_AFTER, 2 * self.snapshot_size):
            self.write_snapshot(store)
        return kinds

    def write_snapshot(self, store: Store) -> None:
        """Stores the player's state, from which a restart needs only the later events."""
        state = self.player.state()
        self.snapshot_size = len(state["open"]) + len(state["finished"]) + len(state["units"])
        self.snapshot = self.version
        store.execute(
            "INSERT INTO snapshots (test, seq, state) VALUES (?, ?, ?) "
            "ON CONFLICT (test) DO UPDATE SET seq = excluded.seq, state = excluded.state",
            (self.id, self.version, orjson.dumps(state).decode()),
        )


def load_test(store: Store, library: Library, row: Any) -> LiveTest:
    """A test as its last snapshot and the events since then leave it."""
    spec = json.loads(row[2])
    player = Player(
        library.find(store, spec["policy"]),
        spec["seed"],
        settings=Settings.from_dict(spec["settings"]),
        policies=partial(library.find, store),
    )
    test = LiveTest(row, player)
    found = store.one("SELECT seq, state FROM snapshots WHERE test = ?", (test.id,))
    if found is not None:
        player.restore(orjson.loads(found[1]))
        test.version = test.snapshot = found[0]
    test.catch_up(store, row[6])
    return test
