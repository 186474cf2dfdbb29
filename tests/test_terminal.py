"""Progress: lines where there is no terminal, and a clock that goes on where there is one."""

import io
import time

from rich.console import Console

from gradband.cli import terminal
from gradband.core import live_bars


def test_long_work_without_a_terminal_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr(terminal, "FIRST_LINE", 0.02)
    monkeypatch.setattr(terminal, "NEXT_LINES", 0.02)
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with terminal.progress("learning") as update:
        update(0.25, "25/100  theta = 0.3")
        deadline = time.monotonic() + 30
        while stream.getvalue().count("\n") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    first, *_ = stream.getvalue().splitlines()
    assert first.startswith("gradband: learning, 25 %, ")
    assert first.endswith(" s: 25/100  theta = 0.3")


def test_short_work_without_a_terminal_says_nothing(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with terminal.progress("learning") as update:
        update(0.5, "half")
    assert stream.getvalue() == ""


def test_the_clock_of_a_bar_goes_on_when_a_piece_of_work_is_done():
    now = 0.0
    bar = live_bars.live_bars(Console(file=io.StringIO(), force_terminal=True), live_bars.Elapsed())
    bar.get_time = lambda: now
    task = bar.add_task("evaluating", total=1, note="")
    tell = terminal.in_turn(lambda done, note: bar.update(task, completed=done, note=note), ["a", "b"])
    seen = []
    for name, share in (("a", 0.5), ("a", 1.0), ("preparing b", 0.5), ("b", 0.5), ("b", 1.0)):
        tell(name, share)
        now += 60.0
        (row,) = bar.tasks
        seen.append((row.completed, str(bar.columns[-1](row))))
    assert [done for done, _ in seen] == [0.25, 0.5, 0.5, 0.75, 1.0]
    assert [clock for _, clock in seen] == [f"0:0{minute}:00" for minute in range(1, 6)]
