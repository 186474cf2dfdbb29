"""`gradband gradient`."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from gradband.cli.options import (
    Arms,
    Devices,
    Horizon,
    Instances,
    Json,
    Memory,
    Noise,
    PolicyName,
    ProblemName,
    Seed,
    load_problem,
    parse_range,
    typed_policy,
)
from gradband.cli.shared import describe, label_of
from gradband.core.errors import InputError


def gradient(
    problem: ProblemName = "two-point",
    policy: PolicyName = "softelim",
    theta: Annotated[str, typer.Option(help="Values of θ, as low:high:count, or one value.")] = "0.2:2:10",
    baselines: Annotated[str, typer.Option(help="Baselines to compare.")] = "none,optimal,self",
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Add the exact gradient: two Bernoulli arms, up to 400 rounds, policies of counts.",
        ),
    ] = False,
    rollouts: Annotated[
        int | None,
        typer.Option("--rollouts", "--runs", help="Rollouts on each instance, for leave-one-out (4)."),
    ] = None,
    returns: Annotated[str, typer.Option(help="realised, or expected rewards in the return.")] = "realised",
    arms: Arms = None,
    horizon: Horizon = None,
    noise: Noise = None,
    instances: Instances = 10_000,
    seed: Seed = 0,
    devices: Devices = None,
    memory: Memory = None,
    json: Json = False,
) -> None:
    """Show the reward gradient over θ and its spread, for each baseline.

    The spread is the standard deviation of the estimate from a single instance (m = 1).

    Examples:

      gradband gradient --policy exp3 --theta 0.1:1:10

      gradband gradient uniform-2 --horizon 50 --exact

      gradband gradient bernoulli-10 --baselines self,leave-one-out --instances 2000
    """
    import gradband as gb
    from gradband.cli import terminal
    from gradband.exact.counts import check as check_exact

    task = load_problem(problem, arms, horizon, noise)
    start = typed_policy(policy)
    if not isinstance(start, gb.policies.OneParameter):
        raise InputError(f"{start.name} has no single parameter theta")
    values, names = parse_range(theta), [name for name in baselines.split(",") if name]
    if not names and not exact:
        raise InputError("there is no baseline to compare")
    estimators = {
        name: gb.Estimator(name, rollouts if name == "leave-one-out" else None, returns) for name in names
    }
    for value in values:
        bound = dataclasses.replace(start, theta=value).bind(task.arms, task.horizon)
        for estimator in estimators.values():
            estimator.check(bound, task)
        if exact:
            check_exact(bound, task)
    rows: list[dict[str, Any]] = []
    with terminal.progress("estimating", len(values) * (len(names) + exact)) as update:
        for value in values:
            if exact:
                truth = gb.exact.by_counts(
                    dataclasses.replace(start, theta=value),
                    task,
                    progress=partial(tell, update, len(rows), f"θ = {value:.4g}, exact"),
                )
                row = {"gradient": float(truth.gradient["theta"]), "se": 0.0, "spread": 0.0}
                rows.append({"theta": value, "baseline": "exact", **row})
            for name in names:
                found = gb.estimate(
                    dataclasses.replace(start, theta=value),
                    task,
                    instances=instances,
                    estimator=estimators[name],
                    seed=seed,
                    devices=devices,
                    memory=memory,
                )
                row = {"gradient": found.mean[0], "se": found.se[0], "spread": found.spread[0]}
                rows.append({"theta": value, "baseline": name, **row})
                update(len(rows), f"θ = {value:.4g}, {name}")
    if json:
        about = task.describe() | {"name": label_of(task, problem)}
        terminal.print_json({"problem": about, "policy": start.name, "instances": instances, "rows": rows})
        return
    terminal.print_table(
        f"{start.name} on {describe(task, problem)}" + (f", {instances} instances" if names else ""),
        ["baseline", "θ", "gradient", "± se", "spread (m = 1)"],
        [
            [str(r["baseline"]), *(f"{r[k]:.4g}" for k in ("theta", "gradient", "se", "spread"))]
            for r in rows
        ],
    )


def tell(update: Callable[[float, str], None], before: int, words: str, done: float) -> None:
    """Shows how far a row is, after those before it."""
    update(before + done, words)
