"""The reward gradient over θ: estimates with several baselines, beside the exact gradient."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gradband.core.errors import InputError
from gradband.exact import counts
from gradband.gradient.estimator import Estimator, estimate
from gradband.policies import OneParameter, Policy
from gradband.problems import Problem

EXACT = "exact"


@dataclasses.dataclass(frozen=True)
class Point:
    """The gradient at one θ, by a baseline or exact; `spread` is that of one instance's estimate."""

    theta: float
    baseline: str
    gradient: float
    se: float
    spread: float


@dataclasses.dataclass(frozen=True)
class GradientCurve:
    """Points in the order of θ, and of the baselines at each θ."""

    policy: str
    instances: int
    points: tuple[Point, ...]

    def as_dict(self) -> dict[str, Any]:
        rows = [vars(point) for point in self.points]
        return {"policy": self.policy, "instances": self.instances, "rows": rows}


def gradient_curve(
    policy: Policy,
    problem: Problem,
    thetas: Sequence[float],
    estimators: Sequence[Estimator],
    *,
    exact: bool = False,
    instances: int = 10_000,
    progress: Callable[[float, str], None] = lambda done, words: None,
    **how: Any,
) -> GradientCurve:
    """Estimates the gradient at each θ with each estimator, after checking all of them.

    Args:
        policy: A policy whose only parameter is θ.
        problem: The problem to play.
        thetas: Values of θ.
        estimators: One for each baseline.
        exact: Whether to compute the exact gradient too (see `by_counts`); it comes first at each θ.
        instances: Fresh instances for each estimate.
        progress: Called with the share that is done, and a few words.
        how: `seed`, `devices` and `memory`, for `estimate`.
    """
    sized = policy.bind(problem.arms, problem.horizon)
    if not isinstance(policy, OneParameter) or set(sized.shapes()) != {"theta"}:
        raise InputError(f"{policy.name} has no single parameter theta")
    if not estimators and not exact:
        raise InputError("there is no baseline to compare")
    at = {theta: dataclasses.replace(policy, theta=theta) for theta in thetas}
    for entry in at.values():
        bound = entry.bind(problem.arms, problem.horizon)
        for estimator in estimators:
            estimator.check(bound, problem)
        if exact:
            counts.check(bound, problem)
    points: list[Point] = []
    total = len(thetas) * (len(estimators) + exact)

    def report(words: str, share: float) -> None:
        progress((len(points) + share) / total, words)

    for theta in thetas:
        where = f"θ = {theta:.4g}"
        if exact:
            truth = counts.by_counts(at[theta], problem, progress=partial(report, f"{where}, exact"))
            points.append(Point(theta, EXACT, float(truth.gradient["theta"]), 0.0, 0.0))
        for estimator in estimators:
            report(f"{where}, {estimator.rule.name}", 0.0)
            found = estimate(at[theta], problem, instances=instances, estimator=estimator, **how)
            numbers = (float(values[0]) for values in (found.mean, found.se, found.spread))
            points.append(Point(theta, estimator.rule.name, *numbers))
    return GradientCurve(policy.name, instances, tuple(points))
