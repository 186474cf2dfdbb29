"""`gradband gradient`."""

from typing import TYPE_CHECKING, Annotated, Any

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
from gradband.cli.shared import about, describe

if TYPE_CHECKING:
    from gradband.evaluation.gradient_curve import GradientCurve


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
        typer.Option(help="Rollouts on each instance, for leave-one-out (4)."),
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
    from gradband.cli import terminal
    from gradband.evaluation.gradient_curve import gradient_curve
    from gradband.gradient.estimator import Estimator

    task, start = load_problem(problem, arms, horizon, noise), typed_policy(policy)
    thetas, names = parse_range(theta), [name for name in baselines.split(",") if name]
    several = {"leave-one-out": rollouts}
    estimators = [Estimator(name, several.get(name), returns) for name in names]
    where: dict[str, Any] = {"seed": seed, "devices": devices, "memory": memory}
    with terminal.progress("estimating", 1) as update:
        found = gradient_curve(
            start, task, thetas, estimators, exact=exact, instances=instances, progress=update, **where
        )
    title = f"{found.policy} on {describe(task, problem)}" + (f", {instances} instances" if names else "")
    result = {"problem": about(task, problem), **found.as_dict()}
    terminal.emit(result, json, lambda: show(found, title))


def show(found: "GradientCurve", title: str) -> None:
    """The gradients as a table."""
    from gradband.cli import terminal

    terminal.print_table(
        title,
        ["baseline", "θ", "gradient", "± se", "spread (m = 1)"],
        [
            [point.baseline, *(f"{n:.4g}" for n in (point.theta, point.gradient, point.se, point.spread))]
            for point in found.points
        ],
    )
