"""Is a policy that was learned with late rewards better where rewards are late?

`python delay.py RESULTS.jsonl` learns each policy on each problem twice, with the delay and without, and
plays both with the delay on the same fresh instances. It appends a line of JSON for each problem, policy
and seed; lines that are already there are not computed again. At the end it prints the difference in reward
per thousand pulls, paired by instance, over all seeds.

Options: --seeds 5, --instances 20000, --only PROBLEM, --policy POLICY, --mean 500 (of a geometric delay, in
pulls), --iterations (of learning, by default the policy's usual number).
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np

import gradband as gb

HEADLINES = {"a": 2.34, "b": 142.0, "spread": 0.9, "slope": 0.43}  # as fitted to real headline tests
PROBLEMS = {
    "ten arms, any rates": gb.priors.Beta(10),
    "ten arms, rates of 3 %": gb.priors.Beta(10, 1.0, 30.0),
    "headlines, 4 arms": gb.priors.Hierarchical(4, strength=1870.0, **HEADLINES),
    "headlines that differ more, 10 arms": gb.priors.Hierarchical(10, strength=300.0, **HEADLINES),
    "two arms, any rates": gb.priors.Beta(2),
    "two arms, .6 or .4": gb.priors.Finite([[0.6, 0.4], [0.4, 0.6]]),
}
POLICIES = ("softelim", "kl-softelim")
HORIZON, BATCH = 3000, 100


def measured(prior, policy, seed, mean, instances, iterations=None):
    """Rewards with the delay of the policy learned with it and without it."""
    at_once = gb.Problem(prior, HORIZON, pulls_per_round=BATCH)
    late = at_once.replace(delay={"kind": "geometric", "mean": mean})
    how = {"seed": seed, "iterations": iterations, "progress": False}
    learned = {"late": gb.learn(policy, late, **how), "at once": gb.learn(policy, at_once, **how)}
    table = gb.evaluate(learned, late, instances=instances, seed=seed + 1000)
    gained = 1000 / HORIZON * (table["late"].rewards - table["at once"].rewards)
    return {
        "params": {k: {n: float(v) for n, v in each.params.items()} for k, each in learned.items()},
        "regret": {name: table[name].regret.mean for name in learned},
        "gain": float(gained.mean()),
        "se": float(gained.std(ddof=1) / math.sqrt(len(gained))),
    }


def show(lines):
    """Prints the gains over all seeds."""
    print("gain in reward per thousand pulls of learning with the delay, played with it")
    for problem, policy in dict.fromkeys((line["problem"], line["policy"]) for line in lines):
        found = [line for line in lines if (line["problem"], line["policy"]) == (problem, policy)]
        gain = np.mean([line["gain"] for line in found])
        se = math.sqrt(sum(line["se"] ** 2 for line in found)) / len(found)
        each = " ".join(f"{line['gain'] / max(line['se'], 1e-30):+.1f}" for line in found)
        words = f"{problem:36} {policy:12} {gain:+.3f} ± {se:.3f}"
        print(f"{words}  z = {gain / max(se, 1e-30):+.1f}  (by seed {each})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--instances", type=int, default=20_000)
    parser.add_argument("--mean", type=float, default=500.0)
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--only", choices=PROBLEMS)
    parser.add_argument("--policy", choices=POLICIES)
    given = parser.parse_args()
    lines = []
    if given.results.exists():
        lines = [json.loads(line) for line in given.results.read_text().splitlines()]
    done = {(line["problem"], line["policy"], line["seed"]) for line in lines}
    for seed in range(given.seeds):
        for problem, prior in PROBLEMS.items():
            for policy in POLICIES:
                other = given.only not in (None, problem) or given.policy not in (None, policy)
                if other or (problem, policy, seed) in done:
                    continue
                line = {"problem": problem, "policy": policy, "seed": seed, "mean": given.mean}
                line |= measured(prior, policy, seed, given.mean, given.instances, given.iterations)
                lines.append(line)
                with given.results.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    show(lines)


if __name__ == "__main__":
    main()
