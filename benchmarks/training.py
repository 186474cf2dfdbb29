"""Rows on training: SoftElim and the LSTM against Numba, PyTorch and matrix products; cost of choices."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from timing import HERE, compared, in_turns, reported, seconds, torch_python


def training_rows(repeats: int, torch: bool) -> list[dict]:
    import gradband as gb

    problem = gb.problems.named("two-point")

    def ours() -> object:
        return gb.learn("softelim", problem, recipe="algorithm-1", iterations=100, instances=1000)

    rows = []
    try:
        import numba_plain
        import numba_vector
    except ImportError:
        print("numba is not installed: its rows are left out (make bench installs it)", file=sys.stderr)
    else:
        vector = "Numba kernel for vector units"
        for what, peer in (
            ("Numba kernel", numba_plain.train),
            (vector, numba_vector.train),
            (f"{vector}, with gradband's generator", partial(numba_vector.train, hashed=True)),
        ):
            row = in_turns(ours, partial(peer, 0), repeats)
            rows.append({"what": f"SoftElim training, two-point, against a {what}", **row})
        means = [[0.6 if i == best else 0.4 for i in range(10)] for best in (0, 5)]
        ten = gb.Problem(gb.priors.Finite(means), horizon=1000)
        size = {"iterations": 10, "instances": 1000}
        row = in_turns(
            lambda: gb.learn("softelim", ten, recipe="algorithm-1", **size),
            lambda: numba_vector.train(0, horizon=1000, means=means, **size),
            repeats,
        )
        rows.append({"what": f"SoftElim training, K=10, n=1000, against a {vector}", **row})
    if torch and (python := torch_python()):
        for style in ("listing", "tuned"):
            script = [python, str(HERE / "torch_softelim.py"), "--iterations", "20", "--style", style]
            ours()
            turns = [
                (seconds(ours), 100 * reported(script)["seconds_per_iteration"])
                for _ in range(max(2, repeats // 2))
            ]
            what = f"SoftElim training, two-point, against eager PyTorch ({style})"
            rows.append({"what": what, **compared(turns)})
    return rows


def iteration_row(repeats: int) -> dict:
    import gradband as gb

    def iteration(name: str) -> Callable[[], object]:
        problem = gb.problems.named(name)
        return lambda: gb.estimate(gb.policies.SoftElim(), problem, instances=1000)

    row = in_turns(iteration("beta-10"), iteration("bernoulli-10"), repeats)
    return {"what": "a SoftElim gradient on beta-10 (ours) and on bernoulli-10 (peer)", **row}


def choice_rows() -> list[dict]:
    """What a gradient costs without each choice of the engine."""

    # Flags of the user's own keep gradband from setting its own: these are XLA's usual ones.
    usual_flags = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1024"

    def best(without: str, **environment: str) -> float:
        command = [sys.executable, str(HERE / "choices.py"), without]
        variables = os.environ | environment
        return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=variables).stdout)

    rows = []
    for what, arguments, environment in (
        ("with vmap", "batching", {}),
        ("with fold_in", "hashing", {}),
        ("with XLA's usual flags", "nothing", {"XLA_FLAGS": usual_flags}),
    ):
        turns = [(best("nothing"), best(arguments, **environment)) for _ in range(3)]
        what = f"a SoftElim gradient, two-point, m=1000, and the same {what}"
        rows.append({"what": what, **compared(turns)})
    return rows


LSTM_MEMORY = """
import json
import jax.numpy as jnp
import gradband as gb
def held(what):
    line = next(line for line in open("/proc/self/status") if line.startswith(what))
    return int(line.split()[1]) * 1024
jnp.zeros(1).block_until_ready()
rest = held("VmRSS")
gb.learn("lstm", "uniform-2", recipe="paper", curriculum=[], iterations=2)
print(json.dumps({"rest": rest, "peak": held("VmHWM")}))
"""
LSTM_BYTES = 400e6  # what an iteration may take


def lstm_rows(repeats: int, torch: bool) -> list[dict]:
    """Seconds of an iteration of the paper's LSTM, K=2, d=50, m=500, n=200, R=2, and its memory."""
    import products

    import gradband as gb

    def ours() -> float:
        """Seconds from one iteration to the next, after the first, in which the optimiser is compiled."""
        ends: list[float] = []
        gb.learn(
            "lstm",
            "uniform-2",
            recipe="paper",
            curriculum=[],
            iterations=6,
            progress=lambda step: ends.append(time.perf_counter()),
        )
        return (ends[-1] - ends[0]) / (len(ends) - 1)

    ours()
    turns = [(ours(), products.seconds()) for _ in range(repeats)]
    rows = [{"what": "an LSTM iteration against its matrix products alone", **compared(turns)}]
    if not torch:
        return rows
    if python := torch_python():
        for style, runs in (("one", "1 run of 2"), ("both", "both runs")):
            script = [python, str(HERE / "torch_lstm.py"), "--iterations", "3", "--style", style]
            pairs = [(ours(), reported(script)) for _ in range(max(2, repeats // 2))]
            row = compared([(mine, theirs["seconds_per_iteration"]) for mine, theirs in pairs])
            best = min((theirs for _, theirs in pairs), key=lambda theirs: theirs["seconds_per_iteration"])
            what = f"eager PyTorch ({runs}, threads: {best['threads']})"
            rows.append({"what": f"an LSTM iteration against {what}", **row})
    if Path("/proc/self/status").exists():
        # JAX's own cache of compiled code is empty at first, and then holds all that is needed.
        command = [sys.executable, "-c", LSTM_MEMORY]
        with tempfile.TemporaryDirectory() as folder:
            cached = {
                "JAX_COMPILATION_CACHE_DIR": folder,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            }
            told = [reported(command, **cached) for _ in range(4)]
        most = [one["peak"] - one["rest"] for one in told]
        for what, taken in (("compiled before", max(most[1:])), ("compiling included", most[0])):
            row = compared([(taken, LSTM_BYTES)])
            rows.append({"what": f"bytes of LSTM iterations beyond rest, {what} (peer: limit)", **row})
    return rows
