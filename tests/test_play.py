"""`gradband play`: lines of JSON, and a journal that loses nothing."""

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
from gradband.journal import Journal
from gradband.learned import Learned
from gradband.player import Player
from gradband.service import respond

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
    assert answers[9]["state"]["memory"]["rounds"] == 202
    assert answers[9]["state"]["active"] == [1, 2, 3, 4]


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
        ({"op": "select", "ide": "x"}, "select knows no 'ide'"),
        ({"op": "select", "id": 3}, "an id must be"),
        ({"op": "select", "id": ["x"]}, "an id must be"),
        ({"op": "select", "id": {}, "count": 5}, "an id must be"),
        ({"op": "update", "id": "#" + "9" * 5000, "reward": 1}, "no decision"),
        ({"op": "update", "id": ["x"], "reward": 1}, "an id must be a text"),
        ({"op": "add", "arm": 9}, "the next arm has the number 4"),
        ({"op": "add", "arm": 4.0}, "arm must be a whole number"),
        ({"op": "retire", "arm": 1.0}, "no arm 1.0"),
        ({"op": "state", "id": "x"}, "it takes nothing"),
        ({"op": "select", "count": 0}, "count must be"),
        ({"op": "select", "count": 1e9}, "count must be"),
        ({"op": "update", "reward": 1}, "update needs id"),
        ({"op": "update", "id": "x"}, "needs the reward of a decision, or the sums"),
        ({"op": "update", "id": "x", "reward": 1}, "no decision 'x'"),
        ({"op": "update", "id": 3, "reward": 1}, "an id must be a text"),
        ({"op": "update", "id": "open", "reward": "1"}, "must be a finite number"),
        ({"op": "update", "id": "open", "reward": float("nan")}, "must be a finite number"),
        ({"op": "update", "id": "open", "reward": 10**400}, "must be a finite number"),
        ({"op": "update", "id": "open", "sums": [1]}, "not a batch"),
        ({"op": "update", "id": "batch", "sums": {}}, "one sum for each of its 4 arms"),
        ({"op": "update", "id": "batch", "sums": [0.5, 0, 0, 0]}, "must be a whole number"),
        ({"op": "update", "id": "batch", "sums": [-1, 0, 0, 0]}, "at least 0"),
        ({"op": "update", "id": "batch", "sums": [[1], [2], 3, 4]}, "must be a whole number"),
        ({"op": "retire", "arm": "1"}, "no arm '1'"),
        ({"op": "retire", "arm": [1]}, r"no arm \[1\]"),
        ({"op": "restore", "state": 3}, "not the state of a player"),
    ],
)
def test_a_bad_request_has_one_clear_answer_and_changes_nothing(policy, request_, says):
    player = Player(policy)
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
    player = Player(policy)
    with Journal(path, player) as journal:
        player.record = journal.append
        assert [ask(player, {"op": "select", "id": id}, journal)["id"] for id in ids] == ids
        journal.commit()
    again = Player(policy)
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
    assert "goes on after 30 events" in done.stderr
    _, whole = play(policy, [*first, *second, {"op": "state"}], "--seed", "3")
    assert answers + more == whole
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
    player = Player(policy)
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
        player = Player(policy)
        with Journal(path, player) as journal:
            whole = max((end for end in ends if end <= size), default=0)
            assert journal.dropped == size - whole
            assert journal.events == max(0, sum(end <= size for end in ends) - 1)
        if whole:
            assert path.read_bytes() == data[:whole]
    done, answers = play(policy, [{"op": "select"}], "--journal", str(path))
    assert done.returncode == 0
    path.write_bytes(path.read_bytes()[:-3])
    done, answers = play(policy, [{"op": "select"}], "--journal", str(path))
    assert "dropped a last line that was not written to its end" in done.stderr
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
            Journal(path, Player(policy))
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
            Journal(path, Player(policy))
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
        Journal(path, Player(policy))


@pytest.mark.parametrize("content", [b"x", b'{"rows": []}', b"a,b\n1,2\n", b'{"format":"else"'])
def test_a_file_that_is_no_journal_is_left_alone(policy, tmp_path, content):
    path = tmp_path / "mine"
    path.write_bytes(content)
    with pytest.raises(gb.InputError, match="line 1: this is"):
        Journal(path, Player(policy))
    assert path.read_bytes() == content


