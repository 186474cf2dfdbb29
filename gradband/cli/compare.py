"""`gradband compare`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradband.cli.options import (
    Afterwards,
    Arms,
    Devices,
    Horizon,
    Instances,
    Json,
    Memory,
    Noise,
    Policies,
    ProblemName,
    Seed,
    Trust,
    load_problem,
)
from gradband.cli.shared import (
    about,
    describe,
    file_name,
    known_optimum,
    label_of,
    make_folder,
    measure,
    optimal_policy,
    player,
)

if TYPE_CHECKING:
    from gradband.evaluation.evaluate import Comparison
    from gradband.evaluation.standing import Standing
    from gradband.problems import Problem


def compare(
    problem: ProblemName = "two-point",
    policies: Policies = None,
    trust: Trust = None,
    arms: Arms = None,
    horizon: Horizon = None,
    afterwards: Afterwards = None,
    noise: Noise = None,
    instances: Instances = 10_000,
    seed: Seed = 0,
    devices: Devices = None,
    memory: Memory = None,
    out: Annotated[Path | None, typer.Option(help="Folder for files (runs/PROBLEM-compare).")] = None,
    json: Json = False,
) -> None:
    """Compare the Bayes regret of policies on the same instances.

    Where the optimum can be computed, each policy is also shown as a place
    on the way from Thompson sampling (0 %) to the optimum (100 %).

    Examples:

      gradband compare --policies optimal,gittins,ts,ucb1,ucb-v

      gradband compare bernoulli-10 --policies ts,ucb1,softelim:theta=0.1

      gradband compare mine.toml --policies ts,ts:prior,gittins:prior

      gradband compare --policies runs/two-point-softelim/policy.safetensors,ts --instances 100000

      gradband compare --policies ts,my_policies.py:Tempered
    """
    from gradband.cli import figures, terminal
    from gradband.evaluation.evaluate import fresh_instances
    from gradband.evaluation.standing import START, Standing, usual_policies

    task = load_problem(problem, arms, horizon, noise, afterwards)
    folder = out or Path("runs") / file_name(f"{label_of(task, problem)}-compare")
    fresh_instances(task, instances)
    entries: dict[str, Any] = {**usual_policies(task)} if policies is None else named(policies, task, trust)
    make_folder(folder)
    if "optimal" in entries:
        entries["optimal"] = optimal_policy(task)
    optimum, note = known_optimum(task)
    # Thompson sampling is where the way to the optimum begins, also if nobody asked for it.
    unasked = optimum is not None and bool(entries) and START not in entries
    added = {START: START} if unasked else {}
    where: dict[str, Any] = {"seed": seed, "devices": devices, "memory": memory}
    found = Standing.of(measure(entries | added, task, instances=instances, **where), optimum)
    found = found.without(START) if unasked else found
    files = {"figure": str(folder / "regret.png"), "result": str(folder / "result.json")}
    result = {"problem": about(task, problem), "seed": seed, **found.as_dict(), "files": files}
    figures.comparison(Path(files["figure"]), describe(task, problem), result["policies"], optimum)
    title = f"{describe(task, problem)}, {found.instances} instances"
    notes = f"{note}\nFiles: {', '.join(files.values())}"
    terminal.emit(result, json, lambda: show(found, title, notes), files["result"])


def show(found: "Standing", title: str, notes: str) -> None:
    """The comparison as a table."""
    from gradband.cli import figures, terminal

    shares = found.shares
    terminal.print_table(
        title,
        [
            "policy",
            "Bayes regret",
            "± se",
            "above the first",
            "± se",
            *(["from ts to the optimum"] if shares else []),
            "seconds",
        ],
        [
            [
                figures.shortened(row.name),
                f"{row.regret.mean:.3f}",
                f"{row.regret.se:.3f}",
                *above(found.table, row.name),
                *([terminal.bar(shares[row.name].mean, shares[row.name].se)] if shares else []),
                f"{row.seconds:.2f}",
            ]
            for row in found.table.rows
        ],
        notes,
    )


def named(text: str, task: "Problem", trust: list[Path] | None = None) -> dict[str, Any]:
    """The policies that words with commas between stand for; the optimal one is made later."""
    words = [word for word in text.split(",") if word]
    return {word: None if word == "optimal" else player(word, task, trust) for word in words}


def above(table: "Comparison", name: str) -> tuple[str, str]:
    """A policy's regret above that of the first, and its standard error."""
    first = table.rows[0].name
    if name == first:
        return "", ""
    difference = table.difference(name, first)
    return f"{difference.mean:.3f}", f"{difference.se:.3f}"
