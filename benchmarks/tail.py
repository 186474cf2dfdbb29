"""Policies learned for the mean regret and for the worst tenth, compared on the same fresh instances.

    python benchmarks/tail.py                    # all of it
    python benchmarks/tail.py --summary          # what is there so far

Each row is written at once; rows that are already in the file are not computed again.
"""

import argparse
import time
from pathlib import Path

from learning import Rows

import gradband as gb
from gradband.learning import recipes

JUDGED_BY = 987_654_321  # the seed of instances that nothing is learned on
SHARE = 0.1
PROBLEMS = {
    "two-point": lambda: gb.problems.named("two-point"),
    "uniform-2": lambda: gb.problems.named("uniform-2"),
    "uniform, K = 5, n = 100": lambda: gb.Problem(gb.priors.Beta(5), 100),
}


def study(policy, name, seed, instances):
    """One row: regret, CVaR and quantiles of both policies, and paired differences."""
    problem, began = PROBLEMS[name](), time.perf_counter()
    usual = recipes.choose(gb.policies.named(policy).bind(problem.arms, problem.horizon), None)
    learned = {
        aim: gb.learn(policy, problem, recipe=usual.aiming(aim), seed=seed, progress=False)
        for aim in ("mean", f"cvar:{SHARE}")
    }
    table = gb.evaluate(learned, problem, instances=instances, seed=JUDGED_BY)
    rows = {
        aim: {
            "regret": table[aim].regret.mean,
            "cvar": table[aim].cvar(SHARE).mean,
            "q95": table[aim].quantile(0.95).value,
            "q99": table[aim].quantile(0.99).value,
        }
        for aim in learned
    }
    lower, more = (
        table.difference_in_tail("mean", f"cvar:{SHARE}", SHARE),
        table.difference(*reversed(rows)),
    )
    own = {"lower": lower.mean, "lower_se": lower.se, "more": more.mean, "more_se": more.se}
    return rows | own | {"seconds": time.perf_counter() - began}


def show(rows):
    columns = "problem", "policy", "seed", "mean", "CVaR .1", "95 %", "99 %", "CVaR lower by"
    print("|", *(f"{column} |" for column in columns))
    print("|---" * len(columns) + "|")
    for what, row in rows.known.items():
        policy, name, seed = what.partition(" on ")[0].split(" / ")
        pairs = zip(row["mean"].values(), row[f"cvar:{SHARE}"].values(), strict=True)
        cells = " | ".join(f"{usual:.2f} → {tail:.2f}" for usual, tail in pairs)
        print(f"| {name} | {policy} | {seed} | {cells} | {row['lower']:.3f} ± {row['lower_se']:.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--problem", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--policy", nargs="*", default=["softelim", "beta-softelim"])
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 2), metavar=("FROM", "TO"))
    parser.add_argument("--instances", type=int, default=40_000)
    parser.add_argument("--out", type=Path, default=Path("runs/tail.jsonl"))
    parser.add_argument("--summary", action="store_true", help="show what is there, and compute nothing")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    rows = Rows(given.out)
    for seed in range(*given.seeds) if not given.summary else ():
        for policy in given.policy:
            for name in given.problem:
                what = f"{policy} / {name} / {seed} on {given.instances}"
                rows.get(what, lambda p=policy, n=name, s=seed: study(p, n, s, given.instances))
    show(rows)


if __name__ == "__main__":
    main()
