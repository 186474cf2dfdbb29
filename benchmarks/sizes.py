"""One policy file for linear problems of all sizes, beside policies that know as much.

    python benchmarks/sizes.py                 # all of it: an hour
    python benchmarks/sizes.py --summary       # what is there so far

Pairs of d and K are drawn at random, d from 2 to 20 and K from 5 to 100, without those that the
pretrained policy was learned on; each is played with two kinds of features, rewards and horizons.
Beliefs have the problem's prior. Regrets are written as they come, and what is there already is not
computed again.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np

import gradband as gb
from gradband.core.statistics import Mean
from gradband.learning.over_problems import suited
from gradband.learning.pretraining_linear import SIZES, normal_features, uniform_features
from gradband.policies.policy_file import Learned

PAIRS, DRAWN_BY, JUDGED_BY = 20, 2024, 770_000_111
KINDS = {"uniform": uniform_features, "normal": normal_features}
RIVALS = "lin-ts", "lin-bayes-ucb", "lin-v-ids"
INSTANCES, V_IDS, MANY = (20_000, 5000), (2000, 1000), 40
"""instances with up to so many arms, and with more; V-IDS samples in every round"""


def pairs():
    """The pairs of d and K that are judged."""
    draws, found = np.random.default_rng(DRAWN_BY), []
    while len(found) < PAIRS:
        pair = tuple(round(math.exp(draws.uniform(*np.log(ends)))) for ends in ((2, 20), (5, 100)))
        if pair not in found and pair not in SIZES:
            found.append(pair)
    return found


def entry_of(text, problem):
    """A policy by its name or from a file, with the problem's prior."""
    if text.endswith(".safetensors"):
        learned = gb.load(text)
        return Learned(suited(learned.policy, problem), learned.params, {}, {})
    return suited(gb.policies.named(text), problem)


def played(text, kind, d, k):
    """The regrets of instances that are the same for all policies, fewer for V-IDS."""
    problem, instances = KINDS[kind](d, k), (V_IDS if text == "lin-v-ids" else INSTANCES)[k > MANY]
    entry = entry_of(text, problem)
    table = gb.evaluate({"it": entry}, problem, instances=instances, seed=JUDGED_BY, progress=False)
    return table["it"].regrets


def regrets_of(text, kind, d, k, out):
    """The regrets of the first instances, from the file if they are there."""
    path = out / f"{text.replace('/', '_')} {kind} {d} {k}.npy"
    if not path.exists():
        began = time.perf_counter()
        np.save(path, played(text, kind, d, k))
        print(f"{path.stem}: {Mean.of(np.load(path))}, {time.perf_counter() - began:.0f} s", flush=True)
    return np.load(path)


def show(policies, out):
    """Regrets on the problems that all have played, and on how many of them each policy is below rivals."""
    print("| problem | " + " | ".join((*policies, *RIVALS)) + " |")
    print("|---" * (len(policies) + len(RIVALS) + 1) + "|")
    z, ratios = {policy: [] for policy in policies}, {policy: [] for policy in policies}
    for d, k in pairs():
        for kind in KINDS:
            texts = (*policies, *RIVALS)
            paths = [out / f"{text.replace('/', '_')} {kind} {d} {k}.npy" for text in texts]
            if not all(path.exists() for path in paths):
                continue
            found = dict(zip(texts, map(np.load, paths), strict=True))
            for policy in policies:
                beside = [compared(found[policy], found[rival]) for rival in RIVALS]
                z[policy].append([each[0] for each in beside])
                ratios[policy].append([each[1] for each in beside])
            cells = " | ".join(str(Mean.of(regrets)) for regrets in found.values())
            print(f"| {kind}, d = {d}, K = {k} | {cells} |")
    for policy in policies:
        below, ratio = np.array(z[policy]), np.array(ratios[policy])
        print(f"{policy}, beside {', '.join(RIVALS)}:")
        print(f"below on {(below < 0).sum(0)} of {len(below)}, below all on {(below < 0).all(1).sum()}")
        print(f"by 2 standard errors on {(below < -2).all(1).sum()}; greatest z {below.max(0).round(1)}")
        print(f"ratios {ratio.mean(0).round(3)}, from {ratio.min(0).round(3)} to {ratio.max(0).round(3)}")


def compared(own, other):
    """By how many standard errors regrets are above others on the same instances, and their ratio."""
    instances = min(len(own), len(other))
    gap = Mean.of(own[:instances] - other[:instances])
    return gap.mean / gap.se, own[:instances].mean() / other[:instances].mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--policy", nargs="*", default=["pretrained-linear", "directed-softelim"], help="names or files"
    )
    parser.add_argument("--rivals", nargs="*", default=RIVALS)
    parser.add_argument("--out", type=Path, default=Path("runs/sizes"))
    parser.add_argument("--summary", action="store_true", help="show what is there, and compute nothing")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for text in (*given.policy, *given.rivals) if not given.summary else ():
        for d, k in sorted(pairs(), key=math.prod):
            for kind in KINDS:
                regrets_of(text, kind, d, k, given.out)
    show(given.policy, given.out)


if __name__ == "__main__":
    main()
