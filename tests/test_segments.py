"""A journal in several files: snapshots, rotation, and what a crash at any moment leaves."""

import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import gradband as gb
from gradband.play import journal_lines, segments
from gradband.play.journal import Journal
from gradband.play.player import Player

pytestmark = pytest.mark.brief
NAMES = ["red", "blue", "green", "black"]


@pytest.fixture(scope="module")
def softelim():
    return Player(gb.policies.SoftElim(theta=0.3).bind(4, 10_000)).playable


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        self.now += 1
        return self.now


def act(player, rng):
    """Does something that a player can do, of all kinds."""
    kind = rng.integers(12)
    if kind < 4:
        player.select(
            f"d{rng.integers(10**9)}" if kind % 2 else None,
            unit=f"u{rng.integers(20)}" if kind < 2 else None,
        )
    elif kind == 4:
        player.select_many(int(rng.integers(1, 9)))
    elif kind == 5 and len(player.arms) < 7:
        player.add_arm(f"new {player.known_arms.ever}" if rng.random() < 0.5 else None)
    elif kind == 6 and len(player.arms) > 3:
        player.retire(int(rng.choice(player.arms)))
    else:
        expired = [made for made in player.pending.closed.values() if made is not None]
        late = kind == 7 and expired
        made = [*(expired if late else player.pending.open.values())]
        if made:
            one = made[rng.integers(len(made))]
            if "arms" in one:
                player.update_many(one["id"], [int(rng.integers(pulls + 1)) for pulls in one["arms"]])
            else:
                player.update(one["id"], round(float(rng.random()), 2))


def given(**more):
    return {"clock": Clock(), "wait": 9, "default": 0.0, "window": 15, "arms": NAMES, "floor": 0.02} | more


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_a_restart_knows_it(softelim, tmp_path, seed):
    """Random histories with all kinds of events, compacted at random: by journal, by state, by events."""
    path, rng, events = tmp_path / "journal", np.random.default_rng(seed), []
    with Player(
        softelim, seed, events.append, path, compact_every=int(rng.integers(5, 40)), **given()
    ) as player:
        for _ in range(250):
            act(player, rng)
        kinds = {(event["op"], event.get("late", False)) for event in events}
        state, total = player.state(), player.journal.events
    assert kinds >= {
        ("select", False),
        ("update", False),
        ("update", True),
        ("expire", False),
        ("add", False),
    }
    assert total == len(events)
    assert len(segments.older(path)) == player.journal.segment - 1 > 3
    with Player(softelim, journal=path, clock=Clock()) as again:
        assert again.state() == state
        assert (again.journal.events, again.journal.segment) == (total, player.journal.segment)
    other = Player(softelim, clock=Clock())
    other.restore(json.loads(json.dumps(state)))
    assert other.state() == state
    replayed = Player(softelim, seed, **given())
    for event in json.loads(json.dumps(events)):
        gb_check(replayed, event)
    assert replayed.state() == state
    told = [event for file in (*segments.older(path), path) for event in read(file)]
    assert told == json.loads(json.dumps(events))


def gb_check(player, event):
    from gradband.play.events import check_event

    check_event(player, event)
    player.apply(event)


def read(file):
    """The events of a file, without its header and snapshot."""
    checksum = 0
    for number, line in enumerate(file.read_bytes().splitlines()):
        event, checksum = journal_lines.check_line(line, checksum)
        if number and event["op"] not in ("snapshot", "part"):
            yield event


def played(softelim, path, count=30, **more):
    with Player(softelim, 0, journal=path, **given(**more)) as player:
        for i in range(count):
            arm = player.select(f"d{i}", unit=f"u{i}")
            if i % 3 == 0:
                player.update(arm, 1)
        return player.state()


