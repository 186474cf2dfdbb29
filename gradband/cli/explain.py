"""`gradband explain`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradband.cli.options import Arms, Devices, Horizon, Instances, Json, Memory, Seed, Trust, load_problem
from gradband.cli.shared import make_folder, size_of

if TYPE_CHECKING:
    from gradband.evaluation.explain import Explanation


def explain(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy file.", show_default=False)],
    problem: Annotated[
        str | None,
        typer.Option(
            help="Problem to play, a name or a TOML file (the one that the policy was learned on)."
        ),
    ] = None,
    trust: Trust = None,
    arms: Arms = None,
    horizon: Horizon = None,
    instances: Instances = 4000,
    optimal: Annotated[
        bool, typer.Option(help="Show the problem's optimal policy too, where it can be computed.")
    ] = True,
    seed: Seed = 0,
    devices: Devices = None,
    memory: Memory = None,
    out: Annotated[Path | None, typer.Option(help="Folder for files (the policy file's own).")] = None,
    json: Json = False,
) -> None:
    """Draw what a policy does, beside what the optimal policy would do.

    One picture: the probability of pulling an arm, by how far its mean is
    ahead and how often it was pulled, early, midway and late; and that of
    each arm over the rounds. Both policies are shown after the same histories.

    Examples:

      gradband explain runs/two-point-softelim/policy.safetensors

      gradband explain policy.safetensors --problem uniform-2 --horizon 500

      gradband explain policy.safetensors --no-optimal --json
    """
    import gradband as gb
    from gradband.cli import figures, terminal
    from gradband.evaluation.evaluate import fresh_instances
    from gradband.evaluation.explain import problem_of

    learned = gb.load(file, trust)
    if problem is None:
        task = problem_of(learned, arms, horizon, file.parent)
    else:
        task = load_problem(problem, arms, horizon)
    fresh_instances(task, instances)
    folder = make_folder(out or file.parent)
    with terminal.progress("explaining", 1) as update:
        found = gb.explain(
            learned,
            task,
            instances=instances,
            optimal=optimal,
            seed=seed,
            devices=devices,
            memory=memory,
            progress=lambda what, done: update(done, what),
        )
    label = task.name or (Path(problem).stem if problem else "its problem")
    title = f"{found.policy} on {label}: {size_of(task)}"
    files = {"figure": str(folder / "explain.png"), "result": str(folder / "explain.json")}
    figures.explanation(Path(files["figure"]), title, found)
    result = {
        "problem": task.describe() | {"name": label},
        "seed": seed,
        **found.as_dict(),
        "files": files,
    }
    terminal.emit(result, json, lambda: show(found, title, files), files["result"])


def show(found: "Explanation", title: str, files: dict[str, str]) -> None:
    """What the policy does early, midway and late, as a table."""
    from gradband.cli import figures, terminal

    notes = [
        f"Left alone, with less than 1 % of the pulls: {listed(found.left_alone)}.",
        *([f"There is no optimal policy to show. {found.note}"] if found.note else []),
        f"Files: {', '.join(files.values())}",
    ]
    shown = found.maps.optimal is not None
    terminal.print_table(
        f"{title}, {found.instances} instances",
        [
            "",
            "pulls" if found.problem.pulls_per_round > 1 else "rounds",
            "pulls the best so far",
            "± se",
            *(["agrees with the optimal policy", "± se"] if shown else []),
        ],
        [
            [
                window.name,
                figures.span(window.first, window.last),
                *(cell for share in (window.leading, window.agreement) if share for cell in percent(share)),
            ]
            for window in found.windows
        ],
        "\n".join(notes),
    )


def percent(share: Any) -> tuple[str, str]:
    """A share and its standard error, in percent."""
    return f"{100 * share.mean:.1f} %", f"{100 * share.se:.1f}"


def listed(arms: Sequence[int]) -> str:
    """Arms in words, runs of them in short.

    >>> listed([1, 4, 5, 6]), listed([2]), listed([])
    ('arms 1, 4–6', 'arm 2', 'no arm')
    """
    from gradband.cli.figures import span

    runs: list[list[int]] = []
    for arm in arms:
        if runs and runs[-1][-1] == arm - 1:
            runs[-1] = [runs[-1][0], arm]
        else:
            runs.append([arm])
    words = ", ".join(span(run[0], run[-1]) for run in runs)
    return f"arm{'s' if len(arms) > 1 else ''} {words}" if runs else "no arm"
