"""`gradband plan`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from gradband.cli import options, shared, terminal

if TYPE_CHECKING:
    from gradband.evaluation.planned import Plan


def plan(
    problem: Annotated[
        str, Argument(metavar="PROBLEM", help="fitted.toml of gradband fit, or another problem.")
    ],
    horizon: Annotated[
        str, Option(help="Pulls of a test, separated by commas (default: the file's).")
    ] = "",
    pulls_per_round: Annotated[
        str,
        Option(
            "--pulls-per-round",
            "--batch",
            help="Pulls decided before their results are seen, separated by commas (default: the file's).",
        ),
    ] = "",
    arms: Annotated[str, Option(help="Arms, separated by commas (default: the file's).")] = "",
    afterwards: Annotated[
        int, Option(help="People who see the recommended arm after the longest test.")
    ] = 0,
    tolerance: Annotated[
        float,
        Option(help="Without people afterwards: how far the recommended arm may be below the best."),
    ] = 0.01,
    policy: Annotated[
        str,
        Option(
            metavar="FILE|NAME",
            help="A policy for any number of arms (default: an index network, learned once and kept beside "
            "the problem).",
        ),
    ] = "",
    trust: options.Trust = None,
    instances: Annotated[int, Option(help="Tests to simulate per size.")] = 2000,
    seed: options.Seed = 0,
    devices: options.Devices = None,
    memory: options.Memory = None,
    out: Annotated[Path | None, Option(help="Folder for files (default: runs/PROBLEM-plan).")] = None,
    json: options.Json = False,
) -> None:
    """Plan a test: what it would gain, for several sizes, and how long it should run.

    One policy plays all sizes. Gains are successes per thousand pulls more than
    an equal split, and more than the best of equal split, split-then-winner (a
    quarter and half of the pulls) and Thompson sampling. For two arms there are
    also power and type I error of a two-sided z-test at 5 %: exact for an equal
    split, and for the policy exact up to 50 pulls one by one, simulated beyond.

    Examples:

      gradband plan runs/tests-fit/fitted.toml

      gradband plan fitted.toml --horizon 3000,30000 --pulls-per-round 100,1000 --arms 2,4,8

      gradband plan fitted.toml --horizon 1000,3000,10000 --afterwards 100000

      gradband plan fitted.toml --arms 2,3 --policy policy.safetensors --json
    """
    import gradband as gb
    from gradband.core.files import to_csv, write_text
    from gradband.policies.given import from_command_line

    began, task = time.perf_counter(), options.load_problem(problem, None, None)
    played = from_command_line(policy, task, trust) if policy else None
    folder = shared.make_folder(
        out or Path("runs") / shared.file_name(f"{shared.label_of(task, problem)}-plan")
    )
    with terminal.progress("planning") as update:
        found = gb.plan(
            problem,
            horizons=options.parse_numbers("--horizon", horizon),
            pulls_per_round=options.parse_numbers("--pulls-per-round", pulls_per_round),
            arms=options.parse_numbers("--arms", arms),
            policy=played,
            afterwards=afterwards,
            instances=instances,
            seed=seed,
            devices=devices,
            memory=memory,
            progress=update,
        )
    files = {"table": str(folder / "plan.csv"), "result": str(folder / "result.json")}
    lengths = found.how_long(tolerance)
    write_text(Path(files["table"]), to_csv(found.records()))
    result = {
        "problem": shared.about(task, problem),
        "seed": seed,
        **found.as_dict(),
        "how_long": [length.as_dict() for length in lengths],
        "seconds": time.perf_counter() - began,
        "files": files,
    }
    terminal.emit(result, json, lambda: show(found, tolerance, files), files["result"])


def show(found: "Plan", tolerance: float, files: dict[str, str]) -> None:
    """Prints a row for each size of test, the errors of the z-test for two arms, and the lengths."""
    *first, last = found.tables(tolerance)
    for table in first:
        terminal.show(table)
    terminal.show(last, notes=f"{last.notes}\nFiles: {', '.join(files.values())}")
