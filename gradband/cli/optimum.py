"""`gradband optimum`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradband.cli.options import Afterwards, Arms, Horizon, Json, ProblemName, load_problem
from gradband.cli.shared import about, describe, make_folder

if TYPE_CHECKING:
    from gradband.exact.optimum import Optimum


def optimum(
    problem: ProblemName = "two-point",
    arms: Arms = None,
    horizon: Horizon = None,
    afterwards: Afterwards = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to save the optimal policy in, as a policy file.")
    ] = None,
    json: Json = False,
) -> None:
    """Compute the Bayes-optimal reward and regret, and the policy that reaches it.

    For Bernoulli rewards with a finite prior, or a beta prior: two arms up to
    1450 rounds (400 with pulls afterwards), more arms for short horizons. Where the optimum can't be
    computed, the error says why and which size would do.

    Examples:

      gradband optimum uniform-2

      gradband optimum distractors --arms 10

      gradband optimum uniform-2 --arms 3 --horizon 30 --out runs/optimal-3

      gradband optimum uniform-2 --horizon 100 --afterwards 10000
    """
    import gradband as gb
    from gradband.cli import terminal

    task = load_problem(problem, arms, horizon, afterwards=afterwards)
    if out:
        make_folder(out)
    with terminal.progress("optimum", 1) as update:
        best = gb.exact.optimum(task, progress=lambda done: update(done, "solving"))
    files = {"policy": str(out / "policy.safetensors"), "result": str(out / "result.json")} if out else {}
    if files:
        best.policy.save(files["policy"])
    result = {"problem": about(task, problem), **best.as_dict(), "files": files}
    title = describe(task, problem)
    terminal.emit(result, json, lambda: show(best, title, files), files.get("result"))


def show(best: "Optimum", title: str, files: dict[str, str]) -> None:
    """Reward and regret as a table, and how precise they are."""
    from gradband.cli import terminal

    notes = [
        f"Method: {best.method}, {best.seconds:.2f} s.",
        f"The optimal reward is at most {best.error:.2g} higher, and the regret as much lower."
        if best.error
        else "Exact, up to rounding.",
    ]
    if best.loss is None:
        notes.append("The policy's own reward is not known; gradband compare measures it.")
    elif best.loss > 1e-9:
        notes.append(f"The policy is {best.loss:.2g} short of that reward.")
    if files:
        notes.append(f"Files: {', '.join(files.values())}")
    terminal.print_table(
        title,
        ["", "Bayes optimum"],
        [["reward", f"{best.reward:.6f}"], ["regret", f"{best.regret:.6f}"]],
        "\n".join(notes),
    )
