"""Units of work: what a picture or a row needs, each decided by its settings alone.

The same settings give the same numbers, so what several figures need is done once.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gradband as gb
from gradband import files, recipes
from gradband.arguments import parse_policy
from gradband.errors import InputError
from gradband.evaluation import Mean
from gradband.learned import Learned
from gradband.reproduction.unit import Unit

Note = Callable[[float, str], None]


@dataclasses.dataclass(frozen=True)
class Desk:
    """Where a unit tells how far it is, and what file it may keep unfinished work in."""

    note: Note
    draft: Path


def carry_out(unit: Unit, desk: Desk) -> dict[str, Any]:
    """Does a unit of work: its result as JSON can hold it."""
    given = dict(unit)
    return files.finite(WORK[given.pop("do")](desk, **given))


def problem_of(given: dict[str, Any]) -> gb.Problem:
    """A problem of the paper from its `name`, and `arms`, `horizon` or `noise` if they are other ones."""
    given = dict(given)
    noise = given.pop("noise", "shared")
    return gb.problems.named(**given).replace(noise=noise)


def evaluate(desk: Desk, problem: dict[str, Any], policy: str, instances: int, seed: int) -> dict[str, Any]:
    """The Bayes regret of a policy, and its standard deviation from instance to instance."""
    row = gb.evaluate(
        parse_policy(policy),
        problem_of(problem),
        instances=instances,
        seed=seed,
        progress=lambda name, done: desk.note(done, ""),
    ).rows[0]
    return measured(row.regret, instances)


def measured(regret: Mean, instances: int) -> dict[str, Any]:
    return {"regret": regret.mean, "se": regret.se, "sd": regret.se * instances**0.5}


def optimum(desk: Desk, problem: dict[str, Any]) -> dict[str, Any]:
    """The exact optimum's regret."""
    best = gb.exact.optimum(problem_of(problem), progress=lambda done: desk.note(done, "solving"))
    return {"regret": best.regret, "error": best.error}


def exact(desk: Desk, problem: dict[str, Any], policy: str) -> dict[str, Any]:
    """The exact regret of a policy of counts on two arms, and its gradient by θ if it has one."""
    found = gb.exact.by_counts(
        parse_policy(policy), problem_of(problem), progress=lambda done: desk.note(done, "")
    )
    return {"regret": found.regret, "gradient": found.gradient.get("theta")}


def enumerated(desk: Desk, problem: dict[str, Any], policy: str) -> dict[str, Any]:
    """The exact mean of a policy's gradient estimates, from every history."""
    found = gb.exact.by_enumeration(parse_policy(policy), problem_of(problem))
    return {"regret": found.regret, "gradient": found.gradient["theta"]}


def gradient(
    desk: Desk, problem: dict[str, Any], policy: str, baseline: str, instances: int, seed: int
) -> dict[str, Any]:
    """A reward gradient, its standard error, and the standard deviation of estimates with m = 1."""
    found = gb.estimate(
        parse_policy(policy), problem_of(problem), instances=instances, estimator=baseline, seed=seed
    )
    return {"gradient": found.mean[0], "se": found.se[0], "spread": found.spread[0]}


def opening(desk: Desk, problem: dict[str, Any], arm: int) -> dict[str, Any]:
    """The regret of pulling an arm first and being optimal from then on.

    The rounds after a reward are a problem of their own, whose prior is the posterior.
    """
    task = problem_of(problem)
    prior = task.prior
    if not isinstance(prior, gb.priors.Finite):
        raise InputError("only a finite prior has openings to compare")
    instances, weights = (np.asarray(array, float) for array in (prior.instances, prior.weights))
    means, best = instances[:, arm - 1], float(weights @ instances.max(1)) * task.horizon
    value = 0.0
    for reward in (0, 1):
        joint = weights * (means if reward else 1 - means)
        later = gb.Problem(gb.priors.Finite(instances, joint / joint.sum()), task.horizon - 1)
        value += float(joint.sum()) * (reward + gb.exact.optimum(later).reward)
        desk.note((reward + 1) / 2, f"after {reward}")
    return {"regret": best - value}


def learn(
    desk: Desk,
    problem: dict[str, Any],
    policy: str,
    seed: int,
    final: int,
    evaluation: int = 0,
    every: int = 0,
    baseline: str | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Learns a policy: regrets along its last phase, as [iteration, regret, se], and at the end.

    Curves are measured on `evaluation` fresh instances, the same for all points of a run, and the end on
    `final` ones. Points and a checkpoint are kept on the way, so that a run which is cut off goes on from
    there, to the same numbers.
    """
    task, start = problem_of(problem), parse_policy(policy)
    checkpoint = desk.draft.with_suffix(".safetensors")
    points: dict[int, list[float]] = _points(desk.draft)

    def point(iteration: int, entry: Any) -> None:
        found = gb.evaluate(entry, task, instances=evaluation, seed=seed).rows[0].regret
        points[iteration] = [found.mean, found.se]
        files.write_text(desk.draft, json.dumps([[i, *points[i]] for i in points]))

    def watch(step: Any) -> None:
        desk.note(step.iteration / step.iterations, f"regret {step.regret:.2f}")
        before = step.iterations - length
        iteration = step.iteration - before
        if every and iteration >= 0 and (iteration % every == 0 or iteration == length):
            point(iteration, Learned(start, step.params, {}, {}))

    recipe = recipes.choose(start.bind(task.arms, task.horizon), settings.get("recipe"))
    length = settings.get("iterations") or recipe.iterations
    start = recipe.begin(start)
    if every and 0 not in points and not recipe.curriculum(task.horizon):
        point(0, start)
    settings |= {"seed": seed, "estimator": baseline, "progress": watch}
    if start.name != "dqn":  # which has no checkpoints
        settings |= {"checkpoint": checkpoint, "checkpoint_every": 50, "resume": True}
    try:
        learned = gb.learn(start, task, **settings)
    except InputError:
        if not checkpoint.exists():
            raise
        checkpoint.unlink()  # it was damaged: begin anew
        learned = gb.learn(start, task, **settings)
    end = gb.evaluate(learned, task, instances=final, seed=seed).rows[0].regret
    few = sum(leaf.size for leaf in learned.params.values()) == 1
    for leftover in (checkpoint, desk.draft):
        leftover.unlink(missing_ok=True)
    return {
        "points": [[i, *points[i]] for i in sorted(points)],
        **measured(end, final),
        "params": learned.params if few else {},
        "stopped": learned.stopped,
    }


def _points(draft: Path) -> dict[int, list[float]]:
    """Points of a run that was cut off, or none."""
    try:
        return {int(i): [float(mean), float(se)] for i, mean, se in json.loads(draft.read_text())}
    except (OSError, ValueError, TypeError):
        return {}


WORK: dict[str, Callable[..., dict[str, Any]]] = {
    "evaluate": evaluate,
    "optimum": optimum,
    "exact": exact,
    "enumerate": enumerated,
    "gradient": gradient,
    "opening": opening,
    "learn": learn,
}
