"""Tables on stdout, progress on stderr (only where someone watches), JSON for programs."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from gradband.files import finite


def print_json(result: dict[str, Any]) -> None:
    """Prints exactly one JSON object."""
    json.dump(finite(result), sys.stdout, allow_nan=False)
    sys.stdout.write("\n")


LONG = 60  # letters of a text that may take several lines


def print_table(
    title: str, columns: list[str], rows: list[list[str]], notes: str = "", texts: int = 1
) -> None:
    """Prints a table; the first columns are `texts`, which may take several lines, the others numbers."""
    table = Table()
    short = texts == 1 and all(len(row[0]) < LONG for row in rows)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < texts else "right", no_wrap=i >= texts or short)
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 120, markup=False, emoji=False)
    console.print(title, style="bold", highlight=False, soft_wrap=True)
    console.print(table)
    if notes:
        console.print(notes, highlight=False, markup=False, soft_wrap=True)


def bar(share: float, se: float, width: int = 10) -> str:
    """A share between 0 and 1 as a bar, and in percent with its standard error.

    >>> bar(0.5, 0.02, width=4)
    '██░░  50 ± 2 %'
    """
    filled = round(min(max(share, 0.0), 1.0) * width)
    return f"{'█' * filled}{'░' * (width - filled)} {100 * share:>3.0f} ± {100 * se:.0f} %"


@contextlib.contextmanager
def progress(what: str, total: float) -> Iterator[Callable[[float, str], None]]:
    """A live bar: call the function with how far the work is and a few words."""
    counts = (MofNCompleteColumn(),) if total > 1 else ()
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        *counts,
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(what, total=total, note="compiling")
        yield lambda done, note: bar.update(task, completed=done, note=note)


class Board:
    """A bar for the whole, and one for each step that is under way."""

    def __init__(self, bars: Progress, whole: TaskID) -> None:
        self.bars, self.whole = bars, whole
        self.steps: dict[str, TaskID] = {}

    def step(self, name: str, words: str, share: float) -> None:
        """Shows how far a step is."""
        if name not in self.steps:
            self.steps[name] = self.bars.add_task(words, total=1.0)
        self.bars.update(self.steps[name], completed=share, description=words)

    def done(self, name: str, weight: float) -> None:
        """Takes a finished step away, and adds its weight to the whole."""
        if name in self.steps:
            self.bars.remove_task(self.steps.pop(name))
        self.bars.advance(self.whole, weight)


@contextlib.contextmanager
def board(what: str, total: float) -> Iterator[Board]:
    """Live bars for work in many steps."""
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bars:
        yield Board(bars, bars.add_task(what, total=total or 1.0))
