"""Results of long computations, kept in the user's cache folder."""

import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradband.core import resources, tensor_file
from gradband.core.errors import InputError


def stored(name: str, key: dict[str, Any], make: Callable[[], np.ndarray]) -> np.ndarray:
    """The array that `make` returns, from the cache folder if it is stored there intact.

    `key` identifies the array; its hash is the file's name. A file that is damaged or has another key is
    computed again. Without a usable folder nothing is stored.
    """
    array = find(name, key)
    if array is None:
        array = make()
        keep(name, key, array)
    return array


def find(name: str, key: dict[str, Any]) -> np.ndarray | None:
    """The array stored under this key, if it is there and intact."""
    path = _path(name, key)
    try:
        if path is None or not path.exists():
            return None
        arrays, about = tensor_file.load(path, "table")
        if about.get("key") == key and about.get("checksum") == _checksum(arrays["table"]):
            return arrays["table"]
        raise InputError(f"{path} does not contain the expected table")
    except OSError:
        return None
    except (InputError, KeyError) as error:
        warnings.warn(f"a stored table is damaged and is computed again: {error}", stacklevel=3)
        return None


def keep(name: str, key: dict[str, Any], array: np.ndarray) -> None:
    """Stores an array for `find`, if the cache folder is writable."""
    path = _path(name, key)
    try:
        if path is not None:
            tensor_file.save(path, "table", {"table": array}, {"key": key, "checksum": _checksum(array)})
    except OSError as error:
        warnings.warn(f"the table could not be stored: {error}", stacklevel=3)


def _path(name: str, key: dict[str, Any]) -> Path | None:
    folder = resources.cache_folder("tables")
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return None if folder is None else folder / f"{name}-{digest}.safetensors"


def _checksum(array: np.ndarray) -> str:
    digest = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
