"""One thread at a time, and only in the process that began.

A fork copies a player with its seed, and a journal with its file: both processes would make the same draws
and write over each other. The copy in the child refuses whatever would change or read it.
"""

import os
import weakref
from contextlib import AbstractContextManager
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from gradband.core.errors import InputError

if TYPE_CHECKING:
    from gradband.play.journal import Journal


class Guarded(Protocol):
    """What must not be used in a fork of its process."""

    def disown(self) -> None:
        """Called in the child of a fork: gives up what belongs to the parent."""


class Turn(AbstractContextManager[None]):
    """A player's lock, whose holder leaves only when what it saw and did is on disk.

    The lock is free again before that, so that threads which come meanwhile share the next write. Errors
    wait for the disk too: who is told that a decision has its reward already takes that for a promise.
    """

    def __init__(self, lock: Any, journal: "Journal") -> None:
        self.lock, self.journal = lock, journal

    def __enter__(self) -> None:
        self.lock.acquire()
        try:
            self.journal.need_writable()
        except BaseException:
            self.lock.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        appended = self.journal.appended
        self.lock.release()
        self.journal.commit(appended)


class Refusal(AbstractContextManager[None]):
    """Stands where a lock was, in the child of a fork."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> NoReturn:
        raise InputError(
            f"this {self.what} belongs to the process that opened it, and this is a fork of that process: "
            "open one here, with another seed and another journal, or ask the process that has it"
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was entered."""


_guarded: "weakref.WeakSet[Guarded]" = weakref.WeakSet()


def new_lock(owner: Guarded) -> Any:
    """A lock of this owner, who is told if it finds itself in a fork."""
    _guarded.add(owner)
    return RLock()


def _disown() -> None:
    for owner in list(_guarded):
        owner.disown()


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_disown)
