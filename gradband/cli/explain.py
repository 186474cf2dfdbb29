"""`gradband explain`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from gradband.cli import options, shared, terminal

if TYPE_CHECKING:
    from gradband.evaluation.explain import Explanation


def explain(
    file: options.PolicyFile,
    problem: Annotated[
        str | None, Option(help="Problem to play, a name or a TOML file (default: the policy's own).")
    ] = None,
    trust: options.Trust = None,
    arms: options.Arms = None,
    horizon: options.Horizon = None,
    instances: options.Instances = 4000,
    optimal: Annotated[bool, Option(help="Show the optimal policy too, if it can be computed.")] = True,
    seed: options.Seed = 0,
    devices: options.Devices = None,
    memory: options.Memory = None,
    certify: options.Certify = None,
    out: Annotated[Path | None, Option(help="Folder for files (default: that of the policy file).")] = None,
    json: options.Json = False,
) -> None:
    """Plot what a policy does, next to what the optimal policy would do.

    The figure shows how likely an arm is pulled early, midway and late, by how far
    its mean is ahead and how often it was pulled; and the probability of each arm
    over the rounds. Both policies are shown after the same histories.

    Examples:

      gradband explain runs/two-point-softelim/policy.safetensors

      gradband explain policy.safetensors --problem uniform-2 --horizon 500

      gradband explain policy.safetensors --no-optimal --json
    """
    import gradband as gb
    from gradband.cli import figures
    from gradband.evaluation.evaluate import fresh_instances
    from gradband.evaluation.explain import problem_of

    learned = gb.load(file, trust)
    if problem is None:
        task = problem_of(learned, arms, horizon, file.parent)
    else:
        task = options.load_problem(problem, arms, horizon)
    fresh_instances(task, instances)
    folder = shared.make_folder(out or file.parent)
    with terminal.progress("explaining") as update:
        found = gb.explain(
            learned,
            task,
            instances=instances,
            optimal=optimal,
            seed=seed,
            devices=devices,
            memory=memory,
            certify=certify,
            progress=terminal.by_name(update),
        )
    source = problem or "its problem"
    title = f"{found.policy} on {shared.describe(task, source)}"
    files = {"figure": str(folder / "explain.png"), "result": str(folder / "explain.json")}
    figures.save(Path(files["figure"]), figures.explanation(title, found))
    result = {"problem": shared.about(task, source), "seed": seed, **found.as_dict(), "files": files}
    terminal.emit(result, json, lambda: show(found, title, files), files["result"])


def show(found: "Explanation", title: str, files: dict[str, str]) -> None:
    """Prints what the policy does early, midway and late."""
    (table,) = found.tables()
    notes = f"{table.notes}\nFiles: {', '.join(files.values())}"
    terminal.show(table, f"{title}, {found.instances} instances", notes)
