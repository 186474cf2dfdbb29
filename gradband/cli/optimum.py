"""`gradband optimum`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from gradband.cli import options, shared, terminal

if TYPE_CHECKING:
    from gradband.exact.optimum import Optimum


def optimum(
    problem: options.ProblemName = "two-point",
    arms: options.Arms = None,
    horizon: options.Horizon = None,
    afterwards: options.Afterwards = None,
    out: Annotated[
        Path | None, Option(help="Folder to save the optimal policy in, as a policy file.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Compute the Bayes-optimal reward and regret, and the policy that reaches it.

    For Bernoulli rewards with a finite prior, or a beta prior: two arms up to
    1450 rounds (400 with pulls afterwards), more arms for short horizons. If the
    optimum can't be computed, the error says why and which size is feasible.

    Examples:

      gradband optimum uniform-2

      gradband optimum distractors --arms 10

      gradband optimum uniform-2 --arms 3 --horizon 30 --out runs/optimal-3

      gradband optimum uniform-2 --horizon 100 --afterwards 10000
    """
    import gradband as gb

    task = options.load_problem(problem, arms, horizon, afterwards=afterwards)
    files = {"policy": str(out / "policy.safetensors"), "result": str(out / "result.json")} if out else {}
    if out:
        shared.make_folder(out)
    with terminal.progress("optimum") as update:
        best = gb.exact.optimum(task, progress=lambda done: update(done, "solving"))
    if out:
        best.policy.save(files["policy"])
    result = {"problem": shared.about(task, problem), **best.as_dict(), "files": files}
    title = shared.describe(task, problem)
    terminal.emit(result, json, lambda: show(best, title, files), files.get("result"))


def show(best: "Optimum", title: str, files: dict[str, str]) -> None:
    """Prints reward and regret, and how precise they are."""
    (table,) = best.tables()
    notes = [table.notes, *([f"Files: {', '.join(files.values())}"] if files else [])]
    terminal.show(table, title, "\n".join(notes))
