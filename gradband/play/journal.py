"""A journal of what a player did. A restart resumes from it.

One event per line, as JSON. Each line ends with a checksum of itself and of all lines before it in its
file, which reveals lines that were changed, moved or removed, except for the last one. What is committed is
on disk. After many events a new file starts with a snapshot (see `segments`).
"""

import contextlib
import os
import warnings
import weakref
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING

from gradband.core.errors import InputError
from gradband.core.files import sync_folder, write_all
from gradband.play import journal_lines as lines
from gradband.play import segments, turns

if TYPE_CHECKING:
    from gradband.play.pending import Event
    from gradband.play.player import Player


class Journal(AbstractContextManager["Journal"]):
    """The journal of one player: `append` events, then `commit` them before anyone sees their results.

    `Player(file, journal=path)` does both by itself. Opening an existing journal brings the player to its
    last state, with the journal's seed and settings. An incomplete last line is dropped, because nobody has
    seen its result (`dropped` is its length in bytes); any other damage is an error that names the line.

    Any thread may append and commit. Threads that commit while another one writes wait, then one of them
    writes for all.
    """

    def __init__(self, path: str | Path, player: "Player") -> None:
        self.path = Path(path)
        if player.drawn > 1:
            raise InputError("a journal must be opened before the player's first decision")
        if self.path.exists() and not self.path.is_file():
            raise InputError(f"the journal {self.path} is not a file")
        self._real = Path(os.path.realpath(path))  # a link stays one
        self._player = weakref.ref(player)
        self.broken = False
        self.due = False  # whether to start a new file with a snapshot
        self.events = 0
        self.dropped = 0
        self.segment = 1
        self.appended = 0  # lines, since the journal was opened
        self._on_disk = 0  # of these
        self._sum = 0
        self._tail = 0  # events after the snapshot
        self._before = 0  # events of the player that are not in the journal
        self._waiting: list[bytes] = []
        self._writing = False
        self._lock = turns.new_lock(self)
        self._written = Condition(self._lock)
        self._own(segments.open_current(self._real))
        try:
            self._read(player)
        except BaseException:
            self._close()
            raise

    def _own(self, file: int) -> None:
        """Takes over an open file."""
        self._file = file
        self._close = weakref.finalize(self, os.close, file)  # once, even if nobody calls close

    def append(self, event: "Event") -> None:
        """Adds an event, for the next `commit` to write."""
        with self._lock:
            line, self._sum = lines.make(event, self._sum)
            self._waiting.append(line)
            self.events += 1
            self.appended += 1
            self._tail += 1

    def commit(self, appended: int | None = None) -> None:
        """Returns when all lines, or the first `appended` of them, are on disk."""
        with self._lock:
            self._write_up_to(self.appended if appended is None else appended)
        player = self._player()
        if player is not None:
            every = player.settings.compact_every
            if self.due or (every is not None and self._tail >= every):
                self._compact_if_possible(player)

    def _write_up_to(self, appended: int) -> None:
        """Returns when so many lines are on disk. The caller holds the lock."""
        while self._on_disk < appended:
            self.need_writable()
            if self._writing:
                self._written.wait()
            else:
                self._write()

    def _write(self) -> None:
        """Writes all waiting lines, and releases the lock meanwhile."""
        data, upto = b"".join(self._waiting), self.appended
        self._waiting.clear()
        self._writing, done = True, False
        self._lock.release()
        try:
            write_all(self._file, data)
            getattr(os, "fdatasync", os.fsync)(self._file)
            done = True
        except OSError as error:
            raise RuntimeError(f"cannot write the journal {self.path}: {error.strerror}") from None
        finally:
            self._lock.acquire()
            self._writing = False
            if done:
                self._on_disk = upto
            else:
                self.broken = True
            self._written.notify_all()

    def compact(self) -> None:
        """Starts a new file with a snapshot of the player; the old one is kept under its number."""
        player = self._player()
        if player is None:
            raise InputError(f"the player of the journal {self.path} no longer exists")
        with player.lock, self._lock:  # in this order, as everywhere
            self._write_up_to(self.appended)
            self.need_writable()
            if player.told - self._before != self.events:
                raise InputError(f"the journal {self.path} does not have all events of its player")
            self._start_next(player)

    def _compact_if_possible(self, player: "Player") -> None:
        with player.lock, self._lock:
            every = player.settings.compact_every
            if not self.due and (every is None or self._tail < every):
                return  # another thread has done it
            try:
                self.compact()
            except InputError as error:
                self.due, self._tail = False, 0  # again after as many events
                warnings.warn(f"{error}; the journal continues in its current file", stacklevel=3)

    def _start_next(self, player: "Player") -> None:
        first = lines.header(player, self.segment + 1, self.events)
        data, checksum = lines.join([first, *lines.snapshot(player.state())])
        try:
            file = segments.start_next(self._real, self._file, self.segment, data)
        except InputError:
            raise
        except BaseException:
            self.broken = True
            raise
        self._close()
        self._own(file)
        self._sum, self.segment, self._tail, self.due = checksum, self.segment + 1, 0, False
        with contextlib.suppress(OSError):  # they may be removed another time
            segments.prune(self._real, player.settings.keep_segments, player.settings.keep_bytes)

    def need_writable(self) -> None:
        """Raises an error after close, or after a failed write, which would leave a gap."""
        if not self._close.alive:
            raise InputError(f"the journal {self.path} is closed")
        if self.broken:
            raise RuntimeError(f"the journal {self.path} could not be written earlier")

    def close(self) -> None:
        """Closes the file, without what was not committed."""
        with self._lock:
            while self._writing:
                self._written.wait()
            self._close()

    def disown(self) -> None:
        """In a fork: leaves the file, and the lock on it, to the parent."""
        self._close()
        self._lock = turns.Refusal("journal")

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self, player: "Player") -> None:
        """Brings the player to the last state, and removes an incomplete last line."""
        with open(os.dup(self._file), "rb") as file:
            found = lines.Reader(file, str(self.path), player)
            found.read_all()
        self._sum, self.dropped, self._tail = found.sum, found.dropped, found.tail
        self.segment, self.events = found.segment, found.events
        if self.dropped:
            os.ftruncate(self._file, found.end)
        if found.end == 0:
            self.append(lines.header(player, 1, 0))
            self.events = self._tail = 0
            self._before = player.told
            self.commit()
            sync_folder(self._real.parent)
            return
        self._before = player.told - self.events
        segments.clean_up(self._real, self.segment)
        if found.version < lines.VERSION:
            self.due = True
            self._compact_if_possible(player)
