"""`gradband play`: lines of JSON, and a journal that loses nothing."""

import concurrent.futures
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import gradband as gb
from gradband.play import segments
from gradband.play.journal import Journal
from gradband.play.player import Player
from gradband.play.service import respond
from gradband.policies.policy_file import Learned

COMMAND = [sys.executable, "-m", "gradband", "play"]


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    path = tmp_path_factory.mktemp("play") / "policy.safetensors"
    softelim = gb.policies.SoftElim(theta=0.3).bind(4, 10_000)
    Learned(softelim, softelim.as_params({"theta": 0.3}), {}, {}).save(path)
    return path


def play(policy, lines, *options):
    """What comes back for some lines."""
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    done = subprocess.run(
        [*COMMAND, policy, *options], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def ask(player, request, journal=None):
    line = request if isinstance(request, bytes) else json.dumps(request).encode()
    return json.loads(respond(player, journal, line, 1))


def events_of(path):
    """All events of a journal, from all its files."""
    lines = [line for file in (*segments.older(path), path) for line in file.read_bytes().splitlines()]
    events = [event for event in map(json.loads, lines) if "op" in event]
    return [event for event in events if event["op"] not in ("snapshot", "part")]


def without_times(value):
    """The same without the times of events."""
    if isinstance(value, dict):
        return {key: without_times(entry) for key, entry in value.items() if key != "t"}
    return list(map(without_times, value)) if isinstance(value, list) else value


def test_requests_are_answered_in_their_order(policy):
    done, answers = play(
        policy,
        [
            {"op": "select", "id": "one"},
            {"op": "select"},
            {"op": "update", "id": "one", "reward": 1},
            {"op": "update", "id": "#1", "reward": 0.5},
            "\n",
            {"op": "select", "id": "many", "count": 200},
            {"op": "update", "id": "many", "sums": [0, 0, 0, 0]},
            {"op": "probabilities"},
            {"op": "add"},
            {"op": "retire", "arm": 0},
            '{"op": "state"}',  # a last line without an end is one too
        ],
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert answers[:4] == [
        {"op": "select", "id": "one", "arm": 0, "propensity": 1.0},
        {"op": "select", "id": "#1", "arm": 1, "propensity": 1.0},
        {"op": "update", "id": "one"},
        {"op": "update", "id": "#1"},
    ]
    assert sum(answers[4]["arms"]) == 200
    assert sum(answers[6]["probabilities"]) == pytest.approx(1)
    assert answers[7:9] == [{"op": "add", "arm": 4}, {"op": "retire", "arm": 0}]
    assert answers[9]["state"]["rounds"] == 202
    assert answers[9]["state"]["active"] == [1, 2, 3, 4]


def test_settings_are_options(policy, tmp_path):
    path = str(tmp_path / "journal.jsonl")
    options = ("--wait", "0.2s", "--arms", "red,blue,green,black", "--floor", "0.05", "--control", "blue")
    options += ("--control-share", "0.3", "--cap", "0.8", "--journal", path, "--compact-every", "4")
    lines = [{"op": "select", "unit": "a"}, {"op": "select", "unit": "a"}, {"op": "weights"}]
    done, answers = play(policy, lines, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert [answer.get("returning") for answer in answers] == [False, True, None]
    assert answers[0]["label"] == answers[1]["label"]
    assert list(answers[2]["weights"]) == ["red", "blue", "green", "black"]
    assert answers[2]["weights"]["blue"] >= 0.3
    time.sleep(0.3)
    more = [{"op": "expire"}, {"op": "update", "id": "#1", "reward": 1}, {"op": "add", "arm": "white"}]
    more += [{"op": "retire", "arm": "red"}, {"op": "state"}, {"op": "select", "unit": "b", "count": 3}]
    done, answers = play(policy, more, "--journal", path)  # which has the settings
    assert [answer.get("error") for answer in answers[:-1]] == [None] * 5
    assert answers[0] == {"op": "expire", "expired": 1}
    assert sum(answers[4]["state"]["memory"]["sums"]) + (answers[4]["state"]["finished"] == []) >= 1
    assert answers[4]["state"]["labels"][4] == "white"
    assert "a batch has no unit" in answers[5]["error"]
    done, _ = play(policy, [], "--journal", path, "--wait", "1h")
    assert "was started with wait = 0.2, not 3600.0" in done.stderr
    assert "Traceback" not in done.stderr
    done, _ = play(policy, [], "--floor", "0.5")
    assert (done.returncode, "4 arms with a floor of 0.5" in done.stderr) == (2, True)


def test_a_state_goes_on_in_another_process(policy):
    _, (_, answer) = play(policy, [{"op": "select", "id": "a"}, {"op": "state"}])
    _, (restored, update) = play(
        policy,
        [{"op": "restore", "state": answer["state"]}, {"op": "update", "id": "a", "reward": 1}],
        "--seed",
        "5",
    )
    assert (restored, update) == ({"op": "restore"}, {"op": "update", "id": "a"})


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (b"select", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        ([], "must be an object"),
        ({}, "op must be one of select, update"),
        ({"op": ["select"]}, "op must be one of"),
        ({"op": "select", "ide": "x"}, "select has no key 'ide': it takes id, count, unit"),
        ({"op": "select", "id": 3}, "an id must be"),
        ({"op": "select", "id": ["x"]}, "an id must be"),
        ({"op": "select", "id": {}, "count": 5}, "an id must be"),
        ({"op": "update", "id": "#" + "9" * 5000, "reward": 1}, "no decision"),
        ({"op": "update", "id": ["x"], "reward": 1}, "an id must be a string"),
        ({"op": "add", "arm": 9}, "the next arm has the number 4"),
        ({"op": "add", "arm": 4.0}, "arm must be a whole number"),
        ({"op": "retire", "arm": 1.0}, "no arm 1.0"),
        ({"op": "state", "id": "x"}, "it takes none"),
        ({"op": "select", "count": 0}, "count must be"),
        ({"op": "select", "count": 1e9}, "count must be"),
        ({"op": "update", "reward": 1}, "update needs id"),
        ({"op": "update", "id": "x"}, "needs the reward of a decision, or the sums"),
        ({"op": "update", "id": "x", "reward": 1}, "no decision 'x'"),
        ({"op": "update", "id": 3, "reward": 1}, "an id must be a string"),
        ({"op": "update", "id": "open", "reward": "1"}, "must be a finite number"),
        ({"op": "update", "id": "open", "reward": float("nan")}, "must be a finite number"),
        ({"op": "update", "id": "open", "reward": 10**400}, "must be a finite number"),
        ({"op": "update", "id": "open", "sums": [1]}, "not a batch"),
        ({"op": "update", "id": "batch", "sums": {}}, "one sum for each of its 4 arms"),
        ({"op": "update", "id": "batch", "sums": [0.5, 0, 0, 0]}, "must be a whole number"),
        ({"op": "update", "id": "batch", "sums": [-1, 0, 0, 0]}, "at least 0"),
        ({"op": "update", "id": "batch", "sums": [[1], [2], 3, 4]}, "must be a whole number"),
        ({"op": "retire", "arm": "blue"}, "no arm 'blue'"),
        ({"op": "retire", "arm": [1]}, r"no arm \[1\]"),
        ({"op": "restore", "state": 3}, "not the state of a player"),
    ],
)
def test_a_bad_request_has_one_clear_answer_and_changes_nothing(policy, request_, says):
    player = Player(policy, seed=0)
    player.select("open")
    player.select_many(8, "batch")
    before = player.state()
    answer = ask(player, request_)
    assert re.search(says, answer["error"])
    assert answer["line"] == 1
    assert player.state() == before


def test_an_id_may_be_any_text(policy, tmp_path):
    """Also half of a character that takes two, which UTF-8 has no bytes for."""
    path, ids = tmp_path / "journal.jsonl", ["\ud800", "a\nb", "\u0000", "ÿ" * 256]
    player = Player(policy, seed=0)
    with Journal(path, player) as journal:
        player.record = journal.append
        assert [ask(player, {"op": "select", "id": id}, journal)["id"] for id in ids] == ids
        journal.commit()
    again = Player(policy, seed=0)
    Journal(path, again).close()
    assert again.open == tuple(ids)


def test_a_bad_line_does_not_end_the_play(policy):
    done, answers = play(policy, ["nonsense\n", {"op": "select", "id": "a"}])
    assert done.returncode == 0
    assert "not JSON" in answers[0]["error"]
    assert answers[1]["arm"] == 0


def test_a_journal_goes_on_where_it_stopped(policy, tmp_path):
    journal = tmp_path / "journal.jsonl"
    options = ("--journal", str(journal), "--seed", "3")
    first = [{"op": "select", "id": f"d{i}"} for i in range(20)]
    first += [{"op": "update", "id": f"d{i}", "reward": i % 3 / 2} for i in range(0, 20, 2)]
    second = [{"op": "select", "id": f"e{i}"} for i in range(20)]
    done, answers = play(policy, first, *options)
    assert (done.returncode, done.stderr) == (0, "")
    done, more = play(policy, [*second, {"op": "state"}], *options)
    assert "resumes after 30 events" in done.stderr
    _, whole = play(policy, [*first, *second, {"op": "state"}], "--seed", "3")
    assert without_times(answers + more) == without_times(whole)
    for line in journal.read_text().splitlines():
        json.loads(line)


def test_all_kinds_of_events_are_kept(policy, tmp_path):
    path = tmp_path / "journal.jsonl"
    player = Player(policy, seed=1)
    with Journal(path, player) as journal:
        player.record = journal.append
        batch = player.select_many(50)
        player.update_many(batch, [0] * 4)
        player.add_arm()
        player.update(player.select(), 1)
        player.retire(2)
        player.select("open")
        journal.commit()
    again = Player(policy, seed=1)
    Journal(path, again).close()
    assert again.state() == player.state()
    assert again.select() == player.select()


def written(policy, path, updates=5):
    player = Player(policy, seed=0)
    with Journal(path, player) as journal:
        player.record = journal.append
        for i in range(updates):
            player.update(player.select(f"id {i}"), 1)
        journal.commit()
    return path.read_bytes()


def test_a_half_written_last_line_is_dropped_wherever_it_stops(policy, tmp_path):
    path = tmp_path / "journal.jsonl"
    data = written(policy, path)
    ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with Journal(path, Player(policy)) as journal:  # whatever seed it had
            whole = max((end for end in ends if end <= size), default=0)
            assert journal.dropped == size - whole
            assert journal.events == max(0, sum(end <= size for end in ends) - 1)
        if whole:
            assert path.read_bytes() == data[:whole]
    done, answers = play(policy, [{"op": "select"}], "--journal", str(path))
    assert done.returncode == 0
    path.write_bytes(path.read_bytes()[:-3])
    done, answers = play(policy, [{"op": "select"}], "--journal", str(path))
    assert "dropped an incomplete last line" in done.stderr
    assert answers[0]["id"] == "#1"


def test_any_other_damage_is_refused_with_its_line(policy, tmp_path):
    path = tmp_path / "journal.jsonl"
    data = written(policy, path)
    lines = data.splitlines(keepends=True)
    rng = np.random.default_rng(0)
    for _ in range(300):  # a byte that changed
        where = int(rng.integers(len(data) - 1))
        changed = bytearray(data)
        changed[where] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        with pytest.raises(gb.InputError, match=rf"journal.jsonl, line {data[:where].count(10) + 1}:"):
            Journal(path, Player(policy, seed=0))
        assert path.read_bytes() == bytes(changed)
    for wrong, number in (
        (lines[:2] + lines[3:], 3),  # a line is gone
        (lines[:2] + [lines[3], lines[2]] + lines[4:], 3),  # two have changed places
        (lines[:2] + [lines[1]] + lines[2:], 3),  # one is there twice
        (lines[1:], 1),
        ([b"{}\n"], 1),
        ([b"\n"], 1),
    ):
        path.write_bytes(b"".join(wrong))
        with pytest.raises(gb.InputError, match=f"line {number}:"):
            Journal(path, Player(policy, seed=0))
    done, _ = play(policy, [], "--journal", str(path))
    assert done.returncode == 2
    assert "line 1" in done.stderr
    assert "Traceback" not in done.stderr


def forged(events, path, policy, seed=0):
    """A journal with right checksums, whatever its events say."""
    path.unlink(missing_ok=True)
    with Journal(path, Player(policy, seed)) as journal:
        for event in events:
            journal.append(event)
        journal.commit()


@pytest.mark.parametrize(
    "event",
    [
        3,
        {"op": "else"},
        {"op": "select"},
        {"op": "select", "id": "x", "arm": 9, "p": 0.5, "drawn": 2},
        {"op": "select", "id": "x", "arm": True, "p": 0.5, "drawn": 2},
        {"op": "select", "id": "x", "arm": 0, "p": 0.0, "drawn": 2},
        {"op": "select", "id": "x", "arm": 0, "p": 0.5, "drawn": 10**12},
        {"op": "select", "id": "x", "arm": 0, "p": 0.5, "drawn": 0},
        {"op": "select", "id": "x" * 999, "arm": 0, "p": 0.5, "drawn": 2},
        {"op": "select", "id": "x", "arms": [1, 2], "p": [0.5], "drawn": 2},
        {"op": "select", "id": "x", "arms": [1] * 9, "p": [0.1] * 9, "drawn": 2},
        {"op": "select", "id": "x", "arms": [-1, 2], "p": [0.5, 0.5], "drawn": 2},
        {"op": "update", "id": "x", "reward": 1, "heard": 1, "drawn": 1},
        {"op": "add", "arm": 7},
        {"op": "retire", "arm": 7},
        {"op": "retire", "arm": [0]},
        {"op": "retire", "arm": 1.0},
        {"op": "add", "arm": 4.0},
        {"op": "select", "id": "#2", "arm": 0, "p": 0.5, "drawn": 2},
        {"op": "select", "id": "x", "arms": [2**62] * 4, "p": [0.25] * 4, "drawn": 2},
        {"op": "select", "id": "x", "arms": [1, 2], "p": [0.5, 0.5], "drawn": 2},
    ],
)
def test_events_that_can_not_be_are_refused(policy, tmp_path, event):
    path = tmp_path / "journal.jsonl"
    forged([event], path, policy)
    with pytest.raises(gb.InputError, match="line 2:"):
        Journal(path, Player(policy, seed=0))


@pytest.mark.parametrize("content", [b"x", b'{"rows": []}', b"a,b\n1,2\n", b'{"format":"else"'])
def test_a_file_that_is_no_journal_is_left_alone(policy, tmp_path, content):
    path = tmp_path / "mine"
    path.write_bytes(content)
    with pytest.raises(gb.InputError, match="line 1: this (is|line)"):
        Journal(path, Player(policy, seed=0))
    assert path.read_bytes() == content


def test_what_is_no_file_is_no_journal(policy, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/null"):
        with pytest.raises(gb.InputError, match="is not a file"):
            Journal(path, Player(policy, seed=0))
    with pytest.raises(gb.InputError, match="it is not a regular file"):
        Player(tmp_path / "pipe")


def test_a_full_disk_ends_the_play_before_it_answers(policy, tmp_path):
    """Only so many bytes can be written: whoever is not answered finds nothing but what was answered."""
    path = tmp_path / "journal.jsonl"
    lines = b"".join(b'{"op": "select", "id": "d%d"}\n' % i for i in range(30))
    limit = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (700, 700))"
    words = [
        "-c",
        f"{limit}; from gradband.cli.main import main; main()",
        "play",
        policy,
        "--journal",
        path,
    ]
    done = subprocess.run([sys.executable, *words], input=lines, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"cannot write the journal" in done.stderr
    assert b"Traceback" not in done.stderr
    again, answers = play(policy, [{"op": "select", "id": "d0"}], "--journal", str(path))
    assert (again.returncode, answers[0]["arm"]) == (0, 0)


def test_a_journal_that_could_not_be_written_is_not_written_on(policy, tmp_path, monkeypatch):
    player = Player(policy, seed=0)
    with Journal(tmp_path / "journal.jsonl", player) as journal:
        player.record = journal.append
        player.select()
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda *given: (_ for _ in ()).throw(OSError(28, "No space left")))
            with pytest.raises(RuntimeError, match="No space left"):
                journal.commit()
        player.select()
        with pytest.raises(RuntimeError, match="could not be written earlier"):
            journal.commit()


def test_a_journal_is_for_a_player_from_its_start(policy, tmp_path):
    player = Player(policy, seed=0)
    player.select()
    with pytest.raises(gb.InputError, match="before the player's first decision"):
        Journal(tmp_path / "journal.jsonl", player)
    fresh = Player(policy, seed=0)
    with Journal(tmp_path / "journal.jsonl", fresh) as journal:
        fresh.record = journal.append
        with pytest.raises(gb.InputError, match="with a record or a journal cannot be restored"):
            fresh.restore(player.state())


def test_replaying_takes_time_in_proportion(policy, tmp_path):
    """Four times as many open decisions take about four times as long, not sixteen times."""

    def seconds(count):
        path, player = tmp_path / f"{count}.jsonl", Player(policy, seed=0)
        with Journal(path, player) as journal:
            player.record = journal.append
            for i in range(count):
                player.select(f"visitor {i}")
            journal.commit()
        began = time.perf_counter()
        Journal(path, Player(policy, seed=0)).close()
        return time.perf_counter() - began

    assert min(seconds(20_000) for _ in range(2)) < 9 * min(seconds(5000) for _ in range(3))


def test_a_journal_belongs_to_a_policy_and_a_seed_and_one_process(policy, tmp_path):
    path = tmp_path / "journal.jsonl"
    written(policy, path)
    with pytest.raises(gb.InputError, match="started with the seed 0"):
        Journal(path, Player(policy, seed=1))
    other = tmp_path / "other.safetensors"
    ucb1 = gb.policies.UCB1().bind(4, 10_000)
    Learned(ucb1, {}, {}, {}).save(other)
    with pytest.raises(gb.InputError, match="another policy"):
        Journal(path, Player(other, seed=0))
    with (
        Journal(path, Player(policy, seed=0)),
        pytest.raises(gb.InputError, match="in use by another process"),
    ):
        Journal(path, Player(policy, seed=0))
    with pytest.raises(gb.InputError, match="cannot open the journal"):
        Journal(tmp_path / "gone" / "journal.jsonl", Player(policy, seed=0))
    path.write_bytes(b"")
    with Journal(path, Player(policy, seed=0)) as journal:
        player = Player(policy, seed=0)
        answer = ask(player, {"op": "restore", "state": player.state()}, journal)
        assert "resumes from it" in answer["error"]


@pytest.mark.parametrize("again", ["select", "update"])
@pytest.mark.parametrize("id", ["x", "#1"])
def test_a_finished_decision_is_not_read_again(policy, tmp_path, id, again):
    made = {"op": "select", "id": id, "arm": 0, "p": 1.0, "drawn": 2}
    heard = {"op": "update", "id": id, "reward": 1.0, "heard": 1.0, "drawn": 2}
    path = tmp_path / "journal.jsonl"
    forged([made, heard], path, policy)
    with Player(policy, journal=path) as player:
        assert player.finished(id)
    forged([made, heard, (made | {"drawn": 3}) if again == "select" else heard], path, policy)
    with pytest.raises(gb.InputError, match="line 4: .*(was made before|has its reward already)"):
        Journal(path, Player(policy))


def test_a_journal_has_its_seed(policy, tmp_path):
    path = str(tmp_path / "journal.jsonl")
    with Player(policy, journal=path) as player:
        player.select_many(100, "a")
        seed, state = player.seed, player.state()
    assert Player(policy).seed != seed
    for given in (None, seed, np.int64(seed)):
        with Player(policy, given, journal=path) as again:
            assert again.state() == state
    with pytest.raises(gb.InputError, match=f"started with the seed {seed}: use that seed, or give none"):
        Player(policy, seed + 1, journal=path)
    done, (answer,) = play(policy, [{"op": "state"}], "--journal", path)
    assert answer["state"] == state
    assert f"resumes after 1 event, with the seed {seed}" in done.stderr
    seeds = {play(policy, [{"op": "state"}])[1][0]["state"]["seed"] for _ in range(2)}
    assert len(seeds) == 2


class Disk:
    """Writes and flushes of files, as they are asked for; flushes can be made to wait."""

    def __init__(self, monkeypatch):
        self.calls, self.free = [], threading.Event()
        self.free.set()
        for name in ("write", "fsync", "fdatasync", "replace"):
            monkeypatch.setattr(os, name, self.noted(name, getattr(os, name)))

    def noted(self, name, function):
        def call(first, *rest):
            if name in ("fsync", "fdatasync"):
                assert self.free.wait(10)
            done = function(first, *rest)
            self.calls.append("write" if name == "write" else "flush" if "sync" in name else name)
            return done

        return call


def test_what_is_committed_was_flushed_to_disk(policy, tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    player = Player(policy, journal=tmp_path / "journal.jsonl")
    assert disk.calls == ["write", "flush", "flush"]  # its first line, and its name in the folder
    disk.calls.clear()
    player.update(player.select(), 1)
    assert disk.calls == ["write", "flush"] * 2
    player.close()
    by_hand = Player(policy)
    with Journal(tmp_path / "other.jsonl", by_hand) as journal:
        by_hand.record = journal.append
        disk.calls.clear()
        by_hand.update(by_hand.select(), 1)
        assert disk.calls == []
        journal.commit()
        journal.commit()
        assert disk.calls == ["write", "flush"]


def test_threads_wait_for_the_disk_and_share_its_writes(policy, tmp_path, monkeypatch):
    """While one is written, seven more are decided: none returns before it is on disk, with one more write.

    Nor is anyone told that a reward is there already, or gets a decision again, before it is.
    """
    player = Player(policy, journal=tmp_path / "journal.jsonl")
    player.select("a")
    disk = Disk(monkeypatch)
    disk.free.clear()
    asked = [lambda: player.update("a", 1)]
    asked += [lambda i=i: player.select(f"b{i}") for i in range(6)]
    asked += [lambda: player.select("b0"), lambda: player.update("a", 1)]
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        answers = []
        for ask_one in asked:
            answers.append(pool.submit(ask_one))
            time.sleep(0.05)
        assert player.state()["decisions"] == 7
        assert disk.calls == ["write"]
        assert not any(answer.done() for answer in answers)
        disk.free.set()
        assert answers[7].result() == answers[1].result()
        with pytest.raises(gb.InputError, match="has its reward already"):
            answers[8].result()
    assert disk.calls == ["write", "flush"] * 2
    player.close()


@contextlib.contextmanager
def switching_often():
    """Threads take turns as often as they can, so that whatever they can disturb is disturbed."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def play_in_threads(policy, path, threads, decisions, commit_every=None):
    """Decisions of many threads on one player, each with its reward, and then a restart."""
    player = Player(policy) if commit_every else Player(policy, journal=path)
    journal = Journal(path, player) if commit_every else player.journal
    if commit_every:
        player.record = journal.append

    def decide(thread):
        made = []
        for i in range(decisions):
            arm = player.select(f"{thread} {i}" if i % 2 else None)
            player.update(arm, float((thread + i) % 3 == arm % 3))
            made.append((arm.id, int(arm), arm.propensity, float((thread + i) % 3 == arm % 3)))
            if commit_every and (i + 1) % commit_every == 0:
                journal.commit()
        return made

    with switching_often(), concurrent.futures.ThreadPoolExecutor(threads) as pool:
        answers = [answer for made in pool.map(decide, range(threads)) for answer in made]
    journal.commit()
    state = player.state()
    journal.close()
    with Player(policy, journal=path) as again:
        assert again.state() == state
        assert again.journal.events == 2 * threads * decisions
    events = events_of(path)
    selects = {e["id"]: (e["arm"], e["p"]) for e in events if e["op"] == "select"}
    updates = {e["id"]: e["reward"] for e in events if e["op"] == "update"}
    assert len(selects) == len(updates) == len(answers) == threads * decisions
    assert all((selects[id], updates[id]) == ((arm, p), reward) for id, arm, p, reward in answers)
    assert sum(state["memory"]["pulls"]) == threads * decisions
    assert sum(state["memory"]["sums"]) == sum(updates.values())


@pytest.mark.parametrize("commit_every", [None, 20])
def test_threads_share_a_player_and_its_journal(policy, tmp_path, commit_every):
    count = 400 if commit_every else 60
    play_in_threads(policy, tmp_path / "journal.jsonl", 8, count, commit_every)


@pytest.mark.slow
@pytest.mark.parametrize("commit_every", [None, 100])
def test_eight_threads_lose_nothing_in_a_hundred_thousand_decisions(policy, tmp_path, commit_every):
    began = time.perf_counter()
    play_in_threads(policy, tmp_path / "journal.jsonl", 8, 100_000, commit_every)
    print(f"{time.perf_counter() - began:.0f} seconds")


def test_threads_keep_their_books_without_a_journal(policy):
    player = Player(policy, seed=0)

    def decide(thread):
        made = [player.select() for _ in range(250)]
        for arm in made:
            player.update(arm, 1)
        return [arm.id for arm in made]

    with switching_often(), concurrent.futures.ThreadPoolExecutor(8) as pool:
        ids = [id for made in pool.map(decide, range(8)) for id in made]
    state = player.state()
    assert sorted(ids, key=lambda id: int(id[1:])) == [f"#{i}" for i in range(1, 2001)]
    assert (state["decisions"], state["numbered"], state["drawn"]) == (2000, 2000, 2001)
    assert state["memory"]["sums"] == state["memory"]["pulls"]
    assert state["rounds"] == sum(state["memory"]["pulls"]) == 2000


FORK = """
import os, sys
from gradband.core.errors import InputError
from gradband.play.journal import Journal
from gradband.play.player import Player

policy, path = sys.argv[1:]
player = Player(policy, journal=path)
alone = Player(player.playable)
by_hand = Player(player.playable)
journal = Journal(path + "2", by_hand)
by_hand.record = journal.append
by_hand.select()
player.select("a")
read, write = os.pipe()
hear, say = os.pipe()
child = os.fork()
if child == 0:
    os.close(write)
    for what, attempt in (
        ("player", lambda: player.select()),
        ("player", lambda: player.update("a", 1)),
        ("player", lambda: alone.select_many(3)),
        ("player", lambda: alone.probabilities()),
        ("player", lambda: by_hand.state()),
        ("journal", journal.commit),
        ("journal", lambda: journal.append({})),
    ):
        try:
            attempt()
        except InputError as error:
            assert str(error).startswith(f"this {what} belongs to the process that opened it"), error
        else:
            os._exit(1)
    Player(player.playable).select()  # one of its own is fine
    print("refused", flush=True)
    os.write(say, b".")
    os.read(read, 1)
    os._exit(0)
os.close(read)
player.select("b")
journal.commit()
player.close()
os.read(hear, 1)  # a child that has only just begun may still have it open
with Player(policy, journal=path) as again:  # the child does not keep the file
    assert again.open == ("a", "b")
os.close(write)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_does_not_play_its_parents_test(policy, tmp_path):
    words = [sys.executable, "-c", FORK, policy, str(tmp_path / "journal.jsonl")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr
    assert [path.read_bytes().count(b"\n") for path in sorted(tmp_path.iterdir())] == [3, 2]


def test_a_player_stops_where_its_journal_does(policy, tmp_path, monkeypatch):
    """Nothing is decided that can't be kept, and a write that was cut short is not written on."""
    path = tmp_path / "journal.jsonl"
    player = Player(policy, journal=path)
    player.select("a")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            player.select("b")
    state = player.state()
    with pytest.raises(RuntimeError, match="could not be written earlier"):
        player.select("c")
    assert player.state() == state
    player.close()
    with Player(policy, journal=path) as again:
        assert again.open == ("a",)
        with pytest.raises(gb.InputError, match="with a record or a journal cannot be restored"):
            again.restore(state)
    with pytest.raises(gb.InputError, match=r"journal.jsonl is closed"):
        again.select()


class Client:
    """Asks under load, and keeps what was answered, as whoever relies on the journal would."""

    def __init__(self, policy, journal):
        self.process = subprocess.Popen(
            [*COMMAND, policy, "--journal", journal],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.answers = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                self.answers.append(json.loads(line))

    def ask(self, requests):
        try:
            self.process.stdin.write("".join(json.dumps(r) + "\n" for r in requests).encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


def kill_and_restart(policy, journal, times, seed):
    """Plays under load, is killed at random moments, and compares with all that was answered."""
    rng = random.Random(seed)
    decided, rewarded, asked = {}, {}, 0
    for _ in range(times):
        client = Client(policy, journal)
        # What may not have been answered before is asked again, as a careful client does.
        client.ask(
            [{"op": "update", "id": id, "reward": r} for id, (r, sure) in rewarded.items() if not sure]
        )
        seen, until = 0, float("inf")
        while time.monotonic() < until:
            assert client.process.poll() is None
            if client.answers and until == float("inf"):  # it is up, however long that takes
                until = time.monotonic() + 0.2 + rng.random()
            new = [f"d{asked + i}" for i in range(rng.randint(1, 20))]
            asked += len(new)
            client.ask([{"op": "select", "id": id} for id in new])
            for answer in client.answers[seen:]:
                seen += 1
                if answer.get("op") == "select" and answer["id"] not in rewarded:
                    rewarded[answer["id"]] = (rng.randint(0, 1), False)
                    client.ask([{"op": "update", "id": answer["id"], "reward": rewarded[answer["id"]][0]}])
            time.sleep(0.001)
        client.kill()
        for answer in client.answers:
            id = answer["id"]
            if answer.get("op") == "select":
                assert decided.setdefault(id, answer) == answer, "a decision changed"
            elif answer.get("op") == "update":
                assert rewarded[id][1] is False, "a reward was taken twice"
                rewarded[id] = (rewarded[id][0], True)
            else:
                assert "has its reward already" in answer["error"]
                rewarded[id] = (rewarded[id][0], True)
    with Player(policy, journal=journal) as player:
        state = player.state()
    events = events_of(journal)
    selects = {e["id"]: e for e in events if e["op"] == "select"}
    updates = [e for e in events if e["op"] == "update"]
    assert len(selects) == sum(e["op"] == "select" for e in events)
    assert len({e["id"] for e in updates}) == len(updates), "a reward was applied twice"
    for id, answer in decided.items():
        assert (selects[id]["arm"], selects[id]["p"]) == (answer["arm"], answer["propensity"])
    heard = {e["id"]: e["reward"] for e in updates}
    for id, (reward, sure) in rewarded.items():
        if sure:
            assert heard[id] == reward, "an acknowledged reward was lost"
    pulls, sums = np.zeros(4), np.zeros(4)
    for id, reward in heard.items():
        pulls[selects[id]["arm"]] += 1
        sums[selects[id]["arm"]] += reward
    assert state["memory"]["pulls"] == pulls.tolist()
    assert state["memory"]["sums"] == sums.tolist()
    return len(decided), sum(sure for _, sure in rewarded.values())


def test_nothing_that_was_answered_is_lost_to_a_kill(policy, tmp_path):
    decisions, rewards = kill_and_restart(policy, tmp_path / "journal.jsonl", times=4, seed=0)
    assert min(decisions, rewards) > 100


@pytest.mark.slow
def test_nothing_that_was_answered_is_lost_to_a_hundred_kills(policy, tmp_path):
    decisions, rewards = kill_and_restart(policy, tmp_path / "journal.jsonl", times=100, seed=1)
    print(f"{decisions} decisions and {rewards} rewards were answered")
    assert min(decisions, rewards) > 5000


def test_a_reader_that_goes_away_is_no_traceback(policy):
    process = subprocess.Popen(
        [*COMMAND, policy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    os.write(process.stdin.fileno(), b'{"op": "state"}\n' * 10)
    process.stdin.close()
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    assert process.wait() != 0
