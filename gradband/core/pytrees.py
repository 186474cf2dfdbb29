"""Dataclasses that pass through JAX transformations."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax import Array

from gradband.core import jax_setup as jax_setup

Class = TypeVar("Class", bound=type)
FEW_NUMBERS = 8  # of an array that is shown as it is


def pytree(*data: str, dropped: tuple[str, ...] = ()) -> Any:
    """Class decorator: the fields named are arrays, all others are fixed when code is compiled.

    Compiled code does not know the `dropped` fields, so that it serves whatever their values are.
    Unlike `jax.tree_util.register_dataclass` it does not run `__post_init__` on the way back, so
    that a class can check its values there without meeting tracers. What a dataclass shows of itself
    is kept to a line: large arrays by their shape.
    """

    def register(cls: Class) -> Class:
        fields = dataclasses.fields(cls)
        meta = tuple(f.name for f in fields if f.name not in data + dropped)
        defaults = {f.name: f.default for f in fields if f.name in dropped}

        def flatten(node: Any) -> tuple[list[Any], tuple[Any, ...]]:
            return [getattr(node, n) for n in data], tuple(getattr(node, n) for n in meta)

        def unflatten(fixed: tuple[Any, ...], leaves: Any) -> Any:
            node: Any = object.__new__(cls)
            for name, value in zip((*data, *meta), (*leaves, *fixed), strict=True):
                object.__setattr__(node, name, value)
            for name, value in defaults.items():
                object.__setattr__(node, name, value)
            return node

        jax.tree_util.register_pytree_node(cls, flatten, unflatten)
        if hasattr(cls.__repr__, "__wrapped__"):  # a dataclass wrote it, not whoever wrote the class
            type.__setattr__(cls, "__repr__", in_a_line)
        return cls

    return register


def in_a_line(node: Any) -> str:
    """A dataclass in words, without what has its usual value."""
    words = []
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.default is dataclasses.MISSING or not _same(value, field.default):
            words.append(f"{field.name}={brief(value)}")
    return f"{type(node).__name__}({', '.join(words)})"


def brief(value: Any) -> str:
    """A value in a few words: of an array its few numbers, the one that all are, or its shape.

    >>> print(brief(np.ones(10)), brief(np.array([0.6, 0.4])), brief(np.zeros((40, 3, 50))))
    1 [0.6, 0.4] array [40, 3, 50]
    """
    if not isinstance(value, np.ndarray | Array):
        return repr(value)
    if isinstance(value, jax.core.Tracer):
        return f"traced {list(value.shape)}"
    array = np.asarray(value)
    if array.ndim < 2 and array.size and (array == array.flat[0]).all():
        return f"{array.flat[0]:g}"
    if array.size <= FEW_NUMBERS:
        return np.array2string(array, precision=4, separator=", ").replace("\n", "")
    return f"array {list(array.shape)}"


def _same(value: Any, usual: Any) -> bool:
    if isinstance(value, np.ndarray) and isinstance(usual, float):
        return bool((value == usual).all())
    return type(value) is type(usual) and bool(np.all(value == usual))


def flattened(tree: Any) -> np.ndarray:
    """All numbers of a tree of arrays in one array [P], in the order of its leaves."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def by_path(tree: Any) -> dict[str, Any]:
    """The arrays of a tree by their paths; those of a flat dictionary by their names.

    >>> by_path({"theta": 1.0, "layers": [{"w": 2.0}]})
    {'layers/0/w': 2.0, 'theta': 1.0}
    """
    return {_path(keys): leaf for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def map_by_path(function: Callable[[str, Any], Any], tree: Any) -> Any:
    """A tree of what `function(path, leaf)` returns."""
    return jax.tree_util.tree_map_with_path(lambda keys, leaf: function(_path(keys), leaf), tree)


def _path(keys: Any) -> str:
    return jax.tree_util.keystr(keys, simple=True, separator="/")
