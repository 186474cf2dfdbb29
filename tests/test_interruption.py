"""Learning that is interrupted goes on to the same bits, whatever became of the last checkpoint."""

import contextlib
import json
import random
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

import gradband as gb
from gradband.core import files, tensor_file
from gradband.learning import interruption

pytestmark = pytest.mark.brief
PROBLEM = gb.problems.named("two-point", horizon=20)
SETTINGS = {"instances": 300, "checkpoint_every": 2, "seed": 4}
WORDS = [sys.executable, "-m", "gradband", "learn", "two-point", "--horizon", "20", "--instances", "300"]
WORDS += ["--compare-on", "300", "--iterations", "400", "--json", "--resume", "--out"]


def learn(path, iterations=8, **others):
    return gb.learn("softelim", PROBLEM, iterations=iterations, checkpoint=path, **SETTINGS, **others)


class BrokenError(Exception):
    """As if the process had been killed."""


def until(count):
    """Progress that breaks off after so many iterations, as a kill would."""

    def progress(step):
        if step.iteration == count:
            raise BrokenError

    return progress


@pytest.fixture(scope="module")
def whole():
    return gb.learn("softelim", PROBLEM, iterations=8, **SETTINGS)


def cut_off(path, count):
    with pytest.raises(BrokenError):
        learn(path, progress=until(count))


def test_the_last_two_checkpoints_are_kept(tmp_path, whole):
    path = tmp_path / "checkpoint.safetensors"
    cut_off(path, 7)
    kept = [tensor_file.load(file, "checkpoint")[1]["iteration"] for file in (path, files.before(path))]
    assert kept == [6, 4]
    assert learn(path, resume=True).params["theta"] == whole.params["theta"]


def flipped(data):
    """One bit of a parameter is another."""
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


