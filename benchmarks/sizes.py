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


def regrets_of(text, kind, d, k, out):
    """The regrets of the first instances, from the file if they are there."""
    path = out / f"{text.replace('/', '_')} {kind} {d} {k}.npy"
    if not path.exists():
        problem, began = KINDS[kind](d, k), time.perf_counter()
        instances = (V_IDS if text == "lin-v-ids" else INSTANCES)[k > MANY]
        found = gb.evaluate(
            {"it": entry_of(text, problem)}, problem, instances=instances, seed=JUDGED_BY, progress=False
        )["it"]
        np.save(path, found.regrets)
        print(f"{path.stem}: {found.regret}, {time.perf_counter() - began:.0f} s", flush=True)
    return np.load(path)


def show(policies, out):
    """Regrets, and of how many problems a policy has the least, for those that all have played."""
    print("| problem | " + " | ".join((*policies, *RIVALS)) + " | least |")
    print("|---" * (len(policies) + len(RIVALS) + 2) + "|")
    below = {policy: [] for policy in policies}
    for d, k in pairs():
        for kind in KINDS:
            paths = [out / f"{text.replace('/', '_')} {kind} {d} {k}.npy" for text in (*policies, *RIVALS)]
            if not all(path.exists() for path in paths):
                continue
            found = dict(zip((*policies, *RIVALS), map(np.load, paths), strict=True))
            for policy in policies:
                z = [against(found[policy], found[rival]) for rival in RIVALS]
                below[policy].append(z)
            cells = " | ".join(str(Mean.of(regrets)) for regrets in found.values())
            print(f"| {kind}, d = {d}, K = {k} | {cells} | {max(below[policies[0]][-1]):.1f} |")
    for policy, z in below.items():
        z = np.array(z)
        print(
            f"{policy}: below {', '.join(RIVALS)} on {(z < 0).sum(0).tolist()} of {len(z)}, below all on "
            f"{(z < 0).all(1).sum()}; by 2 standard errors on {(z < -2).sum(0).tolist()}, "
            f"{(z < -2).all(1).sum()}"
        )


def against(own, other):
    """By how many standard errors regrets are above others on the same instances; the first has more."""
    gap = Mean.of(own[: len(other)] - other[: len(own)])
    return gap.mean / gap.se


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
