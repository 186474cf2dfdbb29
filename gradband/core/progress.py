"""Progress of long calls: a bar in terminals and notebooks, nothing elsewhere."""

import contextlib
import html
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

FIRST_WORDS = "compiling"
PATIENCE = 0.5  # seconds before a notebook shows anything
PAUSE = 0.2  # seconds between two updates of a notebook's bar
F = TypeVar("F", bound=Callable[..., Any])
Update = Callable[[float, str], None]
"""takes the share that is done and a few words"""

_showing = False  # whether a bar is shown: calls within that call show none


def silence() -> None:
    """Turns bars off in this process: a command or a worker shows its own."""
    global _showing
    _showing = True


@contextlib.contextmanager
def follow(what: str, given: F | bool | None, adapt: Callable[[Update], F]) -> Iterator[F | None]:
    """The function that a long call reports to, or None for silence.

    Args:
        what: The work, in a word.
        given: The caller's `progress`: a function, False for silence, or None or True for a bar in a
            terminal or notebook.
        adapt: Turns the function that updates a bar into the kind of function that the call takes.
    """
    if callable(given):
        yield given
        return
    shows = None if given is False or _showing else _notebook() or _terminal()
    if shows is None:
        yield None
        return
    with shows(what) as update:
        yield adapt(update)


def in_turn(update: Update, names: Iterable[str]) -> Callable[[str, float], None]:
    """Reports the progress of named pieces of work, one after the other, as a share of all."""
    places = {name: place for place, name in enumerate(names)}
    done = 0.0

    def report(name: str, share: float) -> None:
        nonlocal done
        done = max(done, (places[name] + share) / len(places) if name in places else 0.0)
        update(done, name)

    return report


def _terminal() -> Callable[[str], Any] | None:
    """A bar in the terminal, if there is one."""
    stream = sys.stderr
    return bar if stream is not None and stream.isatty() else None


def _notebook() -> Callable[[str], Any] | None:
    """A bar below a notebook's cell, if this is a notebook."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return _below_cell if getattr(shell, "kernel", None) is not None else None


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Shows no other bar meanwhile."""
    global _showing
    before, _showing = _showing, True
    try:
        yield
    finally:
        _showing = before


@contextlib.contextmanager
def bar(what: str) -> Iterator[Update]:
    """A live bar in the terminal, which disappears at the end."""
    from gradband.core.live_bars import single_bar

    with single_bar() as bars, _alone():
        task = bars.add_task(what, total=1, note=FIRST_WORDS)
        yield lambda done, note: bars.update(task, completed=done, note=note)


@contextlib.contextmanager
def _below_cell(what: str) -> Iterator[Update]:
    """A bar below the cell of a notebook, if the work takes more than a moment; removed at the end."""
    from IPython.display import HTML, display

    began = last = time.monotonic()
    handle: Any = None

    def update(done: float, note: str) -> None:
        nonlocal handle, last
        now = time.monotonic()
        if now - began < PATIENCE or now - last < PAUSE:
            return
        last = now
        picture = HTML(as_html(what, done, note, now - began))
        if handle is None:
            handle = display(picture, display_id=True)
        else:
            handle.update(picture)

    try:
        with _alone():
            yield update
    finally:
        if handle is not None:
            handle.update(HTML(""))


def as_html(what: str, done: float, note: str, seconds: float) -> str:
    """A bar with words beside it."""
    words = html.escape(f"{100 * done:.0f} %, {seconds:.0f} s: {note}")
    name = html.escape(what)
    return f'{name} <progress value="{done:.4f}" max="1" aria-label="{name}"></progress> {words}'
