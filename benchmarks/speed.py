"""The speed table: gradband side by side with peers and limits, every ratio from one run.

Each row is timed in turns, ours and the peer's, several times; the ratio is that of the best times,
and its spread is the range of the turns' own ratios. On a busy machine seconds mean little and ratios much.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gradband.commands.bench import ROWS

HERE = Path(__file__).parent
TORCH = "torch==2.13.0"


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compared(turns: list[tuple[float, float]]) -> dict[str, float]:
    """Best seconds of ours and of the peer, their ratio, and the least and greatest ratio of a turn."""
    mine, theirs = (min(column) for column in zip(*turns, strict=True))
    ratios = [b / a for a, b in turns]
    return {
        "ours": mine,
        "peer": theirs,
        "ratio": theirs / mine,
        "low": min(ratios),
        "high": max(ratios),
    }


def in_turns(ours: Callable[[], object], peer: Callable[[], object], repeats: int) -> dict[str, float]:
    ours(), peer()  # compile
    return compared([(seconds(ours), seconds(peer)) for _ in range(repeats)])


def training_rows(repeats: int, torch: bool) -> list[dict]:
    import gradband as gb

    problem = gb.problems.named("two-point")

    def ours() -> object:
        return gb.learn(gb.policies.SoftElim(), problem, iterations=100, batch=1000)

    rows = []
    try:
        import numba_plain
        import numba_vector
    except ImportError:
        print("numba is not installed: its rows are left out (make bench installs it)", file=sys.stderr)
    else:
        for what, peer in (("Numba kernel", numba_plain), ("Numba kernel for vector units", numba_vector)):
            row = in_turns(ours, lambda peer=peer: peer.train(0), repeats)
            rows.append({"what": f"SoftElim training, two-point, against a {what}", **row})
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


def reported(command: list[str], **environment: str) -> dict[str, float]:
    """The JSON object that a process of its own prints."""
    variables = os.environ | environment
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=variables)
    return json.loads(ran.stdout)


def torch_python() -> str | None:
    """The Python of an environment with PyTorch, made in the cache folder when first needed."""
    from gradband import cache

    home = cache.folder("torch")
    if home is None:
        return None
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        print(f"installing {TORCH} into {home}", file=sys.stderr)
        try:
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
            install = [str(python), "-m", "pip", "install", "-q", TORCH, "numpy"]
            subprocess.run(install, check=True, stdout=sys.stderr)
            (home / "ready").touch()
        except subprocess.CalledProcessError:
            print("PyTorch can't be installed: its rows are left out", file=sys.stderr)
            return None
    return str(python)


def evaluation_rows(repeats: int) -> list[dict]:
    import numpy_softelim

    import gradband as gb

    problem = gb.problems.named("bernoulli-10")
    count = 2000

    def ours() -> object:
        return gb.evaluate([gb.policies.SoftElim()], problem, instances=count)

    rows = []
    for what, peer in (("", numpy_softelim.evaluate), (", tuned", numpy_softelim.evaluate_tuned)):
        row = in_turns(ours, lambda peer=peer: peer(1.0, instances=count), repeats)
        rows.append({"what": f"SoftElim evaluation, K=10, n=1000, against NumPy vectorised{what}", **row})
        rows[-1]["pulls_per_second"] = count * 1000 / row["ours"]
    return rows


def iteration_row(repeats: int) -> dict:
    import gradband as gb

    def iteration(name: str) -> Callable[[], object]:
        problem = gb.problems.named(name)
        return lambda: gb.estimate(gb.policies.SoftElim(), problem, instances=1000)

    row = in_turns(iteration("beta-10"), iteration("bernoulli-10"), repeats)
    return {"what": "a SoftElim gradient on beta-10 (ours) and on bernoulli-10 (peer)", **row}


MEMORY = """
import sys
import gradband as gb
m, n = int(sys.argv[1]), int(sys.argv[2])
gb.estimate(gb.policies.SoftElim(), gb.problems.named("bernoulli-10", horizon=n), instances=m)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024)
"""


def memory_rows() -> list[dict]:
    """Peaks of whole processes. What the system keeps of a parent's peak would hide them: read /proc."""
    if not Path("/proc/self/status").exists():
        return []

    def peak(m: int, n: int) -> float:
        command = [sys.executable, "-c", MEMORY, str(m), str(n)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    base = peak(1000, 1000)
    return [
        {"what": f"peak bytes of a gradient, K=10, {what} (peer: m=1000, n=1000)", "ours": p, "peer": base}
        | {"ratio": base / p, "low": base / p, "high": base / p}
        for what, p in (("m=100 000, n=1000", peak(100_000, 1000)), ("m=1000, n=4000", peak(1000, 4000)))
    ]


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


def start_row(repeats: int) -> dict:
    command = [sys.executable, "-m", "gradband", "--help"]

    def run(command: list[str]) -> Callable[[], object]:
        return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    row = in_turns(run(command), run([sys.executable, "-c", "pass"]), repeats)
    return {"what": "gradband --help against an empty Python program", **row}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, no PyTorch")
    parser.add_argument("--only", choices=ROWS, help="only these rows")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    repeats, torch = (3, False) if arguments.quick else (9, True)
    measure: dict[str, Callable[[], list[dict]]] = {
        "training": lambda: training_rows(repeats, torch),
        "lstm": lambda: lstm_rows(repeats, torch),
        "evaluation": lambda: evaluation_rows(repeats),
        "gradient": lambda: [iteration_row(repeats)],
        "choices": choice_rows,
        "memory": memory_rows,
        "start": lambda: [start_row(repeats)],
    }
    usual = [name for name in ROWS if not (arguments.quick and name in ("choices", "memory"))]
    rows = [row for name in ([arguments.only] if arguments.only else usual) for row in measure[name]()]
    if arguments.json:
        print(
            json.dumps(
                {"rows": rows, "machine": {"cores": os.cpu_count(), "python": sys.version.split()[0]}}
            )
        )
        return
    from gradband.report.terminal import print_table

    print_table(
        "Seconds, or bytes, of ours and of a peer, and the ratio peer / ours",
        ["what", "ours", "peer", "peer / ours", "range"],
        [
            [
                row["what"],
                f"{row['ours']:.4g}",
                f"{row['peer']:.4g}",
                f"{row['ratio']:.2f}",
                f"{row['low']:.2f}-{row['high']:.2f}",
            ]
            for row in rows
        ],
    )


if __name__ == "__main__":
    main()
