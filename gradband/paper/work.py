"""Units of work for panels and rows. A unit that several figures need is done once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import gradband as gb
from gradband.core import files
from gradband.core.errors import InputError
from gradband.core.statistics import Mean
from gradband.learning import recipes
from gradband.paper.unit import Unit
from gradband.policies.given import parse_policy
from gradband.policies.policy_file import Learned


class Desk(NamedTuple):
    """Where a unit reports its progress, and the file for its unfinished work, if any."""

    note: Callable[[float, str], None] = lambda share, words: None
    draft: Path | None = None


def carry_out(unit: Unit, desk: Desk | None = None) -> dict[str, Any]:
    """Does a unit of work, and returns its result in types that JSON has.

    >>> there = {"name": "two-point", "horizon": 2}
    >>> round(carry_out({"do": "optimum", "problem": there})["regret"], 6)
    0.18
    """
    given = dict(unit)
    result = WORK[given.pop("do")](desk or Desk(), **given)
    try:
        return json.loads(
            json.dumps(result, default=lambda array: np.asarray(array).tolist(), allow_nan=False)
        )
    except ValueError:
        raise RuntimeError("the result has a number that is not finite") from None


def problem_of(given: dict[str, Any]) -> gb.Problem:
    """A problem of the paper by its `name`, with other `arms`, `horizon` or `noise` if given."""
    size = {key: given[key] for key in given if key != "noise"}
    return gb.problems.named(**size).replace(noise=given.get("noise", "shared"))


def evaluate(desk: Desk, problem: dict[str, Any], policy: str, instances: int, seed: int) -> dict[str, Any]:
    """The Bayes regret of a policy, and its standard deviation from instance to instance."""
    how: dict[str, Any] = {"instances": instances, "seed": seed}
    how["progress"] = lambda name, done: desk.note(done, "")
    return measured(gb.evaluate(parse_policy(policy), problem_of(problem), **how).rows[0].regret, instances)


def measured(regret: Mean, instances: int) -> dict[str, Any]:
    return {"regret": regret.mean, "se": regret.se, "sd": regret.se * instances**0.5}


def optimum(desk: Desk, problem: dict[str, Any]) -> dict[str, Any]:
    """The exact optimum's regret."""
    best = gb.exact.optimum(problem_of(problem), progress=lambda done: desk.note(done, "solving"))
    return {"regret": best.regret, "error": best.error}


def bound(desk: Desk, problem: dict[str, Any], seconds: float) -> dict[str, Any]:
    """A lower bound on every policy's regret, where there is no optimum."""
    found = gb.exact.bound(problem_of(problem), seconds=seconds)
    return {"regret": found.regret, "se": found.se}


def exact(desk: Desk, problem: dict[str, Any], policy: str) -> dict[str, Any]:
    """The exact regret of a policy of counts on two arms, and its gradient by θ if it has one."""
    task, given = problem_of(problem), parse_policy(policy)
    found = gb.exact.by_counts(given, task, progress=lambda done: desk.note(done, ""))
    slope = {"gradient": found.gradient["theta"]} if "theta" in found.gradient else {}
    return {"regret": found.regret, **slope}


def enumerated(desk: Desk, problem: dict[str, Any], policy: str) -> dict[str, Any]:
    """The exact mean of a policy's gradient estimates, from every history."""
    found = gb.exact.by_enumeration(parse_policy(policy), problem_of(problem))
    return {"regret": found.regret, "gradient": found.gradient["theta"]}


def gradient(
    desk: Desk, problem: dict[str, Any], policy: str, baseline: str, instances: int, seed: int
) -> dict[str, Any]:
    """A reward gradient, its standard error, and the standard deviation of estimates with m = 1.

    The standard error of that deviation's logarithm is √((κ − 1) / m) / 2, where κ is the kurtosis.
    """
    found = gb.estimate(
        parse_policy(policy), problem_of(problem), instances=instances, estimator=baseline, seed=seed
    )
    if found.per_instance is None:
        raise InputError(f"{policy} has too many parameters for gradients over θ")
    alone = (found.per_instance[0] - found.mean[0]) / found.spread[0]
    doubt = np.sqrt((np.mean(alone**4) - 1) / instances) / 2
    return {"gradient": found.mean[0], "se": found.se[0], "spread": found.spread[0], "doubt": doubt}


def opening(desk: Desk, problem: dict[str, Any], arm: int) -> dict[str, Any]:
    """The regret of pulling an arm first and being optimal from then on.

    The rounds after a reward are another problem, whose prior is the posterior.
    """
    task = problem_of(problem)
    prior = task.prior
    if not isinstance(prior, gb.priors.Finite):
        raise InputError("openings need a finite prior")
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
    **settings: Any,
) -> dict[str, Any]:
    """Learns a policy, and measures its regret during the last phase (`points`) and at the end.

    The `settings` are those of `gb.learn`, with the estimator's `baseline`, and the `batch` of m instances
    per iteration. Each of the `points` [iteration, regret, se] is measured on the same `evaluation` fresh
    instances, and the end on `final` ones. Points and a checkpoint are stored on the way, so that an
    interrupted run resumes, to the same numbers.
    """
    task, start = problem_of(problem), parse_policy(policy)
    points: dict[int, list[float]] = _points(desk.draft)
    checkpoint = None if desk.draft is None else desk.draft.with_suffix(".safetensors")
    if checkpoint and not points:
        files.forget(checkpoint)  # its points are lost

    def point(iteration: int, entry: Any) -> None:
        found = gb.evaluate(entry, task, instances=evaluation, seed=seed).rows[0].regret
        points[iteration] = [found.mean, found.se]
        if desk.draft:
            files.write_text(desk.draft, json.dumps([[i, *points[i]] for i in points]))

    def watch(step: Any) -> None:
        desk.note(step.iteration / step.iterations, f"regret {step.regret:.2f}")
        iteration = step.iteration - (step.iterations - length)
        if every and iteration >= 0 and (iteration % every == 0 or iteration == length):
            point(iteration, Learned(start, step.params, {}, {}))

    recipe = recipes.choose(start.bind(task.arms, task.horizon), settings.get("recipe"))
    length = settings.get("iterations") or recipe.iterations
    start = recipe.begin(start)
    if every and 0 not in points and not recipe.curriculum(task.horizon):
        point(0, start)
    sizes = {"instances": settings.pop("batch", None), "estimator": settings.pop("baseline", None)}
    settings |= {"seed": seed, **sizes, "progress": watch}
    if start.trainer == gb.policies.Policy.trainer and checkpoint:  # others have none
        settings |= {"checkpoint": checkpoint, "checkpoint_every": 50, "resume": True}
    try:
        learned = gb.learn(start, task, **settings)
    except InputError:
        if checkpoint is None or not files.forget(checkpoint):
            raise
        # The checkpoint was damaged: start from scratch.
        learned = gb.learn(start, task, **settings)
    end = gb.evaluate(learned, task, instances=final, seed=seed).rows[0].regret
    found = [[i, *points[i]] for i in sorted(points)]
    return {"points": found, **measured(end, final), "stopped": learned.stopped}


def _points(draft: Path | None) -> dict[int, list[float]]:
    """Points of an interrupted run, or none."""
    try:
        kept = json.loads(draft.read_text()) if draft else []
        return {int(i): [float(mean), float(se)] for i, mean, se in kept}
    except (OSError, ValueError, TypeError):
        return {}


NAMED = (evaluate, optimum, bound, exact, gradient, opening, learn)
WORK: dict[str, Callable[..., dict[str, Any]]] = {work.__name__: work for work in NAMED}
WORK["enumerate"] = enumerated