def test_older_files_are_kept_as_long_as_they_may_be(softelim, tmp_path):
    for number, (limits, left) in enumerate(
        [
            ({}, 5),
            ({"keep_segments": 2}, 2),
            ({"keep_segments": 0}, 0),
            ({"keep_bytes": 20_000}, 2),
            ({"compact_every": None}, 0),
        ]
    ):
        path = tmp_path / f"{number}.jsonl"
        state = played(softelim, path, **({"compact_every": 10} | limits))
        found = segments.older(path)
        if "keep_bytes" in limits:
            assert 0 < sum(file.stat().st_size for file in found) <= 20_000
        else:
            assert len(found) == left or not limits
        with Player(softelim, journal=path, keep_segments=1) as again:
            assert again.state() == state


def test_a_restart_counts_events_from_the_first(softelim, tmp_path):
    path = tmp_path / "journal"
    played(softelim, path, 6, compact_every=None)
    with Player(softelim, journal=path) as again:
        assert again.journal.events == len(list(read(path))) == 8


class Stopped(BaseException):
    """The process ended here."""


@pytest.mark.parametrize("step", range(12))
@pytest.mark.parametrize("kind", [OSError, Stopped])
def test_a_stop_at_any_step_of_a_new_file_loses_nothing(softelim, tmp_path, monkeypatch, step, kind):
    """Each call that touches the disk fails in turn, or is the last one before the process is gone."""
    path, calls = tmp_path / "journal.jsonl", []
    player = Player(softelim, 0, journal=path, **given())
    for i in range(20):
        player.update(player.select(f"d{i}"), 1)
    state = player.state()

    def failing(name, function):
        def call(*words, **more):
            calls.append(name)
            if len(calls) == step + 1:
                if name == "write" and kind is OSError:
                    function(words[0], words[1][:40])  # half of it
                raise kind(28, "No space left") if kind is OSError else kind
            if len(calls) > step and kind is Stopped:
                raise kind  # nothing is done by a process that is gone
            return function(*words, **more)

        return call

    with monkeypatch.context() as patch:
        for name in ("open", "write", "fsync", "fdatasync", "link", "replace", "unlink"):
            patch.setattr(os, name, failing(name, getattr(os, name)))
        try:
            player.journal.compact()
            done = True
        except (gb.InputError, OSError, RuntimeError, Stopped):
            done = False
    if step >= 9:
        assert done
        assert calls[:3] == ["open", "write", "fsync"]
        assert "replace" in calls
    if kind is OSError and not player.journal.broken:
        player.update(player.select("after"), 1)  # the player goes on
        state = player.state()
    elif not done:
        assert kind is Stopped or player.journal.broken
    player.close()
    with Player(softelim, journal=path, clock=Clock()) as again:
        assert again.state() == state
        again.journal.compact()
        assert again.journal.segment == len(segments.older(path)) + 1
    with Player(softelim, journal=path, clock=Clock()) as again:
        assert again.state() == state
    assert sorted(os.listdir(tmp_path))[0] == "journal.jsonl"  # and nothing unfinished


