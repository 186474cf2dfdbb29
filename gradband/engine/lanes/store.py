"""Compiled kernels on disk, so that each is compiled only once.

A file's name is a hash of everything that decides its contents, and it begins with a checksum of the rest.
Damaged and foreign files are ignored and compiled again. The code in these files runs, so a folder that
other users can write to is not used.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import llvmlite

from gradband.core.files import write_atomically
from gradband.core.resources import private_cache

FORMAT = "lanes 2"
MOST_BYTES = 200_000_000  # of all files; the least recently used are deleted first


def stored(given: Iterable[str], make: Callable[[], bytes]) -> bytes:
    """The code that `make` compiles from what is given, from disk if it is there."""
    name = hashlib.sha256("\0".join((FORMAT, llvmlite.__version__, *given)).encode()).hexdigest()
    folder = private_cache("kernels")
    if folder is None:
        return make()
    path = folder / name
    with contextlib.suppress(OSError):
        found = path.read_bytes()
        if hashlib.sha256(found[32:]).digest() == found[:32]:
            os.utime(path)
            return found[32:]
    code = make()
    with contextlib.suppress(OSError):
        contents = hashlib.sha256(code).digest() + code
        write_atomically(path, lambda file: file.write_bytes(contents))
        _drop_oldest(folder)
    return code


def _drop_oldest(folder: Path) -> None:
    files = sorted(
        ((file.stat().st_mtime, file.stat().st_size, file) for file in folder.iterdir()), reverse=True
    )
    total = 0
    for _, size, file in files:
        total += size
        if total > MOST_BYTES:
            file.unlink(missing_ok=True)
