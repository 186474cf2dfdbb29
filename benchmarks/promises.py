"""Promised gains on past experiments with features, beside what comes true: z over seeds.

    python benchmarks/promises.py                       # ten seeds, features of arms and of visitors
    python benchmarks/promises.py --kinds visitors --seeds 0 3
    python benchmarks/promises.py --summary             # what is there so far

A seed takes ten seconds with features of arms, and more than nine minutes with those of visitors. It
has 300 simulated experiments, half of which are held out. `directed-softelim` is learned on the
fit, and its gain promised by `gb.gain` on posterior draws of those held out, and on draws of the fitted
prior ("as fitted"). It comes true on 20 000 tests of the prior that the experiments are from.
"""

import argparse
import dataclasses
from functools import partial
from pathlib import Path

import numpy as np
from learning import Rows

import gradband as gb
from gradband.evaluation.compare_with_defaults import AS_FITTED, HELD_OUT
from gradband.evaluation.rivals import with_contexts
from gradband.policies.given import parse_policy
from gradband.problems import context_draws

RIVALS = ("uniform", "lin-greedy", "lin-ts", "lin-bayes-ucb")
ALONE = ", their spread alone"
"""follows a situation whose standard error does not know the draws of the fitted prior"""
EXPERIMENTS, HORIZON, TRUE_TESTS, JUDGED_BY = 300, 300, 20_000, 555_000_111
MEAN, SD, WITHIN = np.array([-1.5, 0.4, -0.5]), np.array([0.5, 0.2, 0.3]), np.array([0.3, 0.15, 0.4])
"""of θ: an intercept, age and device; SD of all arms together, WITHIN of each arm, for visitors"""


def past(visitors, seed):
    """Experiments of three arms with an age and a device each, or seen by visitors of four kinds."""
    rng = np.random.default_rng(seed)
    arm = np.repeat(np.arange(3), 4 if visitors else 1)
    count, found = len(arm), []
    for _ in range(EXPERIMENTS):
        web = np.tile([0, 0, 1, 1], 3) if visitors else rng.integers(2, size=3)
        age = np.tile([-1.0, 1, -1, 1], 3) if visitors else rng.normal(size=3).round(2)
        theta = MEAN + SD * rng.normal(size=3) + visitors * WITHIN * rng.normal(size=(3, 3))[arm]
        linear = (np.stack([np.ones(count), age, web], axis=1) * theta).sum(1)
        pulls = rng.integers(100, 400, count)
        found.append((arm, age, web, pulls, rng.binomial(pulls, 1 / (1 + np.exp(-linear)))))
    names = ("arm", "age", "device", "pulls", "successes")
    table = dict(zip(names, map(np.concatenate, zip(*found, strict=True)), strict=True))
    experiment = np.repeat(np.arange(EXPERIMENTS), count)
    return table | {"experiment": experiment, "arm": np.array(list("ABC"))[table["arm"]]}


def true_tests(fit, visitors, seed):
    """Tests of the prior that the experiments are from, with features as past experiments have them."""
    known = {"pool": fit.problem.prior.pool, "rewards": fit.problem.prior.rewards}
    if visitors:
        prior = gb.priors.LinearByArm(3, 3, MEAN, WITHIN, between=SD, **known)
    else:
        prior = gb.priors.Linear(3, 3, MEAN, SD, **known)
    return context_draws.Source(fit.problem.prior, fit.held_out, seed).of_prior(prior, TRUE_TESTS)


def study(kind, seed):
    """Promises and what comes true, per thousand pulls, with standard errors."""
    fit = gb.fit(past(kind == "visitors", seed), context=["age", "device"], horizon=HORIZON, held_out=0.5)
    policy = "directed-softelim:model=by-arm" if kind == "visitors" else "directed-softelim"
    start = parse_policy(policy, fit.problem)
    learned = gb.learn(start, fit.problem, iterations=30, seed=seed, progress=False)
    promised = gb.gain(learned, fit, seed=seed, progress=False)
    tests = true_tests(fit, kind == "visitors", JUDGED_BY + seed)
    rivals = {name: policy for name, policy in with_contexts(fit.problem).items() if name in RIVALS}
    problem = fit.problem.replace(prior=tests)
    policies = {"learned": learned, **rivals}
    table = gb.evaluate(policies, problem, instances=TRUE_TESTS, seed=JUDGED_BY + seed)
    row = {}
    for name in rivals:
        off = 1000 / HORIZON * (table["learned"].rewards - table[name].rewards)
        row[name] = {"true": [off.mean(), off.std(ddof=1) / len(off) ** 0.5]}
        for entry in promised.situations:
            if entry.name in (HELD_OUT, AS_FITTED):
                gain, alone = entry.gain(name), dataclasses.replace(entry, twins=None).gain(name)
                row[name] |= {
                    entry.name: [gain.mean, gain.se],
                    f"{entry.name}{ALONE}": [alone.mean, alone.se],
                }
    return {"gains": row}


def show(rows):
    """z of each gain over the seeds."""
    print("| features of | over | promised on | seeds | z, least to most | mean | sd | se, mean |")
    print("|---" * 8 + "|")
    for kind in ("arms", "visitors"):
        every = [row["gains"] for what, row in rows.known.items() if what.startswith(f"{kind},")]
        for name in every[0] if every else ():
            for entry in (f"{HELD_OUT}{ALONE}", HELD_OUT, AS_FITTED):
                (m, se), (t, true_se) = (np.array([e[name][x] for e in every]).T for x in (entry, "true"))
                z = (m - t) / np.hypot(se, true_se)
                sd = z.std(ddof=1) if len(z) > 1 else np.nan
                print(
                    f"| {kind} | {name} | {entry} | {len(z)} | {z.min():.1f} … {z.max():.1f} | "
                    f"{z.mean():.2f} | {sd:.2f} | {se.mean():.3f} |"
                )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kinds", nargs="*", default=("arms", "visitors"), help="whose features")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 10), metavar=("FROM", "TO"))
    parser.add_argument("--out", type=Path, default=Path("runs/promises.jsonl"))
    parser.add_argument("--summary", action="store_true", help="show what is there, and compute nothing")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    rows = Rows(given.out)
    for seed in range(*given.seeds) if not given.summary else ():
        for kind in given.kinds:
            rows.get(f"{kind}, seed {seed}", partial(study, kind, seed))
    show(rows)


if __name__ == "__main__":
    main()
