"""The wheel: what linear beliefs about rings cost, beside the exact greedy policy and uniform pulls.

    python benchmarks/wheel.py                                  # five seeds, δ = .99 and δ ~ U(0, 1)
    python benchmarks/wheel.py --bins 200 --sd 3 --deltas .5 .9 .99
    python benchmarks/wheel.py --summary                        # what is there so far

Scalar `lin-softelim` is learned over δ ~ U(0, 1), 15 iterations of 100 instances from a = .01, and judged
on fresh instances. Each row is written at once; rows that are in the file are not computed again.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from learning import Rows

import gradband as gb
from gradband.solvers import wheel

HORIZON = 2000
JUDGED_BY = 555_000_111  # the first seed of instances that nothing is learned on
START = 0.01  # of a


def believed(bins, sd):
    """The wheel's belief, with this standard deviation of rewards around a linear function."""
    return gb.priors.Wheel(bins=bins).belief() | {"sd": sd}


def learned(bins, sd, seed):
    """a, learned with this seed."""
    problem = gb.Problem(gb.priors.Wheel(bins=bins), HORIZON)
    policy = gb.policies.LinSoftElim(**believed(bins, sd), a=START)
    found = gb.learn(policy, problem, iterations=15, instances=100, seed=seed, progress=False)
    return {"a": float(found.params["a"])}


def judged(bins, sd, a, delta, seed, instances):
    """The regret of `lin-softelim` with this a, and of the greedy policy, where δ is `delta` or U(0, 1)."""
    problem = gb.Problem(gb.priors.Wheel(delta, bins=bins), HORIZON)
    belief = believed(bins, sd)
    policies = {
        "learned": gb.policies.LinSoftElim(**belief, a=a),
        "greedy": gb.policies.LinGreedy(**belief),
    }
    table = gb.evaluate(policies, problem, instances=instances, seed=JUDGED_BY + seed)
    row = {name: table[name].regret.mean for name in policies}
    return row | {f"{name}_se": table[name].regret.se for name in policies}


def show(rows):
    """One line per number of rings and δ, over seeds."""
    found = {}
    for what, row in rows.known.items():
        if "a" not in row:
            belief, delta, _ = what.split(" / ")
            found.setdefault((belief, delta), []).append(row)
    print("| rings, sd | δ | seeds | learned | least to most | greedy | exact | percent of uniform |")
    print("|---" * 8 + "|")
    for (belief, delta), each in found.items():
        exact = wheel.regrets(HORIZON) if delta == "U(0, 1)" else wheel.regrets_at(float(delta), HORIZON)
        ours, greedy = (np.array([row[name] for row in each]) for name in ("learned", "greedy"))
        first = each[0]["learned_se"], each[0]["greedy_se"]
        ses = [
            values.std(ddof=1) / len(each) ** 0.5 if len(each) > 1 else own
            for values, own in zip((ours, greedy), first, strict=True)
        ]
        print(
            f"| {belief} | {delta} | {len(each)} | {ours.mean():.3f} ± {ses[0]:.3f} | "
            f"{ours.min():.3f} … {ours.max():.3f} | {greedy.mean():.3f} ± {ses[1]:.3f} | "
            f"{exact.greedy:.3f} | {100 * ours.mean() / exact.uniform:.3f} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bins", type=int, nargs="*", default=(50,), help="numbers of rings")
    parser.add_argument("--sd", type=float, default=5.0, help="of the belief's noise")
    parser.add_argument("--deltas", nargs="*", default=(".99", "U(0, 1)"), help="radii, or U(0, 1)")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 5), metavar=("FROM", "TO"))
    parser.add_argument("--instances", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=Path("runs/wheel.jsonl"))
    parser.add_argument("--summary", action="store_true", help="show what is there, and compute nothing")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    rows = Rows(given.out)
    for seed in range(*given.seeds) if not given.summary else ():
        for bins in given.bins:
            a = rows.get(f"{bins}, {given.sd:g}, seed {seed}", partial(learned, bins, given.sd, seed))["a"]
            for delta in given.deltas:
                number = None if delta == "U(0, 1)" else float(delta)
                task = partial(judged, bins, given.sd, a, number, seed, given.instances)
                rows.get(f"{bins}, {given.sd:g} / {delta} / {seed} on {given.instances}", task)
    show(rows)


if __name__ == "__main__":
    main()
