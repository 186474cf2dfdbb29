"""The speed table: gradband side by side with peers and limits, every ratio from one run.

Each row is timed in turns, ours and the peer's, several times; the ratio is that of the best times,
and its spread is the range of the turns' own ratios. On a busy machine seconds mean little and ratios much.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
TORCH = "torch==2.13.0"


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def in_turns(ours: Callable[[], object], peer: Callable[[], object], repeats: int) -> dict[str, float]:
    """Best seconds of each, their ratio, and the least and greatest ratio of a turn."""
    ours(), peer()  # compile
    times = [(seconds(ours), seconds(peer)) for _ in range(repeats)]
    mine, theirs = (min(column) for column in zip(*times, strict=True))
    ratios = [b / a for a, b in times]
    return {
        "ours": mine,
        "peer": theirs,
        "ratio": theirs / mine,
        "low": min(ratios),
        "high": max(ratios),
    }


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
            mine, theirs = [], []
            for _ in range(max(2, repeats // 2)):
                mine.append(seconds(ours))
                out = subprocess.run(script, check=True, capture_output=True, text=True).stdout
                theirs.append(100 * json.loads(out)["seconds_per_iteration"])
            ratios = [b / a for a, b in zip(mine, theirs, strict=True)]
            rows.append(
                {
                    "what": f"SoftElim training, two-point, against eager PyTorch ({style})",
                    "ours": min(mine),
                    "peer": min(theirs),
                    "ratio": min(theirs) / min(mine),
                    "low": min(ratios),
                    "high": max(ratios),
                }
            )
    return rows


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
        ours, peer = (min(column) for column in zip(*turns, strict=True))
        ratios = [b / a for a, b in turns]
        row = {"ours": ours, "peer": peer, "ratio": peer / ours, "low": min(ratios), "high": max(ratios)}
        rows.append({"what": f"a SoftElim gradient, two-point, m=1000, and the same {what}", **row})
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
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    repeats = 3 if arguments.quick else 9
    rows = [
        *training_rows(repeats, torch=not arguments.quick),
        *evaluation_rows(repeats),
        iteration_row(repeats),
        *([] if arguments.quick else choice_rows() + memory_rows()),
        start_row(repeats),
    ]
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
