"""Bars in a terminal, by Rich."""

from datetime import timedelta

from rich import progress as rich_progress
from rich.console import Console
from rich.text import Text


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


def single_bar() -> rich_progress.Progress:
    """A bar on stderr with a few words and the time that has passed."""
    note = rich_progress.TextColumn("{task.fields[note]}", markup=False)
    return live_bars(Console(stderr=True), note, Elapsed())
