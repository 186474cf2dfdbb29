"""`gradband optimum`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from gradband.cli import options, shared, terminal

if TYPE_CHECKING:
    from gradband.evaluation.interval import Interval
    from gradband.exact.optimum import Optimum


def optimum(
    problem: options.ProblemName = "two-point",
    arms: options.Arms = None,
    horizon: options.Horizon = None,
    afterwards: options.Afterwards = None,
    out: Annotated[
        Path | None, Option(help="Folder to save the optimal policy in, as a policy file.")
    ] = None,
    certify: Annotated[
        float | None,
        Option(metavar="SECONDS", help="Time for a bound if the optimum can't be computed (default: 30)."),
    ] = None,
    instances: Annotated[
        int, Option(help="Instances to measure usual policies on if the optimum can't be computed.")
    ] = 10_000,
    json: options.Json = False,
) -> None:
    """Compute the Bayes-optimal reward and regret, and the policy that reaches it.

    For Bernoulli rewards with a finite or a beta prior: two arms up to
    1450 rounds (400 with pulls afterwards), more arms for short horizons. With
    contexts: the problems signs, groups and wheel, and finite lists of instances and
    contexts. If the optimum can't be computed, it prints an interval that contains
    it: from a bound that no policy can beat to the measured regret of the best usual
    policy.

    Examples:

      gradband optimum uniform-2

      gradband optimum distractors --arms 10

      gradband optimum uniform-2 --arms 3 --horizon 30 --out runs/optimal-3

      gradband optimum uniform-2 --horizon 100 --afterwards 10000

      gradband optimum bernoulli-10 --certify 60

      gradband optimum groups --horizon 100
    """
    import gradband as gb
    from gradband.core.errors import InputError
    from gradband.evaluation.interval import enclose

    task = options.load_problem(problem, arms, horizon, afterwards=afterwards)
    files = {"policy": str(out / "policy.safetensors"), "result": str(out / "result.json")} if out else {}
    if out:
        shared.make_folder(out)
    best: Optimum | Interval
    try:
        with terminal.progress("optimum") as update:
            best = gb.exact.optimum(task, progress=lambda done: update(done, "solving"))
    except InputError as error:
        if out:
            raise
        with terminal.progress("optimum") as update:
            how: dict[str, Any] = {"seconds": certify, "instances": instances}
            best = enclose(task, str(error), **how, progress=terminal.by_name(update))
    else:
        if out:
            best.playable().save(files["policy"])
    result = {"problem": shared.about(task, problem), **best.as_dict(), "files": files}
    title = shared.describe(task, problem)
    terminal.emit(result, json, lambda: show(best, title, files), files.get("result"))


def show(best: "Optimum | Interval", title: str, files: dict[str, str]) -> None:
    """Prints reward and regret, and how precise they are."""
    (table,) = best.tables()
    notes = [table.notes, *([f"Files: {', '.join(files.values())}"] if files else [])]
    terminal.show(table, title, "\n".join(notes))
