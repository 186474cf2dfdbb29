"""Tables on stdout, progress on stderr (a bar on a terminal, lines elsewhere), JSON for programs."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import progress as rich_progress
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from gradband.core.statistics import Mean

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


def print_table(
    title: str, columns: list[str], rows: list[list[str]], notes: str = "", texts: int = 1
) -> None:
    """Prints a table. The first `texts` columns are texts, which may wrap; the others are numbers."""
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


def with_error(value: "Mean") -> tuple[str, str]:
    """A mean and its standard error, as two cells of a table."""
    return f"{value.mean:.3f}", f"{value.se:.3f}"


def share_bar(share: "Mean", width: int = 10) -> str:
    """A share between 0 and 1 as a bar, and in percent with its standard error.

    >>> from gradband.core.statistics import Mean
    >>> share_bar(Mean(0.5, 0.02), width=4)
    '██░░  50 ± 2 %'
    """
    filled = round(min(max(share.mean, 0.0), 1.0) * width)
    return f"{'█' * filled}{'░' * (width - filled)} {100 * share.mean:>3.0f} ± {100 * share.se:.0f} %"


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[float, str], None]]:
    """A live bar, or a line now and then: call the function with the share that is done and a few words."""
    if not sys.stderr.isatty():
        with lines(what) as update:
            yield update
        return
    note = rich_progress.TextColumn("{task.fields[note]}")
    with live_bars(Console(stderr=True), note, Elapsed()) as bars:
        task = bars.add_task(what, total=1, note="compiling")
        yield lambda done, note: bars.update(task, completed=done, note=note)


@contextlib.contextmanager
def lines(what: str) -> Iterator[Callable[[float, str], None]]:
    """Writes the progress of long work to stderr now and then; nothing if the work is short."""
    began, stream, over = time.monotonic(), sys.stderr, threading.Event()
    share, words = 0.0, "compiling"

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


class Elapsed(rich_progress.ProgressColumn):
    """The time since the work began. Unlike Rich's own column, it does not stop at 100 %."""

    def render(self, task: rich_progress.Task) -> Text:
        return Text(str(timedelta(seconds=int(task.elapsed or 0))), style="progress.elapsed")


def live_bars(
    console: Console, *columns: rich_progress.ProgressColumn, disable: bool = False
) -> rich_progress.Progress:
    """Bars that disappear when the work is done, with further columns."""
    name = rich_progress.TextColumn("{task.description}")
    first = (rich_progress.SpinnerColumn(), name, rich_progress.BarColumn())
    return rich_progress.Progress(*first, *columns, console=console, transient=True, disable=disable)


def in_turn(update: Callable[[float, str], None], names: Iterable[str]) -> Callable[[str, float], None]:
    """Progress of named pieces of work, one after the other, as a share of them all."""
    places = {name: place for place, name in enumerate(names)}
    done = 0.0

    def report(name: str, share: float) -> None:
        nonlocal done
        done = max(done, (places[name] + share) / len(places) if name in places else 0.0)
        update(done, name)

    return report


class Board:
    """A bar for the whole work, and one for each step in progress."""

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
    """Live bars for work in many steps, whose names have weights."""
    columns = rich_progress.TaskProgressColumn(), rich_progress.TimeRemainingColumn()
    with live_bars(Console(stderr=True), *columns, disable=not sys.stderr.isatty()) as bars:
        yield Board(bars, what, weights)
