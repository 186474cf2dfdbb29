"""Several processes learn what one learns, and none is left behind when another dies."""

import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gradband.cli.main import main
from gradband.core import tensor_file
from gradband.core.errors import InputError
from gradband.engine import processes

pytestmark = pytest.mark.brief
LEARN = [sys.executable, "-m", "gradband", "learn"]
SMALL = ["two-point", "--horizon", "20", "--compare-on", "1300", "--devices", "1", "--json"]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(count, *words, prefixes=None, address="127.0.0.1"):
    """Processes that learn together."""
    where = f"{address}:{free_port()}"
    return [
        subprocess.Popen(
            [*(prefixes[rank] if prefixes else []), *LEARN, *words]
            + ["--coordinator", where, "--process", f"{rank}/{count}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def ended(running, seconds=180):
    """What the processes said, and their exit codes."""
    said = [process.communicate(timeout=seconds) for process in running]
    return [process.returncode for process in running], said


def learned(folder, *words):
    """What one process learns: this one."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as told:
        patch.setattr(sys, "argv", ["gradband", "learn", *SMALL, *words, "--out", str(folder)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    return json.loads(told.getvalue())


def same(one, other):
    """Whether two results have the same bits, whoever made them, and wherever their files are."""
    keys = ("params", "regret", "regret_before", "benchmarks")
    return all(one[key] == other[key] for key in keys)


WORDS = ("--iterations", "6", "--instances", "1300")  # three blocks


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return learned(tmp_path_factory.mktemp("alone"), *WORDS)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_give_the_bits_of_one(alone, tmp_path, count):
    """Here on one machine; blocks do not share out evenly, and one process writes."""
    codes, said = ended(start(count, *SMALL, *WORDS, "--out", str(tmp_path / "together")))
    assert codes == [0] * count, said
    assert same(json.loads(said[0][0]), alone)
    assert all(out == "" for out, _ in said[1:])
    assert (tmp_path / "together" / "policy.safetensors").exists()


@pytest.mark.slow
def test_networks_too(tmp_path):
    words = ("--policy", "lstm:hidden=8", "--iterations", "3", "--instances", "300")
    codes, said = ended(start(3, *SMALL, *words, "--out", str(tmp_path / "together")))
    assert codes == [0] * 3, said
    assert same(json.loads(said[0][0]), learned(tmp_path / "alone", *words))
    one, other = (
        tensor_file.load(tmp_path / name / "policy.safetensors", "policy")[0]
        for name in ("alone", "together")
    )
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])


def slurm(count, rank):
    """What Slurm tells a process; the port follows from the job."""
    told = {"JOB_ID": os.getpid(), "STEP_NODELIST": "127.0.0.1", "STEP_NUM_NODES": 1}
    told |= {"NTASKS": count, "PROCID": rank, "LOCALID": rank}
    return {f"SLURM_{name}": str(value) for name, value in told.items()}


def open_mpi(count, rank):
    """What mpirun tells a process; the port follows from the job, a multiple of 4096."""
    told = {"SIZE": count, "RANK": rank, "LOCAL_RANK": rank}
    where = {"OMPI_MCA_orte_hnp_uri": f"{4096 * (os.getpid() + 1)}.0;tcp://127.0.0.1,10.0.0.9:34911"}
    return where | {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in told.items()}


@pytest.mark.slow
@pytest.mark.parametrize("environment", [slurm, open_mpi])
def test_processes_find_each_other_by_themselves(alone, tmp_path, environment):
    words = [*LEARN, *SMALL, *WORDS, "--coordinator=auto", "--out", str(tmp_path / "together")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(words, env=os.environ | environment(2, rank), **pipes) for rank in (0, 1)]
    codes, said = ended(running)
    assert codes == [0, 0], said
    assert same(json.loads(said[0][0]), alone)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [1, 0])
def test_a_process_that_hangs_ends_the_others(tmp_path, victim):
    """It is stopped, and shows no sign of life; its connections stay open."""
    folder = tmp_path / "together"
    running = start(2, *SMALL, "--iterations", "100000", "--instances", "700", "--out", str(folder))
    deadline = time.monotonic() + 120
    while not (folder / "checkpoint.safetensors").exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    running[victim].send_signal(signal.SIGSTOP)
    began = time.monotonic()
    try:
        _, error = running[1 - victim].communicate(timeout=60)
    finally:
        running[victim].kill()
        running[victim].communicate()
    assert time.monotonic() - began < 30
    assert running[1 - victim].returncode != 0
    assert "another process of this run" in error
    assert tensor_file.load(folder / "checkpoint.safetensors", "checkpoint")[1]["iteration"] >= 10


@pytest.mark.parametrize("victim", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_process_that_dies_ends_the_others(tmp_path, victim):
    folder = tmp_path / "together"
    words = [*SMALL, "--iterations", "3000", "--instances", "700", "--out", str(folder)]
    running = start(3, *words)
    deadline = time.monotonic() + 120
    while not (folder / "checkpoint.safetensors").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    running[victim].send_signal(signal.SIGKILL)
    began = time.monotonic()
    codes, said = ended(running, 30)
    assert time.monotonic() - began < 30
    for rank, (code, (_, error)) in enumerate(zip(codes, said, strict=True)):
        if rank != victim:
            assert code == 1
            assert "another process of this run has ended" in error
            assert "Traceback" not in error
    arrays, about = tensor_file.load(folder / "checkpoint.safetensors", "checkpoint")
    assert about["iteration"] == len(arrays["history.regret"]) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("victim", [1, 0])
def test_a_process_that_fails_ends_the_others(tmp_path, victim):
    """The problem's file is not where one of them looks for it."""
    folders = [tmp_path / "0", tmp_path / "1"]
    for folder in folders:
        folder.mkdir()
    problem = 'horizon = 20\n[prior]\nkind = "beta"\narms = 2\n'
    (folders[1 - victim] / "mine.toml").write_text(problem)
    words = ["mine.toml", *SMALL[1:], "--iterations", "3000", "--out", str(tmp_path / "together")]
    began = time.monotonic()
    codes, said = ended(start(2, *words, prefixes=[["env", "-C", str(folder)] for folder in folders]), 60)
    assert time.monotonic() - began < 45  # of which some seconds to start
    assert (codes[victim], codes[1 - victim]) == (2, 1), said
    assert "cannot read mine.toml" in said[victim][1]
    assert "another process of this run has ended" in said[1 - victim][1]


@pytest.mark.slow
@pytest.mark.parametrize("told", [0, 1])
def test_a_signal_to_one_process_is_one_to_all(tmp_path, told):
    """They leave after the same iteration, and the first one keeps it."""
    folder = tmp_path / "together"
    running = start(2, *SMALL, "--iterations", "100000", "--instances", "700", "--out", str(folder))
    deadline = time.monotonic() + 120
    while not (folder / "checkpoint.safetensors").exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    running[told].send_signal(signal.SIGTERM)
    codes, said = ended(running, 30)
    assert codes == [128 + signal.SIGTERM] * 2, said
    iteration = tensor_file.load(folder / "checkpoint.safetensors", "checkpoint")[1]["iteration"]
    for (_, error), place in zip(
        said, (f"in {folder / 'checkpoint.safetensors'}", "by the first process"), strict=True
    ):
        assert f"interrupted after iteration {iteration} of 100000, which is saved {place}" in error


LAST = """
import signal, sys
import gradband as gb
from gradband.cli import app, main
from gradband.core.errors import StoppedError
from gradband.engine import processes
from gradband.learning import interruption
where, rank, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def learn():
    processes.connect(where, 2, rank)

    def progress(step):
        if step.iteration == 3 and rank == 1:
            signal.raise_signal(signal.SIGTERM)

    problem = gb.problems.named("two-point", horizon=20)
    try:
        path = f"{folder}/{rank}.safetensors"
        gb.learn("softelim", problem, iterations=3, checkpoint=path, progress=progress)
    except interruption.Interrupted as stopped:
        raise StoppedError(str(stopped), 128 + stopped.number) from None

app.app = lambda words, standalone_mode: learn()
main.main()
"""


@pytest.mark.slow
def test_a_signal_in_the_last_iteration_is_one_to_all(tmp_path):
    where = f"127.0.0.1:{free_port()}"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    words = [sys.executable, "-c", LAST, where]
    running = [subprocess.Popen([*words, str(rank), str(tmp_path)], **pipes) for rank in (0, 1)]
    codes, said = ended(running, 60)
    assert codes == [128 + signal.SIGTERM] * 2, said
    assert all("interrupted after iteration 3 of 3" in error for _, error in said)
    assert tensor_file.load(tmp_path / "0.safetensors", "checkpoint")[1]["iteration"] == 3


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("127.0.0.1:80", 2, None), "together"),
        ((None, None, 1), "together"),
        (("nowhere", 2, 0), "an address such as"),
        (("host:99999", 2, 0), "an address such as"),
        (("host:80", 2, 2), "below the number of processes"),
        (("host:80", 0, 0), "processes must be"),
        (("host:80", 2, -1), "the number of a process must be"),
    ],
)
def test_what_is_said_of_the_processes_is_checked(given, says):
    with pytest.raises(InputError, match=says):
        processes.connect(*given)


