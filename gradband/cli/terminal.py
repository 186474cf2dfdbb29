"""Tables on stdout, progress on stderr (a bar on a terminal, lines elsewhere), JSON for programs."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import progress as rich_progress
from rich.console import Console
from rich.table import Table

from gradband.core.live_bars import live_bars
from gradband.core.progress import FIRST_WORDS, Update, bar
from gradband.core.progress import in_turn as in_turn

if TYPE_CHECKING:
    from gradband.core.results import TextTable

FIRST_LINE, NEXT_LINES = 10.0, 30.0  # seconds between lines of progress where there is no terminal
LONG = 60  # letters of a text that may wrap


def emit(
    result: dict[str, Any], as_json: bool, show: Callable[[], None], file: str | Path | None = None
) -> None:
    """Writes a command's result to a file, if one is given, and prints it as JSON or calls `show`."""
    from gradband.core.files import finite, write_text  # they import NumPy, which help need not wait for

    plain = finite(result)
    if file is not None:
        write_text(Path(file), json.dumps(plain, indent=2, allow_nan=False) + "\n")
    if as_json:
        print(json.dumps(plain, allow_nan=False))
    else:
        show()


def show(table: "TextTable", title: str | None = None, notes: str | None = None) -> None:
    """Prints a table, with another title or other notes if they are given. Columns of text may wrap."""
    title, notes = table.title if title is None else title, table.notes if notes is None else notes
    drawn, texts = Table(), table.texts
    short = texts == 1 and all(len(row[0]) < LONG for row in table.rows)
    for i, column in enumerate(table.columns):
        drawn.add_column(column, justify="left" if i < texts else "right", no_wrap=i >= texts or short)
    for row in table.rows:
        drawn.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 120, markup=False, emoji=False)
    console.print(title, style="bold", highlight=False, soft_wrap=True)
    console.print(drawn)
    if notes:
        console.print(notes, highlight=False, markup=False, soft_wrap=True)


def progress(what: str) -> contextlib.AbstractContextManager[Update]:
    """A live bar, or lines from time to time: call the function with the share done and a few words."""
    return (bar if sys.stderr.isatty() else lines)(what)


def by_name(update: Update) -> Callable[[str, float], None]:
    """The same for calls that report a name, and then the share that is done."""
    return lambda name, done: update(done, name)


@contextlib.contextmanager
def lines(what: str) -> Iterator[Update]:
    """Writes the progress of long work to stderr from time to time; nothing if the work is short."""
    began, stream, over = time.monotonic(), sys.stderr, threading.Event()
    share, words = 0.0, FIRST_WORDS

    def update(done: float, note: str) -> None:
        nonlocal share, words
        share, words = done, note

    def report() -> None:
        wait = FIRST_LINE
        while not over.wait(wait):
            where = f"{what}, {100 * share:.0f} %, {time.monotonic() - began:.0f} s"
            print(f"gradband: {where}: {words}", file=stream, flush=True)
            wait = NEXT_LINES

    thread = threading.Thread(target=report, name="gradband-progress", daemon=True)
    thread.start()
    try:
        yield update
    finally:
        over.set()
        thread.join()


class Board:
    """One bar for all the work, and one for each step in progress."""

    def __init__(self, bars: rich_progress.Progress, what: str, weights: dict[str, float]) -> None:
        self.bars, self.weights = bars, weights
        self.whole = bars.add_task(what, total=sum(weights.values()) or 1.0)
        self.steps: dict[str, rich_progress.TaskID] = {}

    def step(self, name: str, words: str, share: float) -> None:
        """Shows the progress of a step."""
        if name not in self.steps:
            self.steps[name] = self.bars.add_task(words, total=1.0)
        self.bars.update(self.steps[name], completed=share, description=words)

    def done(self, name: str) -> None:
        """Removes the bar of a finished step, and adds its weight to the whole."""
        if name in self.steps:
            self.bars.remove_task(self.steps.pop(name))
        self.bars.advance(self.whole, self.weights[name])


@contextlib.contextmanager
def board(what: str, weights: dict[str, float]) -> Iterator[Board]:
    """Live bars for work in many steps; `weights` are those of the steps, by name."""
    columns = rich_progress.TaskProgressColumn(), rich_progress.TimeRemainingColumn()
    with live_bars(Console(stderr=True), *columns, disable=not sys.stderr.isatty()) as bars:
        yield Board(bars, what, weights)
