"""Learned SoftElim and KL-SoftElim over seeds, beside the best of a grid.

    python benchmarks/learning.py --headlines runs/headlines/fitted.toml --out runs/learning.jsonl

The grid has 30 values of θ, over four and a half decades. KL-SoftElim, which has three parameters, is
compared with its own best seed. All are evaluated on the same instances, which no learning has seen. Each
row is written at once; rows that are already in the file are not computed again. The headline problem comes
from `gradband fit upworthy.csv --arms 4 --horizon 3000 --pulls-per-round 100 --prior hierarchical`.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import gradband as gb
from gradband.policies.policy_file import Learned

NAMES = ["headlines", "two-point", "bernoulli-10", "beta-10", "short", "gaussian"]
POLICIES = ["softelim", "kl-softelim"]
JUDGED_BY = 987_654_321  # the seed of the instances that all are evaluated on
GRID = np.logspace(-3.5, 1, 30)


def problem_of(name, headlines):
    if name == "headlines":
        return gb.problems.load(str(headlines))
    if name == "short":
        return gb.Problem(gb.priors.Beta(arms=4), horizon=20)
    if name == "gaussian":
        return gb.Problem(gb.priors.Gaussian(arms=5), horizon=200)
    return gb.problems.named(name)


class Rows:
    """Rows in a file, one JSON object in a line, by what they are about."""

    def __init__(self, path):
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.known = {row["what"]: row for row in map(json.loads, lines)}

    def get(self, what, make):
        if what not in self.known:
            self.known[what] = {"what": what, **make()}
            with self.path.open("a") as file:
                file.write(json.dumps(self.known[what]) + "\n")
        return self.known[what]


def measured(entry, problem, instances):
    row = gb.evaluate({"one": entry}, problem, instances=instances, seed=JUDGED_BY).rows[0]
    return {"regret": row.regret.mean, "se": row.regret.se}


def learned(policy, problem, seed, instances):
    began = time.perf_counter()
    found = gb.learn(policy, problem, seed=seed)
    seconds = time.perf_counter() - began
    params = {name: float(value) for name, value in found.params.items()}
    chosen = found.about.get("choice", {}).get("chosen", "last")
    return {"params": params, "chosen": chosen, "seconds": round(seconds, 2)} | measured(
        found, problem, instances
    )


def paired(entries, problem, instances):
    """Standard error of the difference between two entries."""
    table = gb.evaluate(dict(zip("ab", entries, strict=True)), problem, instances=instances, seed=JUDGED_BY)
    return table.difference("a", "b").se


def study(name, policy, problem, rows, seeds, instances):
    """One line of the table: mean and worst excess over the reference, in percent."""
    unit = 4.0 if name == "gaussian" else 1.0
    found = [
        rows.get(
            f"{name} {policy} seed {seed}", lambda seed=seed: learned(policy, problem, seed, instances)
        )
        for seed in seeds
    ]
    if policy == "softelim":
        points = {
            theta: rows.get(
                f"{name} {policy} θ = {theta:.4g}",
                lambda theta=theta: measured(gb.policies.SoftElim(theta=theta), problem, instances),
            )["regret"]
            for theta in (GRID * unit).tolist()
        }
        at = min(points, key=points.get)
        best, words = points[at], f"θ = {at:.4g}"
        reference = gb.policies.SoftElim(theta=at)
    else:
        row = min(found, key=lambda row: row["regret"])
        best, words = row["regret"], ", ".join(f"{k} = {v:.3g}" for k, v in row["params"].items())
        reference = bound(policy, problem, row["params"])
    last = max(found, key=lambda row: row["regret"])
    others = bound(policy, problem, last["params"]), reference
    se = rows.get(
        f"{name} {policy} paired {best} {last['regret']}",
        lambda: {"se": paired(others, problem, instances)},
    )["se"]
    excess = np.array([100 * (row["regret"] / best - 1) for row in found])
    return [name, policy, f"{best:.3f}", words, excess.mean(), excess.max(), 100 * se / best, found]


def bound(policy, problem, params):
    made = gb.policies.named(policy).bind(problem.arms, problem.horizon)
    return Learned(made, made.as_params(params), {}, {})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--problem", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--policy", nargs="*", default=POLICIES, choices=POLICIES)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 20), metavar=("FROM", "TO"))
    parser.add_argument("--instances", type=int, default=40_000)
    parser.add_argument("--headlines", type=Path, default=Path("runs/headlines/fitted.toml"))
    parser.add_argument("--out", type=Path, default=Path("runs/learning.jsonl"))
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    rows = Rows(given.out)
    print("problem | policy | reference | at | mean % | worst % | ± paired se of the worst, % | seconds")
    for name in given.problem:
        for policy in given.policy:
            if (name, policy) == ("gaussian", "kl-softelim"):
                continue  # which is for rewards in [0, 1]
            problem = problem_of(name, given.headlines)
            *line, found = study(name, policy, problem, rows, range(*given.seeds), given.instances)
            seconds = np.median([row["seconds"] for row in found])
            cells = [cell if isinstance(cell, str) else f"{cell:+.2f}" for cell in line]
            print(" | ".join([*cells, f"{seconds:.1f}"]), flush=True)


if __name__ == "__main__":
    main()