@pytest.mark.parametrize("damage", ["gone", "cut", "changed", "foreign", "empty", "deep", "astray"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, whole, damage):
    path = tmp_path / "checkpoint.safetensors"
    cut_off(path, 7)
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "foreign":
        gb.learn("softelim", PROBLEM, iterations=1, instances=300).save(path)
    elif damage == "deep":
        tensor_file.save(path, "checkpoint", {}, '{"settings": ' + '{"a": ' * 900 + "1" + "}" * 901)
    elif damage == "astray":
        path.unlink()
        path.symlink_to("nowhere")
    else:
        path.write_bytes({"cut": data[:-9], "changed": flipped(data), "empty": b""}[damage])
    if damage == "gone":
        again = learn(path, resume=True)
    else:
        with pytest.warns(UserWarning, match="resuming from .*before.safetensors, iteration 4"):
            again = learn(path, resume=True)
    assert again.params["theta"] == whole.params["theta"]
    assert again.history["regret"].tobytes() == whole.history["regret"].tobytes()


def test_a_damaged_checkpoint_does_not_replace_the_good_one(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    cut_off(path, 7)
    path.write_bytes(b"")
    with pytest.warns(UserWarning, match="resuming from"), pytest.raises(BrokenError):
        learn(path, resume=True, progress=until(7))
    kept = [tensor_file.load(file, "checkpoint")[1]["iteration"] for file in (path, files.before(path))]
    assert kept == [6, 4]


def test_two_damaged_checkpoints_are_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    cut_off(path, 7)
    for file in (path, files.before(path)):
        file.write_bytes(b"nothing")
    with pytest.raises(gb.InputError, match="damaged"):
        learn(path, resume=True)


def test_other_settings_are_refused_with_the_difference(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    cut_off(path, 7)
    with warnings.catch_warnings(), pytest.raises(gb.InputError, match="iterations was 8, now it is 9"):
        learn(path, iterations=9, resume=True)


def test_settings_that_only_the_checkpoint_has_are_a_difference(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    several = PROBLEM.replace(pulls_per_round=5)
    with pytest.raises(BrokenError):
        gb.learn("softelim", several, iterations=8, **SETTINGS, checkpoint=path, progress=until(7))
    with pytest.raises(gb.InputError, match="problem.pulls_per_round was 5, now it is not set"):
        learn(path, resume=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_wait_for_the_end_of_an_iteration(tmp_path, whole, number):
    path = tmp_path / "checkpoint.safetensors"

    def progress(step):
        if step.iteration == 3:
            signal.raise_signal(number)

    usual = signal.getsignal(number)
    with pytest.raises(interruption.Interrupted, match="after iteration 3 of 8") as stopped:
        learn(path, progress=progress)
    assert stopped.value.number == number
    assert signal.getsignal(number) is usual
    assert tensor_file.load(path, "checkpoint")[1]["iteration"] == 3
    assert learn(path, resume=True).params["theta"] == whole.params["theta"]


def test_a_signal_that_nobody_looked_at_is_not_lost():
    with pytest.raises(KeyboardInterrupt), interruption.watched():
        signal.raise_signal(signal.SIGINT)


def test_a_second_signal_does_not_wait():
    with interruption.watched() as watch:
        signal.raise_signal(signal.SIGTERM)
        assert watch.asked == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        watch.asked = 0


@contextlib.contextmanager
def started(words, sign):
    """A command that has come so far as to write this file; it does not outlive the test."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not sign.exists():
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_command_says_what_it_keeps(tmp_path):
    words = [*WORDS[:-3], "--iterations", "100000", "--out", str(tmp_path)]
    with started(words, tmp_path / "checkpoint.safetensors") as process:
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + signal.SIGTERM, "")
    assert "checkpoint.safetensors: resume continues from there" in error
    assert "the same command with --resume" in error
    assert "Traceback" not in error


def test_a_command_that_is_stopped_while_it_compares_says_what_is_saved(tmp_path):
    words = [sys.executable, "-m", "gradband", "learn", "--horizon", "20", "--iterations", "2"]
    words += ["--compare-on", "100000000", "--json", "--out", str(tmp_path)]
    with started(words, tmp_path / "policy.safetensors") as process:
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + signal.SIGTERM, "")
    assert f"the learned policy is saved in {tmp_path / 'policy.safetensors'}" in error
    assert "--resume only compares" in error
    assert "Traceback" not in error


@pytest.mark.slow
def test_a_hundred_kills_change_nothing(tmp_path):
    """Killed at random moments, resumed each time: the bits of a run that was left alone."""
    rng = random.Random(0)
    alone = json.loads(
        subprocess.run([*WORDS, str(tmp_path / "alone")], capture_output=True, check=True).stdout
    )
    began = time.monotonic()
    subprocess.run([*WORDS, str(tmp_path / "timed")], capture_output=True, check=True)
    length = time.monotonic() - began
    kills = ends = 0
    while kills < 100:
        process = subprocess.Popen(
            [*WORDS, str(tmp_path / f"killed {ends}")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            out, _ = process.communicate(timeout=rng.uniform(0.3, 1.0) * length)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            continue
        found = json.loads(out)
        assert found["params"] == alone["params"]
        assert found["regret"] == alone["regret"]
        ends += 1
    print(f"{kills} kills, {ends} runs that came to their end")
    assert ends


def test_any_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    cut_off(path, 3)
    data, rng = path.read_bytes(), np.random.default_rng(0)
    known = tensor_file.parse(data, "checkpoint", path)
    for _ in range(400):
        at, bit = int(rng.integers(len(data))), 1 << int(rng.integers(8))
        changed = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
        try:
            found = tensor_file.parse(changed, "checkpoint", path)
        except gb.InputError:
            continue
        # A space of the header's end, or a letter of the word checksum, says nothing.
        assert found[1] == known[1]
        assert all(np.array_equal(found[0][name], array) for name, array in known[0].items())


def test_an_interruption_that_a_library_swallows_comes_again(monkeypatch):
    monkeypatch.setattr(interruption, "AGAIN", 0.2)
    began = time.monotonic()

    def swallow_one():
        with interruption.at_once("kept"):
            with contextlib.suppress(interruption.Interrupted):
                signal.raise_signal(signal.SIGTERM)
            time.sleep(30)

    with pytest.raises(interruption.Interrupted, match="kept") as stopped:
        swallow_one()
    assert time.monotonic() - began < 20
    assert stopped.value.number == signal.SIGTERM
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
