"""Reference policies beside their published regrets: one row per policy and problem, as they come.

Resumes after an interruption: rows that are already in the file are not measured again.
"""

import argparse
import json
from pathlib import Path

import gradband as gb

BERNOULLI, BETA, GAUSSIAN = "bernoulli-10", "beta-10", "gaussian-10"
PROBLEMS = {
    BERNOULLI: gb.problems.named(BERNOULLI),
    BETA: gb.problems.named(BETA),
    GAUSSIAN: gb.Problem(gb.priors.Gaussian(arms=10), horizon=1000, name=GAUSSIAN),
}
CASES: dict[tuple[str, str], tuple[float | None, float | None]] = {
    (GAUSSIAN, "ts-gaussian:prior"): (67.4, None),
    (GAUSSIAN, "bayes-ucb-gaussian:prior"): (None, None),
    (GAUSSIAN, "ogi-gaussian:prior"): (49.2, None),
    (GAUSSIAN, "v-ids-gaussian:prior"): (55.8, None),
    (GAUSSIAN, "gittins-gaussian:prior"): (None, None),
    (BETA, "ts-beta:prior"): (9.45, 0.24),
    (BETA, "brezzi-lai-beta:prior"): (7.82, 0.23),
    (BERNOULLI, "ts"): (28.1, None),
    (BERNOULLI, "bayes-ucb"): (22.8, None),
    (BERNOULLI, "ogi"): (18.1, None),
    (BERNOULLI, "v-ids"): (18.1, None),
    (BERNOULLI, "ids"): (18.0, None),
    (BERNOULLI, "ucb1"): (130.7, None),
}
"""published regret and its standard error, where they are known"""
TRIALS = 1000  # behind a published number whose standard error is not known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/references.jsonl"))
    parser.add_argument("--instances", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="policies whose names contain this")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {(row["problem"], row["policy"]) for row in rows}
    for (problem, policy), (published, spread) in CASES.items():
        if (problem, policy) in done or given.only not in policy:
            continue
        (row,) = gb.evaluate(
            policy, PROBLEMS[problem], instances=given.instances, seed=given.seed, progress=False
        ).rows
        mean, se = row.regret.mean, row.regret.se
        spread = se * (given.instances / TRIALS) ** 0.5 if spread is None else spread
        z = None if published is None else (mean - published) / (se**2 + spread**2) ** 0.5
        found = {"problem": problem, "policy": policy, "regret": mean, "se": se, "published": published}
        found |= {"published_se": spread, "z": z, "seconds": row.seconds, "instances": given.instances}
        with given.out.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
