"""Whether promised gains come true on experiments that `fit` never saw.

    python benchmarks/replay.py past.csv                      # n = 3000, in batches of 100
    python benchmarks/replay.py past.csv --horizon 20000 --pulls-per-round 200
    python benchmarks/replay.py past.csv --summary            # what is there so far

Half of the experiments are set aside. Priors are fitted to the other half, policies are learned on the best
prior, and `compare_with_defaults` says what they gain there. Then all policies play the experiments that
were set aside:

replay  Each experiment's own pulls come again, drawn without replacement, where every arm has as many as
        the whole test: nothing is modelled.
halves  For a longer test: half of each arm's pulls gives the rates that are played on, the other half says
        what the choices were worth. Noise in these rates is learned too, so this is not the gain itself;
        but a prior says what it should be, by going the same way with posterior draws.

For both, the same policies also play posterior draws of the same experiments: what should come true. Each
result is a line of OUT/results.jsonl, written at once; results that are already there are not computed
again.
"""

import argparse
import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

import gradband as gb
from gradband.core.statistics import Mean
from gradband.evaluation import compare_with_defaults
from gradband.evaluation.outside_results import Urns, from_rates, play
from gradband.policies import policy_file
from gradband.problems import fitting, past_experiments, shrinkage


class Trial:
    """The experiments that were put away, and both ways to play on them."""

    def __init__(
        self, unseen: past_experiments.Experiments, prior: Any, problem: gb.Problem, most: int, seed: int
    ):
        rng = np.random.default_rng(seed)
        self.problem, self.seed, self.prior = problem, seed, prior
        large = unseen.only(np.flatnonzero(unseen.sizes >= problem.arms))
        chosen = shrinkage.sized(large, problem.arms, rng)
        least = chosen.pulls.reshape(-1, problem.arms).min(1)
        self.exact = int((least >= problem.horizon).sum()) >= 100
        enough = least >= (problem.horizon if self.exact else 500)
        self.past = chosen.only(rng.permutation(np.flatnonzero(enough))[:most])
        shape = len(self.past), problem.arms
        self.pulls, self.wins = (
            x.astype(np.int64).reshape(shape) for x in (self.past.pulls, self.past.successes)
        )

    def posterior(self, seed: int) -> np.ndarray:
        components = shrinkage.Components.of(self.prior)
        edges = components.edges(self.past)
        return components.means(edges, self.past, np.random.default_rng(seed))

    def once(self, entry: Any, real: bool, seed: int) -> np.ndarray:
        """Successes [E] of a test on each experiment, real or as the prior says they should be."""
        problem = self.problem
        batches = np.full((problem.rounds, len(self.past)), problem.pulls_per_round)
        go = functools.partial(play, entry, batches, problem.arms, seed=seed)
        if self.exact and real:
            urns = Urns(self.pulls, self.wins, seed + 1)
            go(urns)
            return urns.total
        if self.exact:
            means = self.posterior(seed + 1)
            return (go(from_rates(means, seed + 2)) * means).sum(1)
        rng, half = np.random.default_rng(seed + 1), self.pulls // 2
        if real:
            seen = rng.hypergeometric(self.wins, self.pulls - self.wins, half)
            scored = (self.wins - seen) / (self.pulls - half)
        else:
            scored = self.posterior(seed + 3)
            seen = rng.binomial(half, scored)
        return (go(from_rates(seen / half, seed + 2)) * scored).sum(1)


def prepared(
    path: Path, arms: int, seed: int
) -> tuple[past_experiments.Experiments, past_experiments.Experiments, Any, Any, Any]:
    """Experiments that no fit sees, those held out of the fit, those fitted, and the fits."""
    known, unseen = past_experiments.read(path).split(0.5, seed)
    fitted, held = known.split(0.2, seed)
    return unseen, held, fitted, *(lambda fits: (fits[0], fits[1:]))(fitting.fit(fitted, held, arms))


