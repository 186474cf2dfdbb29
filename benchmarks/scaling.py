"""Rows on growth with instances, arms, rounds, devices and processes, and on the cost of checkpoints."""

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


def iteration_seconds(
    policy: str, problem: str, devices: int, iterations: int, batch: int | None = None
) -> float:
    """Seconds from one iteration to the next, after the first."""
    import gradband as gb

    ends: list[float] = []
    settings = {"recipe": "paper", "curriculum": []} if policy == "lstm" else {}
    gb.learn(
        policy,
        problem,
        iterations=iterations,
        devices=devices,
        instances=batch,
        progress=lambda step: ends.append(time.perf_counter()),
        **settings,
    )
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def device_rows(repeats: int) -> list[Row]:
    """An iteration on two devices (ours) and on one (peer)."""
    cases = (("softelim", "two-point", 60, 1000), ("softelim", "two-point", 20, 10_000))
    rows: list[Row] = []
    for policy, problem, iterations, batch in (*cases, ("lstm", "uniform-2", 4, 500)):
        for devices in (1, 2):
            iteration_seconds(policy, problem, devices, 2, batch)
        turns = [
            tuple(iteration_seconds(policy, problem, devices, iterations, batch) for devices in (2, 1))
            for _ in range(repeats)
        ]
        what = f"an iteration of {policy} on {problem}, m={batch}, two devices against one"
        rows.append({"what": what, **compared(turns)})
    return rows


TOGETHER = """
import hashlib, json, sys, time
import jax
import gradband as gb
from gradband.engine import processes
policy, problem, count, rank, port, iterations = sys.argv[1:]
if count != "1":
    processes.connect(f"127.0.0.1:{port}", int(count), int(rank))
ends = []
settings = {"recipe": "paper", "curriculum": []} if policy == "lstm" else {}
settings |= {"iterations": int(iterations), "devices": 2 // int(count)}
learned = gb.learn(policy, problem, progress=lambda step: ends.append(time.perf_counter()), **settings)
seconds = (ends[-1] - ends[1]) / (len(ends) - 2)
digest = hashlib.sha256(jax.flatten_util.ravel_pytree(learned.params)[0].tobytes()).hexdigest()
print(json.dumps({"seconds": seconds, "digest": digest}))
"""


def process_rows(repeats: int) -> list[Row]:
    """Seconds of an iteration in two processes (ours) and in one with two devices (peer), same bits."""
    rows: list[Row] = []
    for policy, problem, iterations in (("softelim", "two-point", 300), ("lstm", "uniform-2", 12)):
        turns, seen = [], set()
        for _ in range(repeats):
            told = [learned_in(policy, problem, count, iterations) for count in (2, 1)]
            turns.append(tuple(one["seconds"] for one in told))
            seen |= {one["digest"] for one in told}
        assert len(seen) == 1, "several processes must come to the same result"
        what = f"an iteration of {policy} on {problem}, two processes against two devices"
        rows.append({"what": what, **compared(turns)})
    return rows


def learned_in(policy: str, problem: str, count: int, iterations: int) -> dict:
    """Seconds of an iteration, and a digest of what was learned, in so many processes with two cores."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = [sys.executable, "-c", TOGETHER, policy, problem, str(count)]
    running = [
        subprocess.Popen([*given, str(rank), str(port), str(iterations)], stdout=subprocess.PIPE, text=True)
        for rank in range(count)
    ]
    texts = [process.communicate()[0] for process in running]
    assert not any(process.returncode for process in running)
    return json.loads(texts[0].splitlines()[-1])


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