def test_a_disk_without_room_for_a_snapshot_is_told(softelim, tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    with Player(softelim, 0, journal=path, compact_every=10, **given()) as player:
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", lambda *words: (_ for _ in ()).throw(OSError(1, "Not permitted")))
            with pytest.warns(
                UserWarning, match="cannot start a new file .* continues in its current file"
            ):
                list(map(player.select, map(str, range(12))))
        assert player.journal.segment == 1
        for i in range(12, 30):
            player.select(f"d{i}")
        assert player.journal.segment > 1
        state = player.state()
    with Player(softelim, journal=path, clock=Clock()) as again:
        assert again.state() == state


def test_damage_in_a_snapshot_is_refused(softelim, tmp_path):
    path = tmp_path / "journal.jsonl"
    played(softelim, path, compact_every=40)
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    snapshot = sum(map(len, lines[: 2 + json.loads(lines[1])["parts"]]))
    rng = np.random.default_rng(0)
    for _ in range(200):
        where = int(rng.integers(len(data) - 1))
        changed = bytearray(data)
        changed[where] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        with pytest.raises(gb.InputError, match=r"journal.jsonl, line \d+:"):
            Player(softelim, journal=path)
        assert path.read_bytes() == bytes(changed)
    for size in (*rng.integers(len(lines[0]), snapshot, 40).tolist(), len(lines[0]), snapshot - 1):
        path.write_bytes(data[:size])
        with pytest.raises(gb.InputError, match="snapshot is incomplete"):
            Player(softelim, journal=path)
    for changed in (
        lines[:1] + lines[2:],
        lines[:2] + lines[3:],
        lines[:2] + [lines[3], lines[2]] + lines[4:],
    ):
        path.write_bytes(b"".join(changed))
        with pytest.raises(gb.InputError, match="line [23]: this line is damaged"):
            Player(softelim, journal=path)


def test_a_new_file_begins_when_it_is_due(softelim, tmp_path):
    path = tmp_path / "journal.jsonl"
    with Player(softelim, journal=path, compact_every=5) as player:
        files = [player.select() is not None and len(segments.older(path)) for _ in range(11)]
    assert files == [0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2]


def test_a_journal_is_written_by_its_owner_and_run_by_nobody(tmp_path):
    """Its files have the same permissions from the first to the last, also those changed by hand."""
    path = tmp_path / "journal.jsonl"
    mask = os.umask(0)
    try:
        file = segments.open_current(path)
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o640)
    os.close(segments.start_next(path, file, 1, b"next"))
    os.close(file)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_was_replaced_while_it_was_opened_is_closed(tmp_path, monkeypatch):
    """Another player starts a new file between the opening of the old one and the lock on it."""
    path, lock, opened = tmp_path / "journal.jsonl", segments._lock, []

    def replace_and_lock(file, name):
        opened.append(file)
        if len(opened) == 1:
            (tmp_path / "next").write_text("next")
            os.replace(tmp_path / "next", path)
            os.fstat(opened[0])  # open until now
        lock(file, name)

    monkeypatch.setattr(segments, "_lock", replace_and_lock)
    closed, close = [], os.close
    monkeypatch.setattr(os, "close", lambda file: (closed.append(file), close(file)))
    current = segments.open_current(path)
    assert os.read(current, 9) == b"next"
    assert closed == opened[:1]
    os.close(current)


def forge(path, lines):
    path.write_bytes(journal_lines.join(lines)[0])


@pytest.mark.parametrize(
    "field", ["seed", "labels", "units", "finished", "settings", "first", "t", "open", "memory"]
)
def test_snapshots_that_can_not_be_are_refused(softelim, tmp_path, field):
    path = tmp_path / "journal.jsonl"
    state = played(softelim, path)
    player = Player(softelim, 0, **given())
    player.restore(state)
    header = journal_lines.header(player, 2, 40)
    forge(path, [header, *journal_lines.snapshot(state)])
    with Player(softelim, journal=path, clock=Clock()) as again:
        assert again.state() == state
    wrong = {
        "seed": [1, -1, "0", None],
        "labels": [["a"], None, ["a", "a", "b", "c"], [1, 2, 3, 4]],
        "units": [[["a"]], [["a", "b", 9, 0.5]], [["a", "b", 0, 2]], [["a", "b", 0, 0.5]] * 2, [3]],
        "finished": [
            ["#1"],
            [{"id": "x"}],
            [{**state["open"][0], "heard": "x"}],
            ["a", "a"],
            [{**state["open"][0], "heard": 1.0}],
        ],
        "settings": [None, {"wait": -1}, {"more": 1}, {"arms": ["a"]}, {"floor": 0.5}],
        "first": [9, 0, -1, None],
        "t": ["now", -1, None, 1e300],
        "open": [
            [{**state["open"][0], "t": "x"}],
            [{**state["open"][0], "ps": [1]}],
            [{**state["open"][0], "unit": 3}],
        ],
        "memory": [{}, None, {"pulls": [1, 2, 3, 4], "sums": [9, 9, 9]}],
    }
    for value in wrong[field]:
        forge(path, [header, *journal_lines.snapshot(state | {field: value})])
        with pytest.raises(gb.InputError, match="line \\d+:"):
            Player(softelim, journal=path)
    for lines in (
        [header],
        [header, {"op": "select"}],
        [header, {"op": "snapshot", "state": 3, "parts": 0}],
        [header, {"op": "snapshot", "state": {}, "parts": 1}, {"op": "part", "of": "seed", "entries": []}],
    ):
        forge(path, lines)
        with pytest.raises(gb.InputError, match="snapshot"):
            Player(softelim, journal=path)


