"""Names programs before they are traced, since tracing takes longer than most kernels run.

A program of the library's own parts is decided by the library's source, its settings and the shapes of its
operands. One with code of the user's, such as a policy or a sampler, has no name and is always traced.
"""

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any

import jax
import numpy as np

PACKAGE = __name__.partition(".")[0]
DECIDING = ("jax", "jaxlib", "numpy", "llvmlite")  # packages whose version may change a kernel


class UnknownError(Exception):
    """A program depends on something outside the library's source."""


def name_of(function: Any, settings: tuple[Any, ...], operands: tuple[Any, ...]) -> str | None:
    """A name that identifies a program in any process, or None if it must be traced."""
    leaves, tree = jax.tree.flatten(operands)
    shapes = [(np.shape(leaf), str(getattr(leaf, "dtype", type(leaf)))) for leaf in leaves]
    try:
        words = list(_words([function.__wrapped__, settings, shapes, *_nodes(tree)]))
    except UnknownError:
        return None
    return hashlib.sha256("\0".join((_source(), *words)).encode()).hexdigest()


@cache
def _source() -> str:
    """The library's files, by size and time as for Python's own cache, and versions of other packages."""
    root = Path(__file__).parents[1]
    files = [(str(path.relative_to(root)), path.stat()) for path in sorted(root.rglob("*.py"))]
    found = [f"{name} {stat.st_mtime_ns} {stat.st_size}" for name, stat in files]
    return "\n".join([*found, *(f"{name} {version(name)}" for name in DECIDING)])


def _nodes(tree: Any) -> Iterable[Any]:
    """The types of a tree's nodes and what is static in them."""
    yield tree.node_data()
    for child in tree.children():
        yield from _nodes(child)


def _words(value: Any) -> Iterable[str]:
    """A value as words that no other value has."""
    if value is None or isinstance(value, str | bytes | int | float):
        yield repr(value)
    elif isinstance(value, np.ndarray | np.generic):
        yield f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    elif isinstance(value, type | FunctionType):
        if value.__module__.partition(".")[0] not in (PACKAGE, "builtins") or "<" in value.__qualname__:
            raise UnknownError
        yield f"{value.__module__}:{value.__qualname__}"
    elif isinstance(value, dict):
        yield from _words(list(value.items()))
    elif isinstance(value, tuple | list):
        yield f"{len(value)} in {type(value).__name__}"
        for entry in value:
            yield from _words(entry)
    elif type(value).__module__.partition(".")[0] == PACKAGE:
        yield from _words([type(value), vars(value)])
    else:
        raise UnknownError
