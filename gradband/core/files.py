"""Files: safetensors with JSON metadata, written atomically, read with distrust. Never pickle.

Reading needs nothing but NumPy, since production may have nothing else.
"""

import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradband.core.errors import InputError

VERSION = 1
SIZE_LIMIT = 1 << 30
MOST_AXES = 64  # of an array: as many as NumPy has
KINDS = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
}
"""what safetensors calls the kinds of numbers that NumPy has"""


def write_atomically(path: Path, write: Callable[[Path], object], keep: bool = False) -> None:
    """Lets `write` fill a file beside `path`, flushes it to disk, and only then puts it in place.

    With `keep`, the file that was there stays as the one `before` it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(8)}{path.suffix}")
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
    """Where a file that was replaced is kept.

    >>> print(before(Path("runs/checkpoint.safetensors")))
    runs/checkpoint.before.safetensors
    """
    return path.with_suffix(f".before{path.suffix}")


def forget(path: Path) -> bool:
    """Removes a file and the one before it, and says whether there was any."""
    there = [file for file in (path, before(path)) if file.exists()]
    for file in there:
        file.unlink()
    return bool(there)


def sync_folder(folder: Path) -> None:
    """Makes sure that the names of files are on disk too."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_all(file: int, data: bytes) -> None:
    """Writes all of it to an open file."""
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


def save(
    path: str | Path,
    kind: str,
    arrays: dict[str, np.ndarray],
    about: dict[str, Any] | str,
    keep: bool = False,
) -> None:
    """Writes arrays with what is known `about` them to a file of some `kind`; see `write_atomically`.

    What is known may be given in JSON.
    """
    from safetensors.numpy import save as to_bytes

    metadata = {
        "format": f"gradband-{kind}",
        "version": str(VERSION),
        "about": about if isinstance(about, str) else to_json(about),
    }
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    metadata["checksum"] = checksum(contiguous, metadata["about"])
    data = to_bytes(contiguous, metadata)
    write_atomically(Path(path), lambda target: target.write_bytes(data), keep)


def to_json(about: dict[str, Any]) -> str:
    """As JSON can hold it."""
    return json.dumps(finite(about), allow_nan=False)


def checksum(arrays: dict[str, np.ndarray], about: str) -> str:
    """Tells whether what is read is what was written; files from elsewhere need not have it."""
    digest = hashlib.sha256(about.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def finite(value: Any) -> Any:
    """The value as JSON can hold it: NaN and infinities become null, arrays become lists."""
    if isinstance(value, dict):
        return {str(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        return finite(np.asarray(value).tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def load(path: str | Path, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Reads what `save` wrote. Anything else gives one clear sentence."""
    return parse(read(path), kind, path)


def read(path: str | Path, most: int | None = None, only: int = -1) -> bytes:
    """The bytes of a file, or only so many of them, if it is one and has at most so many."""
    most = SIZE_LIMIT if most is None else most
    try:
        found = Path(path).stat()
        if found.st_size > most:
            raise InputError(f"{path} is larger than {most >> 20} MiB")
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"can't read {path}: it is not a file")
        with Path(path).open("rb") as file:
            return file.read(only)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"can't read {str(path)!r}: {error}") from None


def parse(data: bytes, kind: str, path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What `load` finds in the bytes of a file."""
    foreign = InputError(f"{path} is not a gradband {kind} file")
    try:
        arrays, metadata = from_bytes(data)
        if metadata.get("format") != f"gradband-{kind}":
            raise foreign
        version = metadata.get("version", "")
        if version != str(VERSION):
            newer = version.isdecimal() and int(version) > VERSION
            raise InputError(
                f"{path} was written by a newer gradband (its format is {version}, this one "
                f"reads {VERSION}): upgrade gradband"
                if newer
                else f"{path} has the format version {version!r}, which gradband never wrote"
            )
        if metadata.get("checksum", "") not in ("", checksum(arrays, metadata["about"])):
            raise InputError(f"{path} is damaged: its checksum is wrong")
        about = json.loads(metadata["about"])
    except NotSafetensorsError as error:
        raise InputError(f"{path} is damaged or not a safetensors file: {error}") from None
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}") from None
    if not isinstance(about, dict):
        raise foreign
    return arrays, about


def named(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


class NotSafetensorsError(ValueError):
    """Bytes that are not what the safetensors format says."""


def from_bytes(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a safetensors file, by name, and its metadata.

    The format is the length of a header, the header in JSON, and the arrays one behind the other. Nothing
    is allocated on a header's word: all that it says must fit the bytes that are there.
    """
    if len(data) < 8:
        raise NotSafetensorsError("it is too short")
    length = int.from_bytes(data[:8], "little")
    if length > len(data) - 8:
        raise NotSafetensorsError(f"its header should have {length} bytes, which it has not")
    try:
        header = json.loads(data[8 : 8 + length].decode("utf-8"))
    except (ValueError, RecursionError):
        raise NotSafetensorsError("its header is not JSON") from None
    metadata = header.pop("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise NotSafetensorsError("its metadata are not a table of texts")
    body, arrays, ends = memoryview(data)[8 + length :], {}, [0]
    for name, entry in sorted(header.items(), key=_begins):
        begin, end = entry["data_offsets"]
        shape, kind = entry.get("shape"), KINDS.get(str(entry.get("dtype")))
        if kind is None or not isinstance(shape, list) or not all(_is_count(size) for size in shape):
            raise NotSafetensorsError(f"{name[:80]!r} has no shape or no kind of numbers")
        stored = np.dtype(kind)
        if begin != ends[-1] or end > len(body) or _bytes(shape, stored) != end - begin:
            raise NotSafetensorsError(f"{name[:80]!r} has not as many bytes as its shape says")
        values = np.frombuffer(body[begin:end], stored).reshape(shape)
        arrays[name] = values.astype(stored.newbyteorder("="))
        ends.append(end)
    if ends[-1] != len(body):
        raise NotSafetensorsError("there are more bytes than arrays")
    return dict(sorted(arrays.items())), metadata


def _begins(item: tuple[str, Any]) -> tuple[int, int]:
    """Where an array begins and ends."""
    offsets = item[1].get("data_offsets") if isinstance(item[1], dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_count(at) for at in offsets):
        raise NotSafetensorsError(f"{item[0][:80]!r} is not an array")
    return offsets[0], offsets[1]


def _bytes(shape: list[int], kind: np.dtype) -> int:
    """Bytes of an array, or −1 if no file can hold it: a product of many huge numbers takes hours."""
    if len(shape) > MOST_AXES or max(shape, default=0) > SIZE_LIMIT:
        return -1
    return math.prod(shape) * kind.itemsize


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
