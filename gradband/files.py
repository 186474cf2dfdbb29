"""Files: safetensors with JSON metadata, written atomically, read with distrust. Never pickle."""

import json
import math
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from gradband.errors import InputError

VERSION = 1
SIZE_LIMIT = 1 << 30


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a file beside `path`, flushes it to disk, and only then puts it in place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(8)}{path.suffix}")
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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


def save(path: str | Path, kind: str, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
    """Writes arrays with what is known `about` them to a file of some `kind`."""
    metadata = {
        "format": f"gradband-{kind}",
        "version": str(VERSION),
        "about": json.dumps(finite(about), allow_nan=False),
    }
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    data = to_bytes(contiguous, metadata)
    write_atomically(Path(path), lambda target: target.write_bytes(data))


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
    path = Path(path)
    foreign = InputError(f"{path} is not a gradband {kind} file")
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise InputError(f"{path} is larger than {SIZE_LIMIT >> 30} GiB")
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
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
            arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
        about = json.loads(metadata["about"])
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror or error}") from None
    except SafetensorError as error:
        raise InputError(f"{path} is damaged or not a safetensors file: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}") from None
    if not isinstance(about, dict):
        raise foreign
    return arrays, about
