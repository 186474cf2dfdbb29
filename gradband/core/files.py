"""Files: written atomically, checked when read."""

import csv
import io
import json
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradband.core.errors import InputError

SIZE_LIMIT = 1 << 30


def write_atomically(path: Path, write: Callable[[Path], object], keep: bool = False) -> None:
    """Lets `write` fill a temporary file, flushes it to disk, and renames it to `path`.

    With `keep`, the previous file is kept under the name `before(path)`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.urandom(8).hex()}{path.suffix}")
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        if keep and path.exists():
            path.replace(before(path))
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def before(path: Path) -> Path:
    """Where the previous version of a file is kept.

    >>> print(before(Path("runs/checkpoint.safetensors")))
    runs/checkpoint.before.safetensors
    """
    return path.with_suffix(f".before{path.suffix}")


def forget(path: Path) -> bool:
    """Removes a file and its previous version. Returns whether either existed."""
    there = [file for file in (path, before(path)) if file.exists()]
    for file in there:
        file.unlink()
    return bool(there)


def sync_folder(folder: Path) -> None:
    """Flushes the folder's file names to disk."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_all(file: int, data: bytes) -> None:
    """Writes all data to an open file."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically."""
    write_atomically(path, lambda target: target.write_text(text, encoding="utf-8"))


def toml(table: dict[str, Any], name: str = "") -> str:
    """A table of numbers, strings, lists and further tables as TOML.

    >>> print(toml({"horizon": 10, "prior": {"kind": "beta", "a": [1.0, 2.0]}}))
    horizon = 10
    <BLANKLINE>
    [prior]
    kind = "beta"
    a = [1.0, 2.0]
    """
    lines = [f"[{name}]"] if name else []
    inner = []
    for key, value in table.items():
        if isinstance(value, dict):
            inner.append("\n" + toml(value, f"{name}.{key}" if name else key))
        elif isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            full = f"{name}.{key}" if name else key
            inner += [f"\n[{toml(entry, f'[{full}]')[1:]}" for entry in value]
        else:
            # JSON writes strings, numbers and lists of them as TOML does.
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False, allow_nan=False)}")
    return "\n".join(lines + inner)


def to_csv(rows: list[dict[str, Any]]) -> str:
    """CSV of rows that have the same columns.

    >>> print(to_csv([{"arm": 1, "mean": 0.5}]), end="")
    arm,mean
    1,0.5
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_json(about: dict[str, Any]) -> str:
    """The value as JSON, made `finite` first."""
    return json.dumps(finite(about), allow_nan=False)


def finite(value: Any) -> Any:
    """The value in a form that JSON allows: NaN and infinities become null, arrays become lists."""
    if isinstance(value, dict):
        return {str(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        return finite(np.asarray(value).tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read(path: str | Path, most: int | None = None, only: int = -1) -> bytes:
    """Reads a regular file of at most `most` bytes: all of it, or only the first `only` bytes."""
    most = SIZE_LIMIT if most is None else most
    try:
        found = Path(path).stat()
        if found.st_size > most:
            raise InputError(f"{path} is larger than {most >> 20} MiB")
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"cannot read {path}: it is not a regular file")
        with Path(path).open("rb") as file:
            return file.read(only)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"cannot read {str(path)!r}: {error}") from None
