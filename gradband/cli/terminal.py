"""Tables on stdout, progress on stderr (a bar where someone watches), JSON for programs."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from gradband.core.files import finite, write_text


def emit(
    result: dict[str, Any],
    as_json: bool,
    show: Callable[[], None],
    file: str | Path | None = None,
) -> None:
    """What a command found: kept in a file, if one is given, and printed as JSON, or as `show` does."""
    if file is not None:
        write_text(Path(file), json.dumps(finite(result), indent=2, allow_nan=False) + "\n")
    if as_json:
        print_json(result)
    else:
        show()


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


FIRST_LINE, NEXT_LINES = 10.0, 30.0  # seconds until work without a terminal says how far it is


@contextlib.contextmanager
def progress(what: str, total: float) -> Iterator[Callable[[float, str], None]]:
    """A live bar, or a line now and then: call the function with how far the work is and a few words."""
    if not sys.stderr.isatty():
        with lines(what) as tell:
            yield lambda done, note: tell(done / total, note)
        return
    with live_bar(Console(stderr=True), total) as bar:
        task = bar.add_task(what, total=total, note="compiling")
        yield lambda done, note: bar.update(task, completed=done, note=note)


@contextlib.contextmanager
def lines(what: str) -> Iterator[Callable[[float, str], None]]:
    """Writes to stderr now and then how far work is; nothing if it is short."""
    began, stream, over = time.monotonic(), sys.stderr, threading.Event()
    share, words = 0.0, "compiling"

    def update(done: float, note: str) -> None:
        nonlocal share, words
        share, words = done, note

    def tell() -> None:
        wait = FIRST_LINE
        while not over.wait(wait):
            seconds = time.monotonic() - began
            print(
                f"gradband: {what}, {100 * share:.0f} %, {seconds:.0f} s: {words}", file=stream, flush=True
            )
            wait = NEXT_LINES

    thread = threading.Thread(target=tell, name="gradband-progress", daemon=True)
    thread.start()
    try:
        yield update
    finally:
        over.set()
        thread.join()


class Elapsed(ProgressColumn):
    """The time since the work began, also after its last piece was told of."""

    def render(self, task: Task) -> Text:
        return Text(str(timedelta(seconds=int(task.elapsed or 0))), style="progress.elapsed")


def live_bar(console: Console, total: float) -> Progress:
    counts = (MofNCompleteColumn(),) if total > 1 else ()
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        *counts,
        TextColumn("{task.fields[note]}"),
        Elapsed(),
        console=console,
        transient=True,
    )


def in_turn(update: Callable[[float, str], None], names: Iterable[str]) -> Callable[[str, float], None]:
    """Tells how far pieces of work of these names are, one after the other, as a share of them all."""
    places = {name: place for place, name in enumerate(names)}
    done = 0.0

    def tell(name: str, share: float) -> None:
        nonlocal done
        done = max(done, (places[name] + share) / len(places) if name in places else 0.0)
        update(done, name)

    return tell


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
