"""How well networks learn: regrets over seeds, against the targets, the ablation, and other sizes.

    python benchmarks/networks.py                        # all of it: hours
    python benchmarks/networks.py --only lstm/uniform-2 --seeds 0-9
    python benchmarks/networks.py --summary              # what is there so far

Each result is a line of `runs/networks.jsonl`, written at once; results that are already there are not
computed again. So an interrupted run resumes. Several may run side by side with `--devices 1`, each on
other seeds or tasks.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import gradband as gb
from gradband.learning import recipes

INSTANCES = 40_000
NETWORK = recipes.RECIPES["network"]
STEPS: dict[str, float] = getattr(NETWORK.optimizer, "keywords", {})  # rate, fall and warm of its steps


def steps(make: Any = optax.adam, clip: float = 1.0, **changes: float) -> recipes.Optimizer:
    """The usual optimiser of an LSTM with something else in it."""
    wanted = STEPS | changes
    return lambda iterations, horizon: optax.chain(
        optax.clip_by_global_norm(clip), make(recipes.sizes(iterations, horizon, **wanted))
    )


def constant(iterations: int, horizon: int) -> optax.GradientTransformation:
    """The usual optimiser's largest steps throughout."""
    rate = STEPS["rate"] * min(1, 20 / horizon) ** STEPS["fall"]
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forgetful(gb.policies.LSTM):
    """An LSTM whose gradient through time loses a tenth a round, in place of a truncated one."""

    def update(self, params: Any, state: Any, arm: Any, reward: Any) -> Any:
        faded = jax.tree.map(lambda leaf: 0.9 * leaf + 0.1 * jax.lax.stop_gradient(leaf), state)
        return super().update(params, faded, arm, reward)


@dataclasses.dataclass(frozen=True)
class Task:
    """A policy to learn on a problem, and other problems to play it on, by name."""

    policy: str | gb.policies.Policy
    problem: gb.Problem
    mean: float | None = None
    """the target for the mean of seeds"""
    worst: float | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    imitate: str = ""
    elsewhere: dict[str, gb.Problem] = dataclasses.field(default_factory=dict)
    averaged: bool = False
    """plays with the mean of its parameters over the last tenth of its iterations"""


def named(name: str, **size: int) -> gb.Problem:
    return gb.problems.named(name, **size)


def variant(**changes: Any) -> dict[str, Any]:
    """The usual recipe of the LSTM, shorter and with something else in it."""
    return {"recipe": dataclasses.replace(NETWORK, iterations=100, **changes)}


def tasks() -> dict[str, Task]:
    uniform = named("uniform-2")
    found = {
        "lstm/two-point": Task("lstm", named("two-point"), 2.60, 2.75),
        "lstm/uniform-2": Task("lstm", uniform, 2.33, 2.38),
        "lstm/uniform-2/longer": Task("lstm", uniform, 2.33, 2.38, settings={"iterations": 1000}),
        "lstm/uniform-2/imitating": Task("lstm", uniform, 2.30, 2.35, imitate="optimal"),
        "index/uniform-2": Task("index", uniform, 2.28, 2.33),
        "index/uniform-2/imitating": Task("index", uniform, 2.28, 2.33, imitate="optimal"),
        "index/bernoulli-10": Task("index", named("bernoulli-10"), 15.31),
        "index/bernoulli-10/imitating": Task("index", named("bernoulli-10"), 15.31, imitate="gittins"),
        "index/beta-10": Task("index", named("beta-10"), 9.56),
        "kl-softelim/two-point": Task("kl-softelim", named("two-point")),
        "kl-softelim/uniform-2": Task("kl-softelim", uniform),
        "paper/two-point": Task("lstm", named("two-point"), settings={"recipe": "paper"}),
        "paper/uniform-2": Task("lstm", uniform, settings={"recipe": "paper"}),
    }
    for arms in (3, 5, 10, 20):
        found[f"lstm/distractors-{arms}"] = Task("lstm", named("distractors", arms=arms), 1.45)
    sizes = [(2, 200), (5, 200), (20, 200), (50, 200), (10, 50), (10, 500)]
    there = {f"K={k},n={n}": named("bernoulli-10", arms=k, horizon=n) for k, n in sizes}
    found |= {f"index/{size}": Task("index", problem) for size, problem in there.items()}
    found["index/K=10,n=200"] = Task("index", named("bernoulli-10", horizon=200), elsewhere=there)
    return found


def estimating(*given: Any, returns: str = "expected", **changes: Any) -> dict[str, Any]:
    """The same with this estimator, also where prices are known."""
    return variant(**changes) | {"estimator": gb.Estimator(*given, returns=returns)}


