"""Dataclasses that pass through JAX transformations, and indexing that suits vector units."""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

Class = TypeVar("Class", bound=type)


def pytree(*data: str, dropped: tuple[str, ...] = ()) -> Any:
    """Class decorator: the fields named are arrays, all others are fixed when code is compiled.

    Compiled code does not know the `dropped` fields, so that it serves whatever their values are.
    Unlike `jax.tree_util.register_dataclass` it does not run `__post_init__` on the way back, so
    that a class can check its values there without meeting tracers.
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
        return cls

    return register


def one_hot(index: Array | int, size: int) -> Array:
    """Booleans [size], true at `index`."""
    return jnp.arange(size) == index


def pick(values: Array, index: Array) -> Array:
    """`values[index]` for values [K], by selection: a gather would leave the vector registers."""
    return jnp.where(one_hot(index, values.shape[0]), values, 0).sum()


def flattened(tree: Any) -> np.ndarray:
    """All numbers of a tree of arrays in one array [P], in the order of its leaves."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
