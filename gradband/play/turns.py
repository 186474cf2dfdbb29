"""Locks that let in one thread at a time, and only in the process that made them.

A fork copies a player with its seed, and a journal with its file: both processes would make the same draws
and write over each other. So the copy in the child process raises an error instead of doing anything.
"""

import os
import weakref
from threading import RLock
from typing import TYPE_CHECKING, Any, NoReturn

from gradband.core.errors import InputError

if TYPE_CHECKING:
    from gradband.play.journal import Journal


class Turn:
    """A player's lock. Leaving it waits until everything that its holder saw and did is on disk.

    The lock itself is released before that, so that threads that arrive meanwhile share the next write.
    Errors wait for the disk too: "has its reward already" promises that the reward is stored.
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

    def __exit__(self, *error: object) -> None:
        appended = self.journal.appended
        self.lock.release()
        self.journal.commit(appended)


class Refusal:
    """Replaces a lock in the child of a fork."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> NoReturn:
        raise InputError(
            f"this {self.what} belongs to the process that opened it, and this process is a fork of it: "
            "open a new one here, with another seed and another journal, or ask the other process"
        )

    def __exit__(self, *error: object) -> None:
        """Nothing was entered."""


_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def new_lock(owner: Any) -> Any:
    """A lock for this owner, whose `disown` is called in the child of a fork."""
    _owners.add(owner)
    return RLock()


def _disown_all() -> None:
    for owner in list(_owners):
        owner.disown()


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_disown_all)