def test_what_is_no_file_is_no_journal(policy, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/null"):
        with pytest.raises(gb.InputError, match="is not a file"):
            Journal(path, Player(policy))
    with pytest.raises(gb.InputError, match="it is not a file"):
        Player(tmp_path / "pipe")


def test_a_full_disk_ends_the_play_before_it_answers(policy, tmp_path):
    """Only so many bytes can be written: whoever is not answered finds nothing but what was answered."""
    path = tmp_path / "journal.jsonl"
    lines = b"".join(b'{"op": "select", "id": "d%d"}\n' % i for i in range(30))
    limit = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (700, 700))"
    words = ["-c", f"{limit}; from gradband import cli; cli.main()", "play", policy, "--journal", path]
    done = subprocess.run([sys.executable, *words], input=lines, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"can't write the journal" in done.stderr
    assert b"Traceback" not in done.stderr
    again, answers = play(policy, [{"op": "select", "id": "d0"}], "--journal", str(path))
    assert (again.returncode, answers[0]["arm"]) == (0, 0)


def test_a_journal_that_could_not_be_written_is_not_written_on(policy, tmp_path, monkeypatch):
    player = Player(policy)
    with Journal(tmp_path / "journal.jsonl", player) as journal:
        player.record = journal.append
        player.select()
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda *given: (_ for _ in ()).throw(OSError(28, "No space left")))
            with pytest.raises(RuntimeError, match="No space left"):
                journal.commit()
        player.select()
        with pytest.raises(RuntimeError, match="could not be written before"):
            journal.commit()


def test_a_journal_is_for_a_player_from_its_start(policy, tmp_path):
    player = Player(policy)
    player.select()
    with pytest.raises(gb.InputError, match="first decision on"):
        Journal(tmp_path / "journal.jsonl", player)
    fresh = Player(policy)
    with Journal(tmp_path / "journal.jsonl", fresh) as journal:
        fresh.record = journal.append
        with pytest.raises(gb.InputError, match="the record would lie"):
            fresh.restore(player.state())


def test_replaying_takes_time_in_proportion(policy, tmp_path):
    """Four times as many open decisions take about four times as long, not sixteen times."""

    def seconds(count):
        path, player = tmp_path / f"{count}.jsonl", Player(policy)
        with Journal(path, player) as journal:
            player.record = journal.append
            for i in range(count):
                player.select(f"visitor {i}")
            journal.commit()
        began = time.perf_counter()
        Journal(path, Player(policy)).close()
        return time.perf_counter() - began

    assert min(seconds(20_000) for _ in range(2)) < 9 * min(seconds(5000) for _ in range(3))


def test_a_journal_belongs_to_a_policy_and_a_seed_and_one_process(policy, tmp_path):
    path = tmp_path / "journal.jsonl"
    written(policy, path)
    with pytest.raises(gb.InputError, match="begun with the seed 0"):
        Journal(path, Player(policy, seed=1))
    other = tmp_path / "other.safetensors"
    ucb1 = gb.policies.UCB1().bind(4, 10_000)
    Learned(ucb1, {}, {}, {}).save(other)
    with pytest.raises(gb.InputError, match="another policy"):
        Journal(path, Player(other))
    with Journal(path, Player(policy)), pytest.raises(gb.InputError, match="in use by another process"):
        Journal(path, Player(policy))
    with pytest.raises(gb.InputError, match="can't open the journal"):
        Journal(tmp_path / "gone" / "journal.jsonl", Player(policy))
    path.write_bytes(b"")
    with Journal(path, Player(policy)) as journal:
        player = Player(policy)
        answer = ask(player, {"op": "restore", "state": player.state()}, journal)
        assert "goes on from its journal" in answer["error"]


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
        until = time.monotonic() + 1.0 + rng.random()
        # What may not have been answered before is asked again, as a careful client does.
        client.ask(
            [{"op": "update", "id": id, "reward": r} for id, (r, sure) in rewarded.items() if not sure]
        )
        seen = 0
        while time.monotonic() < until:
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
    player = Player(policy)
    with Journal(journal, player):
        state = player.state()
    events = [json.loads(line) for line in journal.read_bytes().splitlines()[1:]]
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
