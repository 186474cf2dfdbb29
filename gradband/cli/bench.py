"""`gradband bench`."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from gradband.cli import options
from gradband.core.errors import InputError, unknown

QUICK = (
    "training",
    "engines",
    "first",
    "lstm",
    "evaluation",
    "solvers",
    "gradient",
    "devices",
    "checkpoints",
    "start",
)
ROWS = (*QUICK, "libraries", "tuning", "growth", "processes", "choices", "memory")


def bench(
    quick: Annotated[
        bool, Option("--quick", help="Fewer repeats, and only what needs no other libraries.")
    ] = False,
    only: Annotated[str | None, Option(help=f"Only these rows: {', '.join(ROWS)}.")] = None,
    draw: Annotated[Path | None, Option(help="Draw the rows into this SVG, PDF or PNG.")] = None,
    json: options.Json = False,
) -> None:
    """Measure speed beside peers, as ratios from one run.

    PyTorch, Optuna, river, SMPyBandits and MABWiser each run in their own environment,
    which is created in the cache folder when it is first needed. Slopes are of log time
    over log size.

    Examples:

      gradband bench --quick

      gradband bench --only growth --json
    """
    script = Path(__file__).parents[2] / "benchmarks" / "speed.py"
    if not script.exists():
        raise InputError("the benchmarks come with the source: run make bench in a checkout")
    if only is not None and only not in ROWS:
        raise unknown("rows", only, ROWS)
    flags = [flag for flag, given in (("--quick", quick), ("--json", json)) if given]
    flags += ["--only", only] if only else []
    flags += ["--draw", str(draw)] if draw else []
    status = subprocess.run([sys.executable, str(script), *flags], check=False).returncode
    if status:
        raise typer.Exit(status)
