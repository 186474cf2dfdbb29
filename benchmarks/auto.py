"""`auto` on twelve problems, beside the best usual policy on the same fresh instances.

    python benchmarks/auto.py                    # all of it, seed 0
    python benchmarks/auto.py --seeds 0 3 --budget 5min
    python benchmarks/auto.py --summary          # what is there so far

Usual policies are those that `auto` compares with: Thompson sampling and Gittins indices, both also with
the known prior, UCB1, and, where there are no Gittins indices, Bayes-UCB and the pretrained policy. Each
row is written at once; rows that are already in the file are not computed again.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from learning import Rows

import gradband as gb
from gradband.core import prng
from gradband.learning import auto

JUDGED_BY = 987_654_321  # the seed of instances that nothing is learned on


def spike(arms, usual, best):
    """One arm of many stands out, any of them."""
    return lambda key: jnp.where(jnp.arange(arms) == jax.random.randint(key, (), 0, arms), best, usual)


def shared_level(key):
    """Five arms around a level that differs from test to test."""
    level, own = jax.random.split(key)
    noise = 0.06 * jax.random.normal(own, (5,))
    return jnp.clip(jax.random.uniform(level, minval=0.1, maxval=0.9) + noise, 0.01, 0.99)


def fitted():
    """A prior fitted to sixty simulated experiments with low rates."""
    rng = np.random.default_rng(7)
    rates = rng.beta(3, 60, (60, 1)) * rng.lognormal(0, 0.25, (60, 4))
    clicks = rng.binomial(2000, np.minimum(rates, 1))
    rows = [
        {"experiment": f"e{i}", "arm": f"a{j}", "pulls": 2000, "successes": int(clicks[i, j])}
        for i in range(60)
        for j in range(4)
    ]
    import polars

    return gb.fit(polars.DataFrame(rows), arms=4, horizon=400, progress=False).problem


PROBLEMS = {
    "two sure arms": lambda: gb.Problem(gb.priors.Finite([[1.0, 0.0], [0.0, 1.0]]), 10),
    "arms that differ": lambda: gb.Problem(gb.priors.Finite([[0, 0.8, 0.5], [0.3, 0.5, 0.8]]), 30),
    "uniform, K = 5, n = 20": lambda: gb.Problem(gb.priors.Beta(5), 20),
    "Beta(1, 3), K = 20, n = 30": lambda: gb.Problem(gb.priors.Beta(20, a=1, b=3), 30),
    "two-point": lambda: gb.problems.named("two-point"),
    "uniform-2": lambda: gb.problems.named("uniform-2"),
    "dependent arms, K = 5": lambda: gb.Problem(gb.priors.Sampler(shared_level, 5), 100),
    "gaussian, K = 5": lambda: gb.Problem(gb.priors.Gaussian(5), 100),
    "low rates in batches, K = 4": lambda: gb.Problem(
        gb.priors.Beta(4, a=1, b=30), 1000, pulls_per_round=100
    ),
    "one of 20": lambda: gb.Problem(gb.priors.Sampler(spike(20, 0.5, 0.9), 20), 100),
    "fitted, K = 4": fitted,
    "sparse, K = 50": lambda: gb.Problem(gb.priors.Sampler(spike(50, 0.1, 0.6), 50), 200),
}


def study(name, seed, budget, instances):
    """One row: what `auto` chose, and how it and the best usual policy do on fresh instances."""
    problem, began = PROBLEMS[name](), time.perf_counter()
    learned = gb.learn(f"auto:{budget}", problem, seed=seed, progress=False)
    seconds, about = time.perf_counter() - began, learned.about["auto"]
    usual = auto.usual_policies(problem, prng.root(seed))
    table = gb.evaluate({"auto": learned, **usual}, problem, instances=instances, seed=JUDGED_BY)
    best = next(row.name for row in table.rows if row.name != "auto")
    above = table.difference("auto", best)
    return {
        "chosen": about["chosen"],
        "regret": table["auto"].regret.mean,
        "regret_se": table["auto"].regret.se,
        "best usual": best,
        "its regret": table[best].regret.mean,
        "above": above.mean,
        "above_se": above.se,
        "seconds": seconds,
        "tried": {row["name"]: row["regret"] for row in about["tried"]},
    }


def show(rows):
    print(
        "| problem | seed | auto keeps | regret | best usual policy | its regret | difference | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for what, row in rows.known.items():
        name, seed = what.rsplit(" seed ", 1)
        apart = f"{row['above']:+.3f} ± {row['above_se']:.3f}"
        own = f"| {name} | {seed.split()[0]} | {row['chosen']} | {row['regret']:.3f} | {row['best usual']}"
        print(f"{own} | {row['its regret']:.3f} | {apart} | {row['seconds']:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--problem", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 1), metavar=("FROM", "TO"))
    parser.add_argument("--budget", default="2min")
    parser.add_argument("--instances", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=Path("runs/auto.jsonl"))
    parser.add_argument("--summary", action="store_true", help="show what is there, and compute nothing")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    rows = Rows(given.out)
    for seed in range(*given.seeds) if not given.summary else ():
        for name in given.problem:
            what = f"{name} seed {seed} within {given.budget} on {given.instances}"
            rows.get(what, lambda name=name, seed=seed: study(name, seed, given.budget, given.instances))
    show(rows)


if __name__ == "__main__":
    main()
