"""`gradband optimum`."""

from pathlib import Path
from typing import Annotated

import typer

from gradband.cli.options import Afterwards, Arms, Horizon, Json, ProblemName, load_problem
from gradband.cli.shared import describe, label_of, make_folder, write_json


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
    numbers = ("reward", "regret", "error", "loss", "method", "seconds")
    result = {
        "problem": task.describe() | {"name": label_of(task, problem)},
        **{name: getattr(best, name) for name in numbers},
        "policy": best.policy.policy.name,
        "files": {},
    }
    if out:
        files = {"policy": str(out / "policy.safetensors"), "result": str(out / "result.json")}
        result["files"] = files
        best.policy.save(files["policy"])
        write_json(Path(files["result"]), result)
    if json:
        terminal.print_json(result)
        return
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
    if out:
        notes.append(f"Files: {', '.join(result['files'].values())}")
    terminal.print_table(
        describe(task, problem),
        ["", "Bayes optimum"],
        [["reward", f"{best.reward:.6f}"], ["regret", f"{best.regret:.6f}"]],
        "\n".join(notes),
    )
