"""The speed table: gradband side by side with peers and limits, every ratio from one run.

    python benchmarks/speed.py --only growth

See `timing` for how it is measured. `gradband bench` and `make bench` run it.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import draw
import engines
import evaluating
import resources
import scaling
import training
import tuning
from timing import Row

from gradband.cli.bench import QUICK, ROWS


def rows(quick: bool) -> dict[str, Callable[[], list[Row]]]:
    """What is measured, by name."""
    repeats, peers = (3, False) if quick else (9, True)
    return {
        "training": lambda: training.training_rows(repeats, peers),
        "engines": lambda: engines.engine_rows(repeats),
        "first": lambda: engines.first_rows(repeats),
        "lstm": lambda: training.lstm_rows(repeats, peers),
        "evaluation": lambda: evaluating.evaluation_rows(repeats),
        "libraries": lambda: evaluating.library_rows(repeats),
        "solvers": lambda: evaluating.solver_rows(repeats),
        "gradient": lambda: [training.iteration_row(repeats)],
        "tuning": lambda: tuning.optuna_rows(10),
        "growth": lambda: scaling.growth_rows(max(3, repeats // 3)),
        "devices": lambda: scaling.device_rows(repeats),
        "processes": lambda: scaling.process_rows(max(2, repeats // 3)),
        "checkpoints": lambda: scaling.checkpoint_rows(repeats),
        "choices": training.choice_rows,
        "memory": resources.memory_rows,
        "start": lambda: [resources.start_row(repeats)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, and nothing that takes long")
    parser.add_argument("--only", choices=ROWS, help="only these rows")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw the rows, as SVG, PDF or PNG")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else QUICK if arguments.quick else ROWS
    known = rows(arguments.quick)
    found, failed = [], []
    for name in names:
        try:
            found += known[name]()
        except subprocess.CalledProcessError as error:  # a peer's: the rows of the others stay
            print(f"the rows of {name} are left out: {error}", file=sys.stderr)
            failed.append(name)
    if arguments.json:
        machine = {"cores": os.cpu_count(), "python": sys.version.split()[0]}
        print(json.dumps({"rows": found, "machine": machine}), flush=True)
    else:
        show(found)
    if arguments.draw:
        draw.draw(found, arguments.draw)
    if failed:
        raise SystemExit(1)


def show(found: list[Row]) -> None:
    """Prints the rows as a table."""
    from gradband.cli import terminal
    from gradband.core.results import TextTable

    rows = [
        [
            row["what"],
            f"{row['ours']:.4g}",
            f"{row['peer']:.4g}",
            f"{row['ratio']:.2f}",
            f"{row['low']:.2f}-{row['high']:.2f}",
        ]
        for row in found
    ]
    title = "Seconds, bytes or regret of ours and of a peer, and the ratio peer / ours, or a slope"
    terminal.show(TextTable(title, ["what", "ours", "peer", "ratio", "range"], rows))


if __name__ == "__main__":
    main()