def learn(name: str, problem: gb.Problem, path: Path, seed: int) -> policy_file.Learned:
    if not path.exists():
        gb.learn(name, problem, seed=seed).save(path)
    return gb.load(path)


def known(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print({name: value for name, value in line.items() if name not in ("real", "model")}, flush=True)


def summary(path: Path) -> None:
    """Gains per thousand pulls over the best rival: promised, modelled, and what came true."""
    lines = known(path)
    for run in sorted({(line["horizon"], line["seed"]) for line in lines}):
        rows = {line["policy"]: line for line in lines if (line["horizon"], line["seed"]) == run}
        first = rows["uniform"]
        print(f"n = {run[0]}, seed {run[1]}, {first['way']}, {len(first['real'])} experiments")
        for name, line in rows.items():
            print(f"  {name:50s} {np.mean(line['real']):8.2f}, modelled {np.mean(line['model']):8.2f}")
        for name, line in rows.items():
            if "promise" not in line:
                continue
            others = [other for other in rows if "promise" not in rows[other]]
            for rival in {line["rival"], max(others, key=lambda other: np.mean(rows[other]["real"]))}:
                real, model = (
                    1000 / run[0] * (np.array(line[what]) - np.array(rows[rival][what]))
                    for what in ("real", "model")
                )
                z = Mean.of(real - model)
                told = Mean(*line["promise"]) if rival == line["rival"] else Mean(math.nan, math.nan)
                apart = (real.mean() - told.mean) / math.hypot(Mean.of(real).se, told.se)
                print(
                    f"  {name} over {rival}: gain promised {told}; should be {Mean.of(model)}, came true "
                    f"{Mean.of(real)}; z {z.mean / z.se:+.2f}, against gain {apart:+.2f}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--arms", type=int, default=4)
    parser.add_argument("--horizon", type=int, default=3000)
    parser.add_argument("--pulls-per-round", type=int, default=100)
    parser.add_argument("--policies", default="softelim,kl-softelim,index")
    parser.add_argument("--experiments", type=int, default=1000, help="most of them")
    parser.add_argument("--times", type=int, default=4, help="that each is played")
    parser.add_argument("--instances", type=int, default=10_000, help="for gain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/replay"))
    parser.add_argument("--summary", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "results.jsonl"
    if not given.summary:
        measure(given, path)
    summary(path)


def measure(given: argparse.Namespace, path: Path) -> None:
    unseen, held, fitted, best, others = prepared(given.data, given.arms, given.seed)
    problem = gb.Problem(best.prior, given.horizon, pulls_per_round=given.pulls_per_round)
    past_experiments.save(given.out / "experiments.safetensors", {"fitted": fitted, "held-out": held})
    fit = {"file": "experiments.safetensors", "others": [entry.prior.describe() for entry in others]}
    trial = Trial(unseen, best.prior, problem, given.experiments, given.seed)
    rivals = compare_with_defaults.rivals([best.prior, *(entry.prior for entry in others)])
    done = {(line["horizon"], line["seed"], line["policy"]) for line in known(path)}
    for name in [*rivals, *given.policies.split(",")]:
        if (given.horizon, given.seed, name) in done:
            continue
        about: dict[str, Any] = {"horizon": given.horizon, "seed": given.seed, "policy": name}
        about["way"] = "replay" if trial.exact else "halves"
        entry: Any = rivals.get(name)
        if entry is None:
            entry = learn(
                name, problem, given.out / f"{name}-{given.horizon}-{given.seed}.safetensors", given.seed
            )
            where = compare_with_defaults.measure(
                entry, problem, fit, given.out, given.instances, given.seed
            )[0]
            promise = where.gain(where.rival)
            about |= {"rival": where.rival, "promise": [promise.mean, promise.se]}
            about["percent"] = vars(where.percent(where.rival))
        for real in (True, False):
            runs = [trial.once(entry, real, 1000 * time + given.seed) for time in range(given.times)]
            about["real" if real else "model"] = np.mean(runs, axis=0).round(4).tolist()
        add(path, about)


if __name__ == "__main__":
    main()
