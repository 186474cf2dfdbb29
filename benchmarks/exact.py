"""Seconds, peak memory and errors of the exact solvers, after compilation.

    .venv/bin/python benchmarks/exact.py [--quick]

Each row runs in a process of its own, which solves a tiny problem first. --quick leaves out n = 1000.
"""

import json
import resource
import subprocess
import sys
import time


def two_arms(horizon):
    from gradband.core import resources
    from gradband.solvers.two_arms import solve

    def run(n):
        return solve([1, 1], [1, 1], n, resources.cores())[0]

    return run, horizon, lambda value: f"reward {value:.12f}, regret {2 * horizon / 3 - value:.6f}"


def gittins(horizon):
    from gradband.core import resources
    from gradband.solvers.gittins import finite_horizon

    def run(n):
        return finite_horizon(1, 1, n, resources.cores())[1]

    return run, horizon, lambda error: f"error ≤ {error:.1e}"


def finite(name, arms):
    from gradband import exact, problems

    def run(n):
        return exact.optimum(problems.named(name, arms, n)).regret

    return run, 200, lambda regret: f"regret {regret:.6f}"


def counts(name):
    from gradband import exact, problems

    def run(n):
        return exact.by_counts(name, problems.named("two-point", horizon=n)).regret

    return run, 200, lambda regret: f"regret {regret:.6f}"


PROGRAMS = {
    "optimum of uniform-2, n = 60": (two_arms, 60),
    "optimum of uniform-2, n = 200": (two_arms, 200),
    "optimum of uniform-2, n = 1000": (two_arms, 1000),
    "Gittins table, n = 200": (gittins, 200),
    "Gittins table, n = 1000": (gittins, 1000),
    "optimum of two-point, n = 200": (finite, "two-point", None),
    "optimum of distractors, K = 3": (finite, "distractors", 3),
    "optimum of distractors, K = 10": (finite, "distractors", 10),
    "exact SoftElim and its gradient, two-point, n = 200": (counts, "softelim"),
    "exact Thompson sampling, two-point, n = 200": (counts, "ts"),
}


def measure(what):
    program, *arguments = PROGRAMS[what]
    run, size, words = program(*arguments)
    run(8)
    began = time.perf_counter()
    result = run(size)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "bytes": peak, "result": words(result)}))


def main():
    for what in PROGRAMS:
        if "--quick" in sys.argv and "1000" in what:
            continue
        command = [sys.executable, __file__, "--measure", what]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        row = json.loads(ran.stdout)
        print(
            f"{what:<52} {row['seconds']:8.2f} s  {row['bytes'] / 1e9:5.2f} GB  {row['result']}", flush=True
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2])
    else:
        main()
