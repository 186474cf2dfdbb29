"""Functions over NumPy or JAX arrays: the type of the arrays decides which library computes them.

Nothing here imports JAX: a caller that has a JAX array has already imported it.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
"""a NumPy or JAX array"""
PLAIN = (np.ndarray, np.generic, int, float)


def namespace(*arrays: Any) -> Any:
    """`numpy` if all of these are NumPy arrays or numbers, otherwise `jax.numpy`.

    >>> namespace(np.ones(3), 2.0).__name__
    'numpy'
    """
    for array in arrays:  # faster than `all`, and a player calls it often
        if not isinstance(array, PLAIN):
            return sys.modules["jax.numpy"]
    return np


def nn(*arrays: Any) -> Any:
    """`jax.nn`, or the same functions for NumPy arrays."""
    return _Functions if namespace(*arrays) is np else sys.modules["jax"].nn


class _Functions:
    """Some functions of `jax.nn`, for NumPy arrays."""

    @staticmethod
    def log_softmax(x: np.ndarray) -> np.ndarray:
        shifted = x - x.max()
        return shifted - np.log(np.exp(shifted).sum())

    @staticmethod
    def softmax(x: np.ndarray) -> np.ndarray:
        weights = np.exp(x - x.max())
        return weights / weights.sum()

    @staticmethod
    def relu(x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0)

    @staticmethod
    def leaky_relu(x: np.ndarray, negative_slope: float = 0.01) -> np.ndarray:
        return np.where(x >= 0, x, negative_slope * x)

    @staticmethod
    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 0.5 + 0.5 * np.tanh(0.5 * x)

    @staticmethod
    def silu(x: np.ndarray) -> np.ndarray:
        return x * _Functions.sigmoid(x)


def stop_gradient(x: Array) -> Array:
    """The same numbers, as constants for differentiation."""
    return x if namespace(x) is np else sys.modules["jax"].lax.stop_gradient(x)


def one_hot(index: Array | int, size: int) -> Array:
    """Booleans [size], true at `index`."""
    return namespace(index).arange(size) == index


def pick(values: Array, index: Array) -> Array:
    """`values[index]` for values [K]. JAX selects, because a gather would not be vectorised."""
    xp = namespace(values, index)
    if xp is np:
        return values[index]
    return xp.where(one_hot(index, values.shape[0]), values, 0).sum()


def add_at(values: Array, index: Array, amount: Array) -> Array:
    """Values [K] with `amount` added at `index`."""
    if namespace(values, index, amount) is np:
        values = values.copy()
        values[index] += amount
        return values
    return values + one_hot(index, values.shape[0]).astype(values.dtype) * amount


def real(value: Any) -> Array:
    """A number or array as a JAX array of floats."""
    return on_device(value, float)


def on_device(value: Any, dtype: Any) -> Array:
    """A number or array for JAX, with no program compiled for it."""
    import jax

    from gradband.core import jax_setup as jax_setup

    if isinstance(value, jax.core.Tracer):
        return jax.numpy.asarray(value, dtype)
    return jax.device_put(np.asarray(value, jax.dtypes.canonicalize_dtype(dtype)))


def flatten(tree: Any) -> dict[str, Array]:
    """The arrays of nested tuples and dictionaries, in JAX's order, by `leaf_names`.

    >>> list(flatten({"a": {"x": 1.0}, "b": {"x": 2.0}})), list(flatten({"a": {"x": 1.0}, "b": 2.0}))
    (['a_x', 'b_x'], ['x', 'b'])
    """
    found: list[tuple[tuple[str, ...], Array]] = []
    map_leaves(lambda path, leaf: found.append((path, leaf)), tree)
    return dict(zip(leaf_names([path for path, _ in found]), [leaf for _, leaf in found], strict=True))


def leaf_names(paths: list[tuple[str, ...]]) -> list[str]:
    """Names of a state's arrays: the ends of their paths, or whole paths if those ends are not unique."""
    words = [path or ("sums",) for path in paths]
    last = [entry[-1] for entry in words]
    taken = len({*last}) < len(last) or bool({*last} & {"arm", "reward", "probabilities"})
    return ["_".join(("state",) * (len(entry) == 1) + entry) if taken else entry[-1] for entry in words]


def nested(arrays: dict[str, Any]) -> dict[str, Any]:
    """Nested dictionaries from arrays by their paths, with lists where the keys are 0, 1, ….

    >>> nested({"theta": 1.0, "layers/0/w": 2.0, "layers/1/w": 3.0})
    {'theta': 1.0, 'layers': [{'w': 2.0}, {'w': 3.0}]}
    """
    found: dict[str, Any] = {}
    for path, array in arrays.items():
        *outer, last = path.split("/")
        node = found
        for key in outer:
            node = node.setdefault(key, {})
        node[last] = array
    return {key: _lists(entry) for key, entry in found.items()}


def _lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    inner = {key: _lists(entry) for key, entry in node.items()}
    numbered = set(inner) == {str(i) for i in range(len(inner))}
    return [inner[str(i)] for i in range(len(inner))] if numbered else inner


def unflatten(tree: Any, leaves: list[Array]) -> Any:
    """The tree with other arrays, in the same order."""
    following = iter(leaves)
    return map_leaves(lambda path, leaf: next(following), tree)


def map_leaves(
    function: Callable[[tuple[str, ...], Array], Any],
    tree: Any,
    path: tuple[str, ...] = (),
    kind: type | tuple[type, ...] = (),
) -> Any:
    """The tree with `function(path, leaf)` in place of each array, or of each tuple of some `kind`s."""
    if tree is None:
        return None
    if isinstance(tree, kind) or not isinstance(tree, dict | tuple | list):
        return function(path, tree)

    def mapped(key: Any, entry: Any) -> Any:
        return map_leaves(function, entry, (*path, str(key)), kind)

    if isinstance(tree, dict):
        return {key: mapped(key, tree[key]) for key in sorted(tree)}
    if hasattr(tree, "_fields"):
        return type(tree)(*map(mapped, tree._fields, tree))
    return type(tree)(map(mapped, range(len(tree)), tree))


def map_nodes(kind: type, function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with `function(node)` in place of each node of a `kind` of named tuple."""
    return map_leaves(lambda path, node: function(node) if isinstance(node, kind) else node, tree, (), kind)
