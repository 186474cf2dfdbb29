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
    describe,
    file_name,
    known_optimum,
    label_of,
    make_folder,
    measure,
    optimal_policy,
    player,
    references,
    shares,
    write_json,
)

if TYPE_CHECKING:
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
    import gradband as gb
    from gradband.cli import figures, terminal
    from gradband.evaluation.evaluate import fresh_instances

    task = load_problem(problem, arms, horizon, noise, afterwards)
    label = label_of(task, problem)
    folder = out or Path("runs") / file_name(f"{label}-compare")
    fresh_instances(task, instances)
    entries = usual(task) if policies is None else named(policies, task, trust)
    make_folder(folder)
    if "optimal" in entries:
        entries["optimal"] = optimal_policy(task)
    optimum, note = known_optimum(task)
    # Thompson sampling is where the way to the optimum begins, also if nobody asked for it.
    wanted = optimum is not None and entries and "ts" not in entries
    unasked = {"ts": gb.policies.ThompsonSampling()} if wanted else {}
    table = measure(entries | unasked, task, instances, seed, devices, memory)
    covered = shares(table, optimum)
    table = table.without("ts") if unasked else table
    rows: list[dict[str, Any]] = [
        {
            "name": row.name,
            "regret": row.regret.mean,
            "se": row.regret.se,
            "share": covered[row.name].mean if covered else None,
            "share_se": covered[row.name].se if covered else None,
            "seconds": row.seconds,
        }
        for row in table.rows
    ]
    count = len(table.rows[0].regrets)
    files = {"figure": str(folder / "regret.png"), "result": str(folder / "result.json")}
    figures.comparison(Path(files["figure"]), describe(task, problem), rows, optimum)
    result = {
        "problem": task.describe() | {"name": label},
        "instances": count,
        "seed": seed,
        "optimum": optimum,
        "policies": rows,
        "files": files,
    }
    write_json(Path(files["result"]), result)
    if json:
        terminal.print_json(result)
        return
    bars = ["from ts to the optimum"] if covered else []
    terminal.print_table(
        f"{describe(task, problem)}, {count} instances",
        ["policy", "Bayes regret", "± se", "above the first", "± se", *bars, "seconds"],
        [
            [
                figures.shortened(row.name),
                f"{row.regret.mean:.3f}",
                f"{row.regret.se:.3f}",
                *above(table, row.name),
                *([terminal.bar(covered[row.name].mean, covered[row.name].se)] if covered else []),
                f"{row.seconds:.2f}",
            ]
            for row in table.rows
        ],
        f"{note}\nFiles: {', '.join(files.values())}",
    )


def usual(task: "Problem") -> dict[str, Any]:
    """What is compared unless something else is asked for."""
    import gradband as gb

    others = {"ucb1": gb.policies.UCB1(), "uniform": gb.policies.Uniform()}
    return {"softelim": gb.policies.SoftElim(), **references(task), **others}


def named(text: str, task: "Problem", trust: list[Path] | None = None) -> dict[str, Any]:
    """The policies that words with commas between stand for; the optimal one is made later."""
    words = [word for word in text.split(",") if word]
    return {word: None if word == "optimal" else player(word, task, trust) for word in words}


def above(table: Any, name: str) -> tuple[str, str]:
    """A policy's regret above that of the first, and its standard error."""
    first = table.rows[0].name
    if name == first:
        return "", ""
    difference = table.difference(name, first)
    return f"{difference.mean:.3f}", f"{difference.se:.3f}"
