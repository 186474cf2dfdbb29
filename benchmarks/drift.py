"""Learned forgetting: where means move, beside tuned rivals, and where they stay, beside no forgetting.

    python benchmarks/drift.py                           # all of it: hours
    python benchmarks/drift.py --policy discounted-kl-softelim --seeds 0 3
    python benchmarks/drift.py --summary                 # what is there so far

On the drifting problems, learned policies are compared with two rivals on the same fresh instances:
discounted Thompson sampling with a fixed γ, and sliding-window UCB, once with its authors' ξ = .6 and once
with the best ξ. The rivals have the best setting of a grid, found on other instances. Where means stay, a
learned policy is compared with the same policy learned without forgetting; where they move, `--policy
softelim kl-softelim` shows what forgetting is worth. Each row is written at once; rows that are already in
the file are not computed again.
"""

import argparse
import functools
import time
from pathlib import Path

import numpy as np
from learning import Rows

import gradband as gb
from gradband.core.statistics import Mean

LEARNED = {
    "discounted-softelim": "softelim",
    "discounted-kl-softelim": "kl-softelim",
    "discounted-ts": "ts",
    "discounted-index": "index",
}
"""policies that forget, and the same without"""
STILL = ("bernoulli-10", "uniform-2")  # whose means stay
TUNED_BY, JUDGED_BY = 123_456_789, 987_654_321  # seeds of instances that nothing is learned on
TUNED_ON = 4000
RATES = np.logspace(-3.5, -1, 11).round(6).tolist()  # 1 − γ
WINDOWS = (50, 75, 100, 150, 200, 300, 400, 600, 1000)
AUTHORS = 0.6  # ξ
XI = (0.05, 0.1, 0.2, 0.3, AUTHORS)


@functools.cache
def problem_of(name):
    if name == "walk":
        return gb.Problem(gb.priors.Drifting(gb.priors.Beta(arms=5), walk=3.0), horizon=1000)
    if name == "week":
        prior = gb.priors.Drifting(gb.priors.Beta(arms=3), walk=2.0, cycle=2.0, period=140.0)
        return gb.Problem(prior, horizon=500)
    return gb.problems.named(name)


def rival(kind, setting):
    if kind == "discounted-ts":
        return gb.policies.DiscountedTS(forgetting=setting[0])
    return gb.policies.SlidingWindowUCB(window=setting[0], xi=setting[1])


def tuned(name, rows):
    """The rivals on a problem, each as its kind and its best setting."""

    def at(kind, setting):
        def measured():
            found = gb.evaluate(rival(kind, setting), problem_of(name), instances=TUNED_ON, seed=TUNED_BY)
            return {"regret": found.rows[0].regret.mean}

        return rows.get(f"{name} {kind} {setting}", measured)["regret"]

    def best(kind, settings):
        return kind, min(settings, key=functools.partial(at, kind))

    return {
        "TS, fixed γ": best("discounted-ts", [(rate,) for rate in RATES]),
        "SW-UCB, ξ = .6": best("sliding-window-ucb", [(window, AUTHORS) for window in WINDOWS]),
        "SW-UCB, any ξ": best("sliding-window-ucb", [(window, xi) for window in WINDOWS for xi in XI]),
    }


@functools.cache
def regrets_of(kind, setting, name, instances):
    found = gb.evaluate(rival(kind, setting), problem_of(name), instances=instances, seed=JUDGED_BY)
    return found.rows[0].regrets


def learned(policy, name, seed, instances):
    """A row about a learned policy, and its regrets [m]."""
    began = time.perf_counter()
    problem = problem_of(name)
    found = policy if policy == "ts" else gb.learn(policy, problem, seed=seed)
    seconds = time.perf_counter() - began
    regrets = gb.evaluate({"one": found}, problem, instances=instances, seed=JUDGED_BY).rows[0].regrets
    params = {} if policy == "ts" else {n: float(v) for n, v in found.params.items() if np.size(v) == 1}
    mean = Mean.of(regrets)
    return {"params": params, "seconds": round(seconds, 1), "regret": mean.mean, "se": mean.se}, regrets


def difference(regrets, others):
    """How much lower the first regrets are, paired."""
    found = Mean.of(others - regrets)
    return {
        "lower by": found.mean,
        "se": found.se,
        "z": found.mean / found.se if found.se else 0.0,  # the same policy
        "beside": float(others.mean()),
    }


def study(policy, name, seed, instances, rows):
    """The row of one policy, problem and seed."""

    def measured():
        row, regrets = learned(policy, name, seed, instances)
        if name in STILL:
            usual, others = learned(LEARNED[policy], name, seed, instances)
            return row | {"beside": {LEARNED[policy]: difference(regrets, others) | {"learned": usual}}}
        others = {
            words: difference(regrets, regrets_of(*chosen, name, instances)) | {"setting": chosen[1]}
            for words, chosen in tuned(name, rows).items()
        }
        return row | {"beside": others}

    return rows.get(f"{name} {policy} seed {seed} on {instances}", measured)


def show(rows):
    """All learned policies, with what they are compared with."""
    print("problem | policy | seed | regret | forgetting | beside | its regret | lower by | z")
    for what, row in sorted(rows.known.items()):
        if "beside" not in row:
            continue
        name, policy, _, seed, *_ = what.split()
        own = f"{name} | {policy} | {seed} | {row['regret']:.2f} | {row['params'].get('forgetting', 0):.2g}"
        for other, by in row["beside"].items():
            setting = f" {tuple(by['setting'])}" if "setting" in by else ""
            gap = f"{by['lower by']:+.3f} ({100 * by['lower by'] / by['beside']:+.2f} %)"
            print(f"{own} | {other}{setting} | {by['beside']:.2f} | {gap} | {by['z']:+.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = ["walk", "week", *STILL]
    parser.add_argument("--problem", nargs="*", default=names, choices=names)
    parser.add_argument("--policy", nargs="*", default=list(LEARNED), choices=[*LEARNED, *LEARNED.values()])
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 5), metavar=("FROM", "TO"))
    parser.add_argument("--instances", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=Path("runs/drift.jsonl"))
    parser.add_argument("--summary", action="store_true", help="show what is there, and compute nothing")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    rows = Rows(given.out)
    for seed in range(*given.seeds) if not given.summary else ():
        for policy in given.policy:
            for name in given.problem if policy in LEARNED else set(given.problem) - set(STILL):
                study(policy, name, seed, given.instances, rows)
    show(rows)


if __name__ == "__main__":
    main()
