"""Rows on memory and on starting up."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from timing import in_turns

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


def start_row(repeats: int) -> dict:
    command = [sys.executable, "-m", "gradband", "--help"]

    def run(command: list[str]) -> Callable[[], object]:
        return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    row = in_turns(run(command), run([sys.executable, "-c", "pass"]), repeats)
    return {"what": "gradband --help against an empty Python program", **row}
