"""The files of a journal: the current one, and older ones beside it with numbers, `journal.jsonl.000001`.

A new file begins with a snapshot, so that a restart reads only that file. It is complete and on disk before
it takes the old one's name, and the old one has its number by then. So whenever the process stops, the name
means one of the two files, and a complete one.
"""

import contextlib
import os
import re
from pathlib import Path
from typing import IO

from gradband.core.errors import InputError
from gradband.core.files import sync_folder, write_all

FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)


def open_current(path: Path) -> int:
    """Opens the current file, or a new one, and locks it."""
    while True:
        try:
            file = os.open(path, FLAGS, 0o644)
        except OSError as error:
            raise InputError(f"cannot open the journal {path}: {error.strerror}") from None
        try:
            _lock(file, path)
            if _is_still(file, path):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # another process had it open and has started a new file meanwhile


def open_to_read(path: Path) -> IO[bytes]:
    """Opens a file of a journal that may be in use."""
    if not path.exists():
        raise InputError(f"there is no journal {path}")
    if not path.is_file():
        raise InputError(f"the journal {path} is not a file")
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"cannot open the journal {path}: {error.strerror}") from None


def start_next(path: Path, file: int, number: int, data: bytes) -> int:
    """Starts a file with this data, keeps the old one under its number, and returns the new one, open.

    After an `InputError` the old file is unchanged; after any other error its state is unknown.
    """
    fresh = _unfinished(path)
    try:
        new = os.open(fresh, FLAGS | os.O_TRUNC, os.fstat(file).st_mode & 0o777)
    except OSError as error:
        raise InputError(f"cannot write {fresh}: {error.strerror}") from None
    try:
        _lock(new, path)
        write_all(new, data)
        os.fsync(new)
        os.link(path, numbered(path, number))
        sync_folder(path.parent)
        os.replace(fresh, path)
    except OSError as error:
        os.close(new)
        clean_up(path, number)
        raise InputError(f"cannot start a new file of the journal {path}: {error.strerror}") from None
    except BaseException:
        os.close(new)
        raise
    try:
        sync_folder(path.parent)
    except BaseException:
        os.close(new)
        raise
    return new


def clean_up(path: Path, number: int) -> None:
    """Removes what remains if the process stopped while it started the file after this one."""
    with contextlib.suppress(FileNotFoundError):
        _unfinished(path).unlink()
    old = numbered(path, number)
    with contextlib.suppress(FileNotFoundError):
        if os.path.samefile(old, path):
            old.unlink()


def older(path: Path) -> list[Path]:
    """The older files of a journal that still exist, in order."""
    name = re.compile(re.escape(path.name) + r"\.(\d{6,})")
    found = [
        (int(match[1]), other) for other in path.parent.iterdir() if (match := name.fullmatch(other.name))
    ]
    return [other for _, other in sorted(found)]


def prune(path: Path, most: int | None, most_bytes: int | None) -> None:
    """Removes the oldest files until at most so many files, and bytes, remain."""
    if most is None and most_bytes is None:
        return
    files = older(path)
    sizes = [file.stat().st_size for file in files]
    while files and (
        (most is not None and len(files) > most) or (most_bytes is not None and sum(sizes) > most_bytes)
    ):
        files.pop(0).unlink(missing_ok=True)
        sizes.pop(0)


def numbered(path: Path, number: int) -> Path:
    """The path of an older file with this number.

    >>> print(numbered(Path("test.jsonl"), 17))
    test.jsonl.000017
    """
    return path.with_name(f"{path.name}.{number:06d}")


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _is_still(file: int, path: Path) -> bool:
    """Whether the open file still has this name."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


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
