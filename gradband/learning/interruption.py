"""Delays Ctrl-C and SIGTERM until work can stop in order."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

AGAIN = 2.0  # seconds until an interruption is repeated, in case it was swallowed
SOON = 0.01  # the same, where it surely would be
SWALLOWING = ("_xla_gc_callback",)  # functions of JAX whose exceptions are printed and dropped


class Interrupted(KeyboardInterrupt):
    """An interruption in order: the message says what is saved; `number` is the signal's."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


class Watch:
    """The signal that asked to stop, or 0."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.asked:  # the second signal stops at once
            raise KeyboardInterrupt
        self.asked = number


@contextlib.contextmanager
def _handled(handler: Any, *signals: int) -> Iterator[None]:
    """Handles signals by another function for a while."""
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


@contextlib.contextmanager
def watched(wanted: bool = True) -> Iterator[Watch]:
    """Records the first Ctrl-C or SIGTERM instead of stopping.

    Only the main thread receives signals: in others, or unless `wanted`, nothing changes.
    """
    watch = Watch()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield watch
        return
    with _handled(watch, signal.SIGINT, signal.SIGTERM):
        yield watch
    if watch.asked:  # it came after the last check
        signal.raise_signal(watch.asked)


@contextlib.contextmanager
def at_once(message: str) -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM interrupt at once, with a message. In the main thread only.

    An exception that is raised while a library calls back into Python may be swallowed there, so it is
    repeated every `AGAIN` seconds until it gets through.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        swallowed = frame is not None and frame.f_code.co_name in SWALLOWING
        signal.setitimer(signal.ITIMER_REAL, SOON if swallowed else AGAIN)
        if not swallowed:
            raise Interrupted(message, asked[0])

    with _handled(stop, signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
