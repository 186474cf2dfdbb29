"""Arrays with JSON metadata in safetensors files, checked when read. Never pickle.

Reading needs only NumPy, since production may have nothing else.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from gradband.core.errors import InputError
from gradband.core.files import SIZE_LIMIT, read, to_json, write_atomically

VERSION = 1
MOST_AXES = 64  # of a NumPy array
SIZES = {"U": (1, 2, 4, 8), "I": (1, 2, 4, 8), "F": (2, 4, 8)}  # in bytes, by kind of number
DTYPES = {"BOOL": "?"}  # NumPy's names by those of safetensors, such as "<f4" by "F32"
DTYPES |= {f"{kind}{8 * n}": f"<{kind.lower()}{n}" for kind, sizes in SIZES.items() for n in sizes}

Arrays = dict[str, np.ndarray]


def save(
    path: str | Path, kind: str, arrays: Arrays, about: dict[str, Any] | str, keep: bool = False
) -> None:
    """Writes arrays, and what is known `about` them, to a file of some `kind`; see `write_atomically`.

    `about` may already be JSON.
    """
    from safetensors.numpy import save as to_bytes

    text = about if isinstance(about, str) else to_json(about)
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    metadata = {"format": f"gradband-{kind}", "version": str(VERSION), "about": text}
    data = to_bytes(contiguous, metadata | {"checksum": checksum(contiguous, text)})
    write_atomically(Path(path), lambda target: target.write_bytes(data), keep)


def checksum(arrays: Arrays, about: str) -> str:
    """A checksum of the content. Files that other programs wrote need not have one."""
    import hashlib  # here: it takes longer to import than most modules of a player

    digest = hashlib.sha256(about.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def load(path: str | Path, kind: str) -> tuple[Arrays, dict[str, Any]]:
    """Reads what `save` wrote. Anything else is an `InputError`."""
    return parse(read(path), kind, path)


def parse(data: bytes, kind: str, path: str | Path) -> tuple[Arrays, dict[str, Any]]:
    """Reads the bytes of a file, as `load` does."""
    foreign = InputError(f"{path} is not a gradband {kind} file")
    try:
        arrays, metadata = from_bytes(data)
        if metadata.get("format") != f"gradband-{kind}":
            raise foreign
        version = metadata.get("version", "")
        if version.isdecimal() and int(version) > VERSION:
            raise InputError(
                f"{path} was written by a newer gradband (its format is {version}, this one reads "
                f"{VERSION}): upgrade gradband"
            )
        if version != str(VERSION):
            raise InputError(f"{path} has the unknown format version {version!r}")
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


def named(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose names start with a prefix, by their names without it."""
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


class NotSafetensorsError(ValueError):
    """Bytes that do not have the safetensors format."""


def from_bytes(data: bytes) -> tuple[Arrays, dict[str, str]]:
    """The arrays of a safetensors file, by name, and its metadata.

    The format is the length of a header, the header in JSON, and the arrays one after the other. The
    header is not trusted: its sizes must match the bytes of the file before anything is allocated.
    """
    if len(data) < 8:
        raise NotSafetensorsError("it is too short")
    length = int.from_bytes(data[:8], "little")
    if length > len(data) - 8:
        raise NotSafetensorsError(f"its header claims {length} bytes, more than the file has")
    try:
        header = json.loads(data[8 : 8 + length].decode("utf-8"))
    except (ValueError, RecursionError):
        raise NotSafetensorsError("its header is not JSON") from None
    metadata = header.pop("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise NotSafetensorsError("its metadata must be a table of strings")
    body, arrays, reached = memoryview(data)[8 + length :], {}, 0
    for name, entry in sorted(header.items(), key=_offsets):
        begin, end = entry["data_offsets"]
        shape, kind = entry.get("shape"), DTYPES.get(str(entry.get("dtype")))
        if kind is None or not isinstance(shape, list) or not all(_is_count(size) for size in shape):
            raise NotSafetensorsError(f"{name[:80]!r} has no valid shape or dtype")
        stored = np.dtype(kind)
        if begin != reached or end > len(body) or _bytes(shape, stored) != end - begin:
            raise NotSafetensorsError(f"{name[:80]!r} does not have the size that its shape requires")
        values = np.frombuffer(body[begin:end], stored).reshape(shape)
        arrays[name] = values.astype(stored.newbyteorder("="))
        reached = end
    if reached != len(body):
        raise NotSafetensorsError("it has bytes that belong to no array")
    return dict(sorted(arrays.items())), metadata


def _offsets(item: tuple[str, Any]) -> tuple[int, int]:
    """Where an array begins and ends."""
    offsets = item[1].get("data_offsets") if isinstance(item[1], dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_count(at) for at in offsets):
        raise NotSafetensorsError(f"{item[0][:80]!r} is not an array")
    return offsets[0], offsets[1]


def _bytes(shape: list[int], kind: np.dtype) -> int:
    """Bytes of an array, or −1 if no file can hold it: multiplying many huge numbers takes hours."""
    if len(shape) > MOST_AXES or max(shape, default=0) > SIZE_LIMIT:
        return -1
    return math.prod(shape) * kind.itemsize


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