def ablation() -> dict[str, Task]:
    """The usual recipe with a quarter of its iterations, and one thing changed at a time."""
    quarter, half, twice = NETWORK.instances // 4, NETWORK.instances // 2, 2 * NETWORK.instances
    few = dataclasses.replace(NETWORK, iterations=50, instances=twice)
    changes: dict[str, dict[str, Any]] = {
        "usual": variant(),
        "luck": estimating("luck"),
        "half the iterations, twice the instances": {"recipe": few},
        "critic without luck": estimating("critic"),
        "no critic: leave-one-out over 4 rollouts": estimating("leave-one-out", 4, instances=quarter),
        "no critic: self": estimating("self", instances=half),
        "no critic: optimal": estimating("optimal"),
        "realised rewards": estimating("luck", returns="realised"),
        "no clipping": variant(optimizer=steps(clip=1e9)),
        "constant steps, no warm-up": variant(optimizer=constant),
        "no warm-up": variant(optimizer=steps(warm=0)),
        "steps of .005 at all horizons": variant(optimizer=steps(fall=0)),
        "steps a third": variant(optimizer=steps(rate=0.0017)),
        "Yogi": variant(optimizer=steps(optax.yogi)),
        "no entropy": variant(entropy=None),
        "no curriculum": variant(curriculum=lambda n: ()),
        "curriculum 20": variant(curriculum=lambda n: (20,)),
        "PyTorch's first weights": variant(settings={"forget": 0.0, "head": 1.0}),
        "head's bias as slow as weights": variant(settings={"bias_scale": 1.0}),
        "annealed temperature": variant(temperature=recipes.annealed),
        "gradients through time fade": variant(),
        "averaged parameters": variant(),
    }
    policies = {"gradients through time fade": Forgetful()}
    problems = {"uniform-2": named("uniform-2"), "distractors-10": named("distractors", arms=10)}
    return {
        f"ablation/{title}/{name}": Task(
            policies.get(name, "lstm"), problem, settings=s, averaged=name == "averaged parameters"
        )
        for title, problem in problems.items()
        for name, s in changes.items()
    }


def measure(task: Task, seed: int, devices: int | None) -> dict[str, Any]:
    """Learns with a seed, and measures the regret on fresh instances of another."""
    began = time.perf_counter()
    reference: Any = gb.policies.Gittins() if task.imitate == "gittins" else None
    if task.imitate == "optimal":
        reference = gb.exact.optimum(task.problem).policy
    last: list[Any] = []

    def keep(step: Any) -> None:
        if task.averaged and step.iteration > 0.9 * step.iterations:
            last.append(step.params)

    learned = gb.learn(
        task.policy,
        task.problem,
        imitate=reference,
        seed=seed,
        devices=devices,
        progress=keep,
        **task.settings,
    )
    if last:
        mean = jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *last)
        learned = dataclasses.replace(learned, params=mean)
    seconds = time.perf_counter() - began
    how: dict[str, Any] = {"instances": INSTANCES, "seed": 1000 + seed, "devices": devices}
    table = gb.evaluate(
        {"learned": learned, **({"reference": reference} if reference else {})}, task.problem, **how
    )
    regret = table["learned"].regret
    others = {name: gb.evaluate(learned, other, **how).rows[0] for name, other in task.elsewhere.items()}
    return {
        "regret": regret.mean,
        "se": regret.se,
        "reference": vars(table["reference"].regret) if reference else None,
        "elsewhere": {name: vars(row.regret) for name, row in others.items()},
        "seconds": round(seconds, 1),
        "training": learned.about["training"],
        "stopped": learned.stopped,
    }


def summary(results: list[dict[str, Any]], known: dict[str, Task]) -> str:
    """A line for each task: mean over seeds, worst seed, targets, seconds."""
    lines = []
    for name, task in known.items():
        rows = [row for row in results if row["task"] == name]
        if not rows:
            continue
        regrets = np.array([row["regret"] for row in rows])
        se = regrets.std(ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else rows[0]["se"]
        seeds = ",".join(str(row["seed"]) for row in sorted(rows, key=lambda row: row["seed"]))
        wanted = "" if task.mean is None else f" ≤ {task.mean:.2f}"
        wanted += "" if task.worst is None else f", worst ≤ {task.worst:.2f}"
        seconds = np.mean([row["seconds"] for row in rows])
        lines.append(
            f"{name:<45} {regrets.mean():7.3f} ± {se:.3f}  worst {regrets.max():7.3f}"
            f"  {seconds:4.0f} s  seeds {seeds}{'  target' + wanted if wanted else ''}"
        )
        for other in task.elsewhere:
            played = [row["elsewhere"][other]["mean"] for row in rows]
            own = [row["regret"] for row in results if row["task"] == f"index/{other}"]
            ratio = f", {np.mean(played) / np.mean(own):.3f} of one learned there" if own else ""
            lines.append(f"    played at {other}: {np.mean(played):.3f}{ratio}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="tasks, or how their names begin, with commas between")
    parser.add_argument("--seeds", default="0-9", help="first-last")
    parser.add_argument("--devices", type=int, help="cores for each training")
    parser.add_argument("--out", type=Path, default=Path("runs/networks.jsonl"))
    parser.add_argument("--summary", action="store_true", help="only show what is there")
    given = parser.parse_args()
    known = tasks() | ablation()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    first, last = (int(word) for word in given.seeds.split("-"))
    for seed in range(first, last + 1):
        for name, task in known.items():
            done = read(given.out)
            wanted = any(
                name == word if word in known else name.startswith(word) for word in given.only.split(",")
            )
            if given.summary or not wanted or any((r["task"], r["seed"]) == (name, seed) for r in done):
                continue
            row = {"task": name, "seed": seed, **measure(task, seed, given.devices)}
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(
                f"{name}, seed {seed}: {row['regret']:.3f} ± {row['se']:.3f}, {row['seconds']} s",
                flush=True,
            )
    print(summary(read(given.out), known))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
