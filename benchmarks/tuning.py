"""Rows on tuning θ: GradBand against Optuna's default sampler, at equal simulated pulls and at equal time.

Both look for SoftElim's θ on two-point, Optuna between 10⁻³ and 10³ on a logarithmic scale; a trial plays
a thousand instances, as many as an iteration of GradBand, which plays two runs on each.
The regret of what they find is exact.
"""

import statistics
import subprocess
import time
from collections.abc import Callable

from timing import HERE, Row, environment

ITERATIONS, BATCH = 100, 1000
LOW, HIGH = 1e-3, 1e3
INSTANCES = 1000


def optuna_rows(seeds: int) -> list[Row]:
    import gradband as gb

    python = environment("optuna", "optuna==5.0.0")
    if python is None:
        return []
    problem = gb.problems.named("two-point")
    pulls = (ITERATIONS + 1) * BATCH * 2 * problem.horizon  # and those that the step size is found from

    def exact(theta: float) -> float:
        return gb.exact.by_counts(gb.policies.SoftElim(theta=theta), problem).regret

    def gradband(seed: int) -> float:
        how = {"recipe": "algorithm-1", "iterations": ITERATIONS, "instances": BATCH, "seed": seed}
        return float(gb.learn(gb.policies.SoftElim(), problem, **how).params["theta"])

    def optuna(seed: int, more: Callable[[int], bool]) -> tuple[float, int]:
        """The best θ, and how many trials there were."""
        command = [python, str(HERE / "optuna_asks.py"), str(seed), str(LOW), str(HIGH)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, text=True, **pipes) as asks:
            trials, theta = 0, float(asks.stdout.readline())
            while more(trials):
                policy = gb.policies.SoftElim(theta=theta)
                found = gb.evaluate([policy], problem, instances=INSTANCES, seed=1000 * seed + trials)
                print(found.rows[0].regret.mean, file=asks.stdin, flush=True)
                trials, theta = trials + 1, float(asks.stdout.readline())
            print(file=asks.stdin, flush=True)
            return float(asks.stdout.readline()), trials

    gradband(0), optuna(0, lambda trials: trials < 3)  # compile
    found: dict[str, list[tuple[float, float]]] = {"pulls": [], "time": []}
    trials = []
    for seed in range(seeds):
        began = time.perf_counter()
        theta = gradband(seed)
        took, mine = time.perf_counter() - began, exact(theta)
        count = pulls // (INSTANCES * problem.horizon)
        theirs, _ = optuna(seed, lambda trials, count=count: trials < count)
        found["pulls"].append((mine, exact(theirs)))
        end = None

        def in_time(trials: int, took: float = took) -> bool:
            nonlocal end
            end = end or time.perf_counter() + took  # from the first question on: it has started
            return time.perf_counter() < end

        theirs, many = optuna(seed, in_time)
        found["time"].append((mine, exact(theirs)))
        trials.append(many)
    labels = {
        "pulls": f"equal pulls ({pulls / 1e6:.0f} million)",
        "time": f"equal time ({statistics.mean(trials):.0f} trials)",
    }
    rows: list[Row] = []
    for name, pairs in found.items():
        mine, theirs = (statistics.mean(column) for column in zip(*pairs, strict=True))
        ratios = [b / a for a, b in pairs]
        less = [b - a for a, b in pairs]
        row = {"what": f"regret of tuned SoftElim, two-point, against Optuna, {labels[name]}"}
        row |= {
            "ours": mine,
            "peer": theirs,
            "ratio": theirs / mine,
            "low": min(ratios),
            "high": max(ratios),
        }
        row |= {"less": statistics.mean(less), "less_se": statistics.stdev(less) / len(less) ** 0.5}
        rows.append(row)
    return rows
