"""A journal of what a player did, which a restart reads to go on from there.

One event a line, as JSON. Each line ends with a checksum of itself and of all lines before it, so that
whatever is changed, out of order or missing before another line is noticed. What is committed is on disk.
"""

import json
import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gradband import recorded
from gradband.errors import InputError, shown
from gradband.files import sync_folder, write_all
from gradband.player import Event, Player

VERSION = 1
LONGEST_LINE = 1 << 24


class Journal:
    """The journal of one player: `append` events, then `commit` them before anyone is told.

    Opening a journal that exists brings the player to where it was. A last line that was not written to
    its end is dropped (`dropped` says how many bytes), since nobody was told of it; any other damage is
    refused with its line.
    """

    def __init__(self, path: str | Path, player: Player) -> None:
        self.path = Path(path)
        if player.drawn > 1:
            raise InputError("a journal is for a player from its first decision on")
        if self.path.exists() and not self.path.is_file():
            raise InputError(f"the journal {self.path} is not a file")
        self.broken = False
        self.events = 0
        self.dropped = 0
        self._sum = 0
        self._waiting: list[bytes] = []
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            self._file = os.open(self.path, flags, 0o644)
        except OSError as error:
            raise InputError(f"can't open the journal {self.path}: {error.strerror}") from None
        try:
            _lock(self._file, self.path)
            self._read(player)
        except BaseException:
            os.close(self._file)
            raise

    def append(self, event: Event) -> None:
        """Keeps an event for the next `commit`."""
        line, self._sum = _line(event, self._sum)
        self._waiting.append(line)
        self.events += 1

    def commit(self) -> None:
        """Writes what was appended, and returns when it is on disk."""
        if self.broken:
            raise RuntimeError(f"the journal {self.path} could not be written before")
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        self._waiting.clear()
        try:
            write_all(self._file, data)
            getattr(os, "fdatasync", os.fsync)(self._file)
        except OSError as error:
            self.broken = True
            raise RuntimeError(f"can't write the journal {self.path}: {error.strerror}") from None

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, player: Player) -> None:
        """Applies all events to the player, and cuts off what is left of a last one."""
        header = {
            "format": "gradband-journal",
            "version": VERSION,
            "policy": player.law.name,
            "fingerprint": player.law.fingerprint,
            "seed": player.seed,
        }
        end = 0
        with open(os.dup(self._file), "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
                try:
                    if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
                        if number == 1 and not _line(header, 0)[0].startswith(line):
                            raise InputError("this is not a gradband journal")
                        self.dropped = len(line)
                        break
                    event = self._checked(line.rstrip(b"\n"))
                    if number == 1:
                        _check_header(event, header)
                    else:
                        recorded.check_event(player, event)
                        player.apply(event)
                        self.events += 1
                except InputError as error:
                    raise InputError(f"{self.path}, line {number}: {error}") from None
                end += len(line)
        if self.dropped:
            os.ftruncate(self._file, end)
        if end == 0:
            self.append(header)
            self.events = 0
            self.commit()
            sync_folder(self.path.parent)

    def _checked(self, line: bytes) -> Any:
        """What a line says, if its checksum is right."""
        length = len(_ending(0))
        body = line[:-length] + b"}"
        after = zlib.crc32(body, self._sum)
        if line[-length:] != _ending(after):
            raise InputError("this is damaged, or not a line of a journal")
        self._sum = after
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise InputError("this is not JSON") from None


def _line(event: Event, before: int) -> tuple[bytes, int]:
    """The line of an event, and the checksum up to it."""
    body = json.dumps(event, separators=(",", ":"), allow_nan=False).encode()
    checksum = zlib.crc32(body, before)
    return body[:-1] + _ending(checksum) + b"\n", checksum


def _ending(checksum: int) -> bytes:
    return b',"crc":"%08x"}' % checksum


def _check_header(found: Any, wanted: dict[str, Any]) -> None:
    if not isinstance(found, dict) or found.get("format") != wanted["format"]:
        raise InputError("this is not a gradband journal")
    if found.get("version") != VERSION:
        raise InputError(f"the journal's format is {shown(found.get('version'))}, this one reads {VERSION}")
    if found.get("fingerprint") != wanted["fingerprint"]:
        raise InputError(
            f"the journal is of another policy ({shown(found.get('policy'))}): "
            "play the file that it was begun with"
        )
    if found.get("seed") != wanted["seed"]:
        raise InputError(f"the journal was begun with the seed {shown(found.get('seed'))}: give it again")


def _lock(file: int, path: Path) -> None:
    """Keeps others from writing to the file for as long as it is open."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"the journal {path} is in use by another process") from None
    except OSError as error:
        raise InputError(f"can't lock the journal {path}: {error.strerror}") from None
