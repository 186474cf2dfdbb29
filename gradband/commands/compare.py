"""`gradband compare`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gradband.arguments import (
    Arms,
    Devices,
    Horizon,
    Instances,
    Json,
    Noise,
    ProblemName,
    Seed,
    load_problem,
    parse_policy,
)
from gradband.commands.shared import describe, label_of, measure


def compare(
    problem: ProblemName = "two-point",
    policies: Annotated[
        str,
        typer.Option(
            help="Policies, a comma between: names (also ts, ucb1, uniform), settings after a colon, a + "
            "between (exp3:theta=0.5+gradient=lemma), or policy files."
        ),
    ] = "softelim,ts,ucb1,uniform",
    arms: Arms = None,
    horizon: Horizon = None,
    noise: Noise = None,
    instances: Instances = 10_000,
    seed: Seed = 0,
    devices: Devices = None,
    json: Json = False,
) -> None:
    """Compare the Bayes regret of policies on the same instances.

    Examples:

      gradband compare bernoulli-10 --policies ts,ucb1,softelim:theta=0.1

      gradband compare --policies runs/two-point-softelim/policy.safetensors,ts --instances 100000
    """
    import gradband as gb
    from gradband.report import terminal

    task = load_problem(problem, arms, horizon, noise)
    entries: dict[str, Any] = {}
    for text in filter(None, policies.split(",")):
        known = text.partition(":")[0] in gb.policies.POLICIES
        is_file = not known and (text.endswith(".safetensors") or Path(text).is_file())
        entries[text] = gb.load(text) if is_file else parse_policy(text)
    table = measure(entries, task, instances, seed, devices)
    rows = [
        {"name": r.name, "regret": r.regret.mean, "se": r.regret.se, "seconds": r.seconds}
        for r in table.rows
    ]
    count = len(table.rows[0].regrets)
    if json:
        about = task.describe() | {"name": label_of(task, problem)}
        terminal.print_json({"problem": about, "instances": count, "optimum": None, "policies": rows})
        return
    first = table.rows[0].name
    terminal.print_table(
        f"{describe(task, problem)}, {count} instances",
        ["policy", "Bayes regret", "± se", "above the first", "± se", "seconds"],
        [
            [
                row.name,
                f"{row.regret.mean:.3f}",
                f"{row.regret.se:.3f}",
                *(
                    (f"{(d := table.difference(row.name, first)).mean:.3f}", f"{d.se:.3f}")
                    if i
                    else ("", "")
                ),
                f"{row.seconds:.2f}",
            ]
            for i, row in enumerate(table.rows)
        ],
    )
