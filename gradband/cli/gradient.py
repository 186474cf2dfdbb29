"""`gradband gradient`."""

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from gradband.cli import options, shared, terminal
from gradband.core.results import TextTable

if TYPE_CHECKING:
    from gradband.evaluation.gradient_curve import GradientCurve


def gradient(
    problem: options.ProblemName = "two-point",
    policy: options.PolicyName = "softelim",
    theta: Annotated[str, Option(help="Values of θ, as low:high:count, or one value.")] = "0.2:2:10",
    baselines: Annotated[str, Option(help="Baselines, separated by commas.")] = "none,optimal,self",
    exact: Annotated[
        bool,
        Option(
            "--exact",
            help="Add the exact gradient (2 Bernoulli arms, at most 400 rounds, policies of counts).",
        ),
    ] = False,
    rollouts: Annotated[
        int | None, Option(help="Rollouts per instance, for leave-one-out (default: 4).")
    ] = None,
    returns: Annotated[str, Option(help="Kind of returns: realised, expected or priced.")] = "realised",
    arms: options.Arms = None,
    horizon: options.Horizon = None,
    noise: options.Noise = None,
    instances: options.Instances = 10_000,
    seed: options.Seed = 0,
    devices: options.Devices = None,
    memory: options.Memory = None,
    json: options.Json = False,
) -> None:
    """Show the reward gradient over θ and its spread, for each baseline.

    The spread is the standard deviation of the estimate from a single instance (m = 1).

    Examples:

      gradband gradient --policy exp3 --theta 0.1:1:10

      gradband gradient uniform-2 --horizon 50 --exact

      gradband gradient bernoulli-10 --baselines self,leave-one-out --instances 2000
    """
    from gradband.evaluation.gradient_curve import gradient_curve
    from gradband.gradient.estimator import Estimator

    task = options.load_problem(problem, arms, horizon, noise)
    start = options.parse_policy(policy, task)
    thetas, names = options.parse_range(theta), [name for name in baselines.split(",") if name]
    several = {"leave-one-out": rollouts}
    estimators = [Estimator(name, several.get(name), returns) for name in names]
    where: dict[str, Any] = {"seed": seed, "devices": devices, "memory": memory}
    with terminal.progress("estimating") as update:
        found = gradient_curve(
            start, task, thetas, estimators, exact=exact, instances=instances, progress=update, **where
        )
    title = f"{found.policy} on {shared.describe(task, problem)}"
    title += f", {instances} instances" if names else ""
    result = {"problem": shared.about(task, problem), **found.as_dict()}
    terminal.emit(result, json, lambda: show(found, title))


def show(found: "GradientCurve", title: str) -> None:
    """Prints the gradients."""
    rows = [
        [point.baseline, *(f"{n:.4g}" for n in (point.theta, point.gradient, point.se, point.spread))]
        for point in found.points
    ]
    terminal.show(TextTable(title, ["baseline", "θ", "gradient", "± se", "spread (m = 1)"], rows))