@pytest.mark.parametrize(
    "changes",
    [
        {"first": 9},
        {"first": 10**9},
        {"segment": 0},
        {"segment": "1"},
        {"events": -1},
        {"settings": 3},
        {"version": 3},
    ],
)
def test_headers_that_can_not_be_are_refused(softelim, tmp_path, changes):
    path = tmp_path / "journal.jsonl"
    forge(path, [journal_lines.header(Player(softelim, 0), 1, 0) | changes])
    with pytest.raises(gb.InputError, match="line 1:"):
        Player(softelim, journal=path)


def test_a_journal_of_version_1_goes_on_as_one_of_version_2(softelim, tmp_path):
    path = tmp_path / "journal.jsonl"
    player = Player(softelim, 5)
    first = {
        "format": "gradband-journal",
        "version": 1,
        "policy": "softelim",
        "fingerprint": softelim.fingerprint,
        "seed": 5,
    }
    lines = [first]
    player.record = lambda event: lines.append({k: v for k, v in event.items() if k not in ("t", "ps")})
    for i in range(20):
        arm = player.select(f"d{i}" if i % 2 else None)
        if i < 15:
            player.update(arm, 1)
    player.add_arm()
    player.retire(0)
    forge(path, lines)
    data = path.read_bytes()
    assert b'"t"' not in data
    clock = Clock()
    with Player(softelim, journal=path, wait=100, clock=clock) as again:
        assert again.journal.events == 37
        assert [made["arm"] for made in again.state()["open"]] == [
            made["arm"] for made in player.state()["open"]
        ]
        assert again.state()["memory"] == player.state()["memory"]
        assert again.select() == player.select()
        clock.now += 200
        assert again.expire() == 6  # they began to wait when the journal was opened
        state = again.state()
    assert segments.older(path)[0].read_bytes() == data
    with Player(softelim, journal=path, clock=clock) as again:
        assert again.state() == state
    half = tmp_path / "half.jsonl"
    half.write_bytes(data[:60])  # a first line of version 1 that was cut off
    Player(softelim, journal=half).close()


def test_a_state_of_version_2_is_read(softelim):
    player = Player(softelim, 5)
    for i in range(9):
        arm = player.select(f"d{i}" if i % 2 else None)
        if i < 6:
            player.update(arm, 1)
    state = player.state()
    old = {
        key: value
        for key, value in state.items()
        if key not in ("settings", "t", "first", "labels", "units")
    }
    old |= {"version": 2, "open": [{k: v for k, v in e.items() if k != "t"} for e in state["open"]]}
    again = Player(softelim, clock=Clock(), wait=50)
    again.restore(json.loads(json.dumps(old)))
    assert again.state()["memory"] == state["memory"]
    assert (again.open, again.select()) == (player.open, player.select())


def test_settings_belong_to_the_journal(softelim, tmp_path):
    path = tmp_path / "journal.jsonl"
    state = played(softelim, path)
    for more in ({}, {"settings": None}, {"compact_every": 5}, given()):
        with Player(softelim, journal=path, **({"clock": Clock()} | more)) as again:
            assert again.state() == state
            assert again.settings.wait == 9
    with pytest.raises(
        gb.InputError, match=r"was started with wait = 9.0, not 10.0: give the same settings"
    ):
        Player(softelim, journal=path, **given(wait=10))


