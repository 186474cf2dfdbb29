"""`gradband bench`."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from gradband.arguments import Json
from gradband.errors import InputError, unknown

ROWS = ("training", "lstm", "evaluation", "gradient", "choices", "memory", "start")


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repeats, and no PyTorch.")] = False,
    only: Annotated[str | None, typer.Option(help=f"Only these rows: {', '.join(ROWS)}.")] = None,
    json: Json = False,
) -> None:
    """Measure speed side by side with peers, as ratios in one run.

    PyTorch is measured in an environment of its own, made in the cache folder when first needed.
    """
    script = Path(__file__).parents[2] / "benchmarks" / "speed.py"
    if not script.exists():
        raise InputError("the benchmarks come with the source: run make bench in a checkout")
    if only is not None and only not in ROWS:
        raise unknown("rows", only, ROWS)
    flags = [flag for flag, given in (("--quick", quick), ("--json", json)) if given]
    flags += ["--only", only] if only else []
    status = subprocess.run([sys.executable, str(script), *flags], check=False).returncode
    if status:
        raise typer.Exit(status)
