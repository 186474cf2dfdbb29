"""Rows on growth: with instances, arms, rounds, devices and processes; and what checkpoints cost."""

import json
import math
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from timing import Row, compared, seconds


def slope(work: Callable[[int], object], sizes: list[int], repeats: int) -> Row:
    """The slope of log seconds over log size, by least squares; its range is that of single turns."""
    for size in sizes:
        work(size)  # compile
    turns = [[seconds(lambda size=size: work(size)) for size in sizes] for _ in range(repeats)]
    logs = [math.log(size) for size in sizes]

    def fitted(times: list[float]) -> float:
        return statistics.linear_regression(logs, [math.log(t) for t in times]).slope

    best = [min(column) for column in zip(*turns, strict=True)]
    slopes = [fitted(times) for times in turns]
    found = {
        "ours": best[0],
        "peer": best[-1],
        "ratio": fitted(best),
        "low": min(slopes),
        "high": max(slopes),
    }
    return found | {"sizes": sizes, "seconds": best}


def growth_rows(repeats: int) -> list[Row]:
    """Seconds of SoftElim's gradient and evaluation at the ends of two decades, and the slope between."""
    import gradband as gb

    named = gb.problems.named

    def gradient(m: int = 2000, k: int = 10, n: int = 200) -> object:
        return gb.estimate("softelim", named("bernoulli-10", arms=k, horizon=n), instances=m)

    def evaluation(m: int = 4000, k: int = 10, n: int = 200) -> object:
        return gb.evaluate(["softelim"], named("bernoulli-10", arms=k, horizon=n), instances=m)

    sizes = {"m": [2000, 6000, 20_000, 60_000, 200_000], "n": [100, 300, 1000, 3000, 10_000]}
    sizes["k"] = [2, 6, 20, 60, 200]
    rows: list[Row] = []
    for what, work in (("gradient", gradient), ("evaluation", evaluation)):
        for name, values in sizes.items():
            found = slope(lambda size, work=work, name=name: work(**{name: size}), values, repeats)
            ends = f"{values[0]} to {values[-1]}"
            rows.append({"what": f"slope of a SoftElim {what} over {name}, {ends}", **found})
    return rows


def iteration_seconds(policy: str, problem: str, devices: int, iterations: int) -> float:
    """Seconds from one iteration to the next, after the first."""
    import gradband as gb

    ends: list[float] = []
    settings = {"recipe": "paper", "curriculum": []} if policy == "lstm" else {}
    gb.learn(
        policy,
        problem,
        iterations=iterations,
        devices=devices,
        progress=lambda step: ends.append(time.perf_counter()),
        **settings,
    )
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def device_rows(repeats: int) -> list[Row]:
    """An iteration on two devices (ours) and on one (peer)."""
    rows: list[Row] = []
    for policy, problem, iterations in (("softelim", "two-point", 60), ("lstm", "uniform-2", 4)):
        for devices in (1, 2):
            iteration_seconds(policy, problem, devices, 2)
        turns = [
            tuple(iteration_seconds(policy, problem, devices, iterations) for devices in (2, 1))
            for _ in range(repeats)
        ]
        what = f"an iteration of {policy} on {problem}, two devices against one"
        rows.append({"what": what, **compared(turns)})
    return rows


def process_rows(repeats: int) -> list[Row]:
    """Seconds of an iteration in two processes (ours) and in one with two devices (peer), same bits."""
    rows: list[Row] = []
    for policy, problem, counts in (("softelim", "two-point", (20, 420)), ("lstm", "uniform-2", (2, 14))):
        turns, seen = [], set()
        for _ in range(repeats):
            turn = []
            for processes in (2, 1):
                short, long = (learned_in(policy, problem, processes, count) for count in counts)
                turn.append((long["seconds"] - short["seconds"]) / (counts[1] - counts[0]))
                seen.add(long["regret"])
            turns.append(tuple(turn))
        assert len(seen) == 1, "several processes must come to the same result"
        what = f"an iteration of {policy} on {problem}, two processes against one with two devices"
        rows.append({"what": what, **compared(turns)})
    return rows


def learned_in(policy: str, problem: str, processes: int, iterations: int) -> dict[str, float]:
    """Training seconds, and the regret of what was learned, in so many processes with two cores in all."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        command = [sys.executable, "-m", "gradband", "learn", problem, "--policy", policy, "--json"]
        command += [
            "--iterations",
            str(iterations),
            "--instances",
            "1000",
            "--devices",
            str(2 // processes),
        ]
        command += ["--recipe", "paper", "--curriculum", "none"] if policy == "lstm" else []
        running = []
        for i in range(processes):
            own = [
                "--coordinator",
                f"127.0.0.1:{port}",
                "--processes",
                str(processes),
                "--process-id",
                str(i),
            ]
            out = ["--out", str(Path(folder) / str(i))]
            given = [*command, *out, *(own if processes > 1 else [])]
            quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            running.append(subprocess.Popen(given, text=True, **quiet))
        texts = [process.communicate()[0] for process in running]
        assert not any(process.returncode for process in running)
        told = json.loads(texts[0])
        from gradband import load

        about = load(told["files"]["policy"]).about
        return {"seconds": about["training"]["seconds"], "regret": told["regret"]["mean"]}


def checkpoint_rows(repeats: int) -> list[Row]:
    """Training without checkpoints (peer) and with one every ten iterations (ours)."""
    import gradband as gb

    rows: list[Row] = []
    cases = {
        "softelim": ("two-point", {"iterations": 300}),
        "lstm": ("uniform-2", {"iterations": 30, "recipe": "paper", "curriculum": []}),
    }
    for policy, (problem, settings) in cases.items():

        def learned(checkpoint: bool, policy=policy, problem=problem, settings=settings) -> object:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "checkpoint.safetensors" if checkpoint else None
                return gb.learn(policy, problem, checkpoint=path, **settings)

        learned(True), learned(False)
        turns = [
            (seconds(lambda f=learned: f(True)), seconds(lambda f=learned: f(False)))
            for _ in range(repeats)
        ]
        what = f"{policy} on {problem} with a checkpoint every ten iterations, against without"
        rows.append({"what": what, **compared(turns)})
    return rows
