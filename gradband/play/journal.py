"""A journal of what a player did, from which a restart resumes.

One event per line, as JSON. Each line ends with a checksum of itself and of all lines before it, so that a
line that was changed, moved or removed is noticed, unless it was the last. What is committed is on disk.
"""

import json
import os
import re
import weakref
import zlib
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING, Any

from gradband.core.errors import InputError, shown
from gradband.core.files import sync_folder, write_all
from gradband.play import events, turns

if TYPE_CHECKING:
    from gradband.play.player import Event, Player

VERSION = 1
LONGEST_LINE = 1 << 24


class Journal(AbstractContextManager["Journal"]):
    """The journal of one player: `append` events, then `commit` them before anyone sees their results.

    `Player(file, journal=path)` does both by itself. Opening an existing journal brings the player to its
    last state, and gives it the journal's seed if it has none of its own. An incomplete last line is
    dropped, because nobody has seen its result (`dropped` is its length in bytes); any other damage is an
    error that names the line.

    Any thread may append and commit. Threads that commit while another writes wait, and then one of them
    writes for all.
    """

    def __init__(self, path: str | Path, player: "Player") -> None:
        self.path = Path(path)
        if player.drawn > 1:
            raise InputError("a journal must be opened before the player's first decision")
        if self.path.exists() and not self.path.is_file():
            raise InputError(f"the journal {self.path} is not a file")
        self.broken = False
        self.events = 0
        self.dropped = 0
        self.appended = 0  # lines, since the journal was opened
        self._on_disk = 0  # of these
        self._sum = 0
        self._waiting: list[bytes] = []
        self._writing = False
        self._lock = turns.new_lock(self)
        self._written = Condition(self._lock)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            self._file = os.open(self.path, flags, 0o644)
        except OSError as error:
            raise InputError(f"cannot open the journal {self.path}: {error.strerror}") from None
        self._close = weakref.finalize(self, os.close, self._file)  # once, even if nobody calls close
        try:
            _lock(self._file, self.path)
            self._read(player)
        except BaseException:
            self._close()
            raise

    def append(self, event: "Event") -> None:
        """Adds an event, for the next `commit` to write."""
        with self._lock:
            line, self._sum = _line(event, self._sum)
            self._waiting.append(line)
            self.events += 1
            self.appended += 1

    def commit(self, appended: int | None = None) -> None:
        """Returns when all lines, or the first `appended` of them, are on disk."""
        with self._lock:
            wanted = self.appended if appended is None else appended
            while self._on_disk < wanted:
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

    def need_writable(self) -> None:
        """Raises an error after close, or after a failed write: the next line would follow a gap."""
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
        """Applies all events to the player, and removes an incomplete last line."""
        end = 0
        with open(os.dup(self._file), "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
                try:
                    if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
                        if number == 1 and not _begins_header(line, player):
                            raise InputError("this is not a gradband journal")
                        self.dropped = len(line)
                        break
                    event = self._checked(line.rstrip(b"\n"))
                    if number == 1:
                        _check_header(event, player)
                    else:
                        events.check_event(player, event)
                        player.apply(event)
                        self.events += 1
                except InputError as error:
                    raise InputError(f"{self.path}, line {number}: {error}") from None
                end += len(line)
        if self.dropped:
            os.ftruncate(self._file, end)
        if end == 0:
            self.append(_header(player))
            self.events = 0
            self.commit()
            sync_folder(self.path.parent)

    def _checked(self, line: bytes) -> Any:
        """The content of a line, if its checksum is right."""
        length = len(_ending(0))
        body = line[:-length] + b"}"
        after = zlib.crc32(body, self._sum)
        if line[-length:] != _ending(after):
            raise InputError("this line is damaged, or does not belong to a journal")
        self._sum = after
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise InputError("this is not JSON") from None


def _line(event: "Event", before: int) -> tuple[bytes, int]:
    """The line for an event, and the checksum up to there."""
    body = json.dumps(event, separators=(",", ":"), allow_nan=False).encode()
    checksum = zlib.crc32(body, before)
    return body[:-1] + _ending(checksum) + b"\n", checksum


def _ending(checksum: int) -> bytes:
    return b',"crc":"%08x"}' % checksum


def _header(player: "Player") -> "Event":
    return {
        "format": "gradband-journal",
        "version": VERSION,
        "policy": player.policy.name,
        "fingerprint": player.playable.fingerprint,
        "seed": player.seed,
    }


def _begins_header(line: bytes, player: "Player") -> bool:
    """Whether a header of this policy, with any seed, begins like this line."""
    before_seed, key, _ = _line(_header(player), 0)[0].partition(b'"seed":')
    start = before_seed + key
    return start.startswith(line) or bool(re.match(re.escape(start) + rb"\d*(,.*)?$", line))


def _check_header(found: Any, player: "Player") -> None:
    wanted = _header(player)
    if not isinstance(found, dict) or found.get("format") != wanted["format"]:
        raise InputError("this is not a gradband journal")
    if found.get("version") != VERSION:
        raise InputError(f"the journal has the version {shown(found.get('version'))}, not {VERSION}")
    if found.get("fingerprint") != wanted["fingerprint"]:
        raise InputError(
            f"the journal belongs to another policy ({shown(found.get('policy'))}): "
            "play the file that it was started with"
        )
    seed = events.check_count("seed", found.get("seed"))
    if not player.seed_given:
        player.reseed(seed)
    elif seed != player.seed:
        raise InputError(f"the journal was started with the seed {seed}: use that seed, or give none")


def _lock(file: int, path: Path) -> None:
    """Prevents others from writing to the file while it is open."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"the journal {path} is in use by another process or player") from None
    except OSError as error:
        raise InputError(f"cannot lock the journal {path}: {error.strerror}") from None