def test_after_a_swap_a_restart_needs_the_new_policy_alone(softelim, tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    ucb1 = Player(gb.policies.UCB1().bind(4, 100)).playable
    with Player(softelim, 0, journal=path) as player:
        for _ in range(9):
            player.update(player.select(), 1)
        player.swap(ucb1, "a better one")
        player.select("open")
        state = player.state()
    with Player(ucb1, journal=path) as again:
        assert again.state() == state
    with pytest.raises(gb.InputError, match="belongs to another policy"):
        Player(softelim, journal=path)
    with Player(softelim, journal=path, policies={ucb1.fingerprint: ucb1}.get) as again:
        assert again.state() == state
    named = tmp_path / "named"
    three = Player(gb.policies.ThompsonSampling().bind(3, 100)).playable
    with Player(softelim, 0, journal=named, arms=NAMES) as player:
        player.retire("blue")
        player.swap(three, "made for as many arms as are left")
        player.select()
        state = player.state()
    with Player(three, journal=named) as again:
        assert again.state() == state
    with Player(softelim, 0, journal=tmp_path / "other") as player:
        monkeypatch.setattr(Journal, "_compact_if_possible", lambda *given: None)  # it stopped before that
        player.swap(ucb1, "a better one")
        state = player.state()
    with pytest.raises(gb.InputError, match="line 2: the policy .* is needed here"):
        Player(softelim, journal=tmp_path / "other")
    with Player(softelim, journal=tmp_path / "other", policies={ucb1.fingerprint: ucb1}.get) as again:
        assert again.state() == state


def test_threads_share_a_journal_that_is_compacted_meanwhile(softelim, tmp_path):
    path = tmp_path / "journal.jsonl"
    with Player(softelim, 0, journal=path, compact_every=200, window=100) as player:

        def decide(thread):
            for i in range(150):
                player.update(player.select(f"{thread} {i}" if i % 2 else None), i % 2)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(decide, range(8)))
        state = player.state()
    events = [event for file in (*segments.older(path), path) for event in read(file)]
    assert len(events) == 2400
    assert len({event["id"] for event in events if event["op"] == "update"}) == 1200
    with Player(softelim, journal=path) as again:
        assert again.state() == state


def test_a_journal_that_lacks_events_of_its_player_is_not_compacted(softelim, tmp_path):
    """Whoever appends later, from a queue say, must not find a snapshot that has them already."""
    player, queue = Player(softelim, 0), []
    with Journal(tmp_path / "journal.jsonl", player) as journal:
        player.record = queue.append
        player.select("a")
        with pytest.raises(gb.InputError, match="does not have all events of its player"):
            journal.compact()
        journal.append(queue.pop())
        journal.compact()
        assert journal.segment == 2
    with Player(softelim, journal=tmp_path / "journal.jsonl") as again:
        assert again.open == ("a",)


KILLED = """
import sys
import gradband as gb
player = gb.Player(gb.policies.UCB1().bind(3, 10**6), journal=sys.argv[1], compact_every=7, window=20)
print("ready", flush=True)
for i in range(int(sys.argv[2]), 10**6):
    arm = player.select(f"d{i}")
    player.update(arm, i % 2)
    print(i, int(arm), flush=True)
"""


def test_a_kill_at_any_moment_loses_nothing_that_was_told(tmp_path):
    """With a new file after every seventh event, so that most kills are in the middle of one."""
    path, told, rng = tmp_path / "journal.jsonl", {}, np.random.default_rng(0)
    for _ in range(8):
        words = [sys.executable, "-c", textwrap.dedent(KILLED), str(path), str(max(told, default=-1) + 2)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        lines, many = [], int(rng.integers(20, 120))
        for line in process.stdout:
            lines.append(line)
            if len(lines) > many:
                break
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines(keepends=True)
        process.wait()
        process.stdout.close()
        told |= {int(i): int(arm) for i, arm in (line.split() for line in lines[1:] if line.endswith("\n"))}
    ucb1 = gb.policies.UCB1().bind(3, 10**6)
    with Player(ucb1, journal=path) as player:
        pulls = np.array(player.state()["memory"]["pulls"])
    events = [event for file in (*segments.older(path), path) for event in read(file)]
    arms = {int(event["id"][1:]): event["arm"] for event in events if event["op"] == "select"}
    heard = [int(event["id"][1:]) for event in events if event["op"] == "update"]
    assert len(set(heard)) == len(heard)
    assert all(arms[i] == arm and i in set(heard) for i, arm in told.items())
    assert pulls.tolist() == np.bincount([arms[i] for i in heard], minlength=3).tolist()
    assert len(told) > 150
