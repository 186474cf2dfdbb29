"""Tables that took long to compute, kept in the user's cache folder."""

import hashlib
import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from gradband import cache, files
from gradband.errors import InputError


def stored(name: str, key: dict[str, Any], make: Callable[[], np.ndarray]) -> np.ndarray:
    """The array that `make` gives, from the cache folder if it is there and whole.

    `key` holds all that decides the array, and its hash is the file's name. A file that is damaged, or
    that holds another key, is made again; a folder that can't be written to is no obstacle.
    """
    folder = cache.folder("tables")
    if folder is None:
        return make()
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = folder / f"{name}-{digest}.safetensors"
    if path.exists():
        try:
            arrays, about = files.load(path, "table")
            if about.get("key") == key and about.get("checksum") == _checksum(arrays["table"]):
                return arrays["table"]
            raise InputError(f"{path} does not hold what it should")
        except (InputError, KeyError) as error:
            warnings.warn(f"a stored table is damaged and is made again: {error}", stacklevel=2)
    array = make()
    try:
        files.save(path, "table", {"table": array}, {"key": key, "checksum": _checksum(array)})
    except OSError as error:
        warnings.warn(f"the table could not be stored: {error}", stacklevel=2)
    return array


def _checksum(array: np.ndarray) -> str:
    about = f"{array.dtype} {array.shape}".encode()
    return hashlib.sha256(about + np.ascontiguousarray(array).data.tobytes()).hexdigest()
