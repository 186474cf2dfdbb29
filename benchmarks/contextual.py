"""Policies on problems with contexts, learned and not, over seeds, beside the targets.

    python benchmarks/contextual.py                                       # all of it: hours
    python benchmarks/contextual.py --policy lin-softelim --problem dpt-linear --seeds 0 5
    python benchmarks/contextual.py --policy lin-softelim:variance=difference
    python benchmarks/contextual.py --problem groups --policy "by-group as it comes" --instances 40000
    python benchmarks/contextual.py --summary                             # what is there so far

Beliefs have the problem's prior. All policies are judged on the same fresh instances, 20 000 for each seed.
Each row is written at once; rows that are already in the file are not computed again.
"""

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np
from learning import Rows

import gradband as gb
from gradband.policies.given import parse_policy

JUDGED_BY = 555_000_111  # the first seed of instances that nothing is learned on
PROBLEMS = ("dpt-linear", "rvr-linear", "lin-5")
LEARNED = (
    "lin-softelim",
    "directed-softelim",
    "lin-boltzmann",
    "square-cb",
    "lin-epsilon-greedy",
    "belief-index",
    "pretrained-linear",
)
AS_IT_COMES = " as it comes"
OTHERS = ("pretrained-linear" + AS_IT_COMES, "lin-greedy", "lin-ts", "lin-bayes-ucb")
TARGETS = {
    ("lin-softelim", "dpt-linear"): 3.5,
    ("pretrained-linear" + AS_IT_COMES, "dpt-linear"): 2.9,
    ("lin-softelim", "rvr-linear"): 36.0,
    ("pretrained-linear" + AS_IT_COMES, "rvr-linear"): 29.5,
    ("pretrained-linear", "lin-5"): 10.3,
    ("by-group", "groups"): 8.828,
}


def study(text, name, seed, instances):
    """One row: regret, the time that learning took, and the parameters if they are few."""
    problem, began = gb.problems.named(name), time.perf_counter()
    policy = parse_policy(text.removesuffix(AS_IT_COMES), problem)
    row, found = {}, policy
    if policy.name in gb.policies.TRAINED and not text.endswith(AS_IT_COMES):
        found = gb.learn(policy, problem, seed=seed, progress=False)
        few = {n: np.asarray(leaf).tolist() for n, leaf in found.params.items() if np.size(leaf) <= 4}
        row = {"seconds": time.perf_counter() - began, "params": few}
    regret = gb.evaluate({"it": found}, problem, instances=instances, seed=JUDGED_BY + seed)["it"].regret
    return row | {"regret": regret.mean, "se": regret.se}


def show(rows):
    """One line per policy and problem: the mean over seeds, and the standard error of that."""
    found = {}
    for what, row in rows.known.items():
        policy, name, _ = what.partition(" on ")[0].split(" / ")
        found.setdefault((name, policy), []).append(row)
    print("| problem | policy | seeds | regret | least to most | target | seconds |")
    print("|---" * 7 + "|")
    for (name, policy), each in sorted(found.items()):
        regrets = np.array([row["regret"] for row in each])
        # Each seed has instances of its own, so the spread over seeds has both kinds of luck in it.
        own = np.sqrt(np.mean([row["se"] ** 2 for row in each]) / len(each))
        se = regrets.std(ddof=1) / len(each) ** 0.5 if len(each) > 1 else own
        seconds = np.mean([row.get("seconds", 0) for row in each])
        target = TARGETS.get((policy.partition(":")[0], name), "")
        print(
            f"| {name} | {policy} | {len(each)} | {regrets.mean():.3f} ± {se:.3f} | "
            f"{regrets.min():.3f} … {regrets.max():.3f} | {target} | {seconds:.1f} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--problem", nargs="*", default=PROBLEMS, help="names of problems with contexts")
    parser.add_argument("--policy", nargs="*", default=(*LEARNED, *OTHERS))
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 5), metavar=("FROM", "TO"))
    parser.add_argument("--instances", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=Path("runs/contextual.jsonl"))
    parser.add_argument("--summary", action="store_true", help="show what is there, and compute nothing")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    rows = Rows(given.out)
    for seed in range(*given.seeds) if not given.summary else ():
        for policy in given.policy:
            for name in given.problem:
                what = f"{policy} / {name} / {seed} on {given.instances}"
                rows.get(what, partial(study, policy, name, seed, given.instances))
    show(rows)


if __name__ == "__main__":
    main()