def test_without_others_that_is_said(tmp_path):
    words = [*LEARN, *SMALL, "--coordinator=auto", "--out", str(tmp_path)]
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "OMPI", "KUBE"))
    }
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=clean)
    assert done.returncode == 2
    assert "no other processes were found" in done.stderr
    assert "Traceback" not in done.stderr


def namespaces():
    """Two network namespaces with addresses of their own, if this user may make them.

    In each, the machine's name is known by the address that it has there, as on machines of their own.
    """
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None:
        return "making network namespaces needs root and ip"
    made = subprocess.run(
        """
        ip netns add gradband0 && ip netns add gradband1 &&
        ip link add gradband0 type veth peer name gradband1 &&
        ip link set gradband0 netns gradband0 && ip link set gradband1 netns gradband1 &&
        ip -n gradband0 addr add 10.77.0.1/24 dev gradband0 && ip -n gradband0 link set gradband0 up &&
        ip -n gradband1 addr add 10.77.0.2/24 dev gradband1 && ip -n gradband1 link set gradband1 up &&
        ip -n gradband0 link set lo up && ip -n gradband1 link set lo up
        """,
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    for rank in (0, 1):
        folder = Path(f"/etc/netns/gradband{rank}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n10.77.0.{rank + 1} {socket.gethostname()}\n")
    return made.stderr.strip() if made.returncode else ""


@pytest.mark.slow
def test_two_machines_as_two_network_namespaces(alone, tmp_path):
    reason = namespaces()
    try:
        if reason:
            pytest.skip(reason)
        prefixes = [["ip", "netns", "exec", f"gradband{rank}"] for rank in (0, 1)]
        words = [*SMALL, *WORDS, "--out", str(tmp_path / "together")]
        codes, said = ended(start(2, *words, prefixes=prefixes, address="10.77.0.1"))
        assert codes == [0, 0], said
        assert same(json.loads(said[0][0]), alone)
    finally:
        for rank in (0, 1):
            subprocess.run(["ip", "netns", "delete", f"gradband{rank}"], capture_output=True, check=False)
            shutil.rmtree(f"/etc/netns/gradband{rank}", ignore_errors=True)
