"""`batch_last`: a `vmap` that keeps the batch in the last axes of every intermediate array.

`jax.vmap` moves the batch to the front wherever something is broadcast. For a bandit with two arms
that leaves arrays of shape [batch, 2], and a CPU then fills its vector registers with two numbers at
a time, or transposes at every step. Here a function written for one instance is traced once, and its
operations are replayed on arrays [..., R, B]: R rollouts on each of B instances. The results are those
of `vmap`; SoftElim's gradient on two arms takes about a third of the time.

Operations that this file does not know go through `jax.vmap` one by one, so every JAX function works.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend import core

from gradband.core import jax_setup as jax_setup

_ELEMENTWISE = """
    abs acos add and asin atan atan2 cbrt ceil clamp convert_element_type copy cos cosh digamma div eq erf
    erf_inv erfc exp exp2 expm1 floor ge gt integer_pow is_finite le lgamma log log1p logistic lt max min
    mul name ne neg nextafter not or pow regularized_incomplete_beta rem round rsqrt select_n shift_left
    shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh xor
"""
# Their axes are counted from the front, where adding axes at the end changes nothing.
_ALONG_LEADING_AXES = """
    argmax argmin cumlogsumexp cummax cummin cumprod cumsum reduce_and reduce_max reduce_min reduce_or
    reduce_prod reduce_sum rev squeeze
"""
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
ALONG_LEADING_AXES = frozenset(_ALONG_LEADING_AXES.split())
INLINED = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr"}


def batch_last(
    function: Callable[..., Any], batch_shape: tuple[int, int], batched: tuple[bool, ...]
) -> Callable[..., Any]:
    """Maps `function` over the last two axes, `batch_shape` = (R, B), of the arguments marked in `batched`.

    A marked argument's arrays end in (R, B) or, when all rollouts share them, (1, B); an unmarked one
    is the same for all. Every array of the result ends in (R, B).

    >>> add = batch_last(lambda x, y: x.sum() + y, (2, 3), (True, False))
    >>> add(jnp.ones((5, 2, 3)), 1.0).shape
    (2, 3)
    """

    def mapped(*arguments: Any) -> Any:
        inputs: list[Value] = []
        examples = []
        for argument, flag in zip(arguments, batched, strict=True):
            flat = [jnp.asarray(leaf) for leaf in jax.tree.leaves(argument)]
            inputs += [(leaf, flag) for leaf in flat]
            shapes = [leaf.shape[:-2] if flag else leaf.shape for leaf in flat]
            examples.append(
                jax.tree.unflatten(
                    jax.tree.structure(argument),
                    [
                        jax.ShapeDtypeStruct(shape, leaf.dtype, weak_type=getattr(leaf, "weak_type", False))
                        for shape, leaf in zip(shapes, flat, strict=True)
                    ],
                )
            )
        closed, result = jax.make_jaxpr(function, return_shape=True)(*examples)
        outputs = _replay(closed, inputs, batch_shape)
        flat = [_widen(value, flag, batch_shape) for value, flag in outputs]
        return jax.tree.unflatten(jax.tree.structure(result), flat)

    return mapped


Value = tuple[Array, bool]  # an array, and whether its last two axes are the batch's


def _replay(closed: Any, inputs: list[Value], batch_shape: tuple[int, int]) -> list[Value]:
    """Evaluates a traced function on batched values."""
    jaxpr = closed.jaxpr
    known: dict[Any, Value] = {
        variable: (value, False) for variable, value in zip(jaxpr.constvars, closed.consts, strict=True)
    }
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Value:
        if isinstance(atom, core.Literal):
            return jnp.asarray(atom.val, getattr(atom.aval, "dtype", None)), False
        return known[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        outputs = _apply(equation, inputs, batch_shape)
        known.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(equation: Any, inputs: list[Value], batch_shape: tuple[int, int]) -> list[Value]:
    """One operation on batched values."""
    name, parameters = equation.primitive.name, equation.params
    if name in INLINED:
        return _replay(parameters[INLINED[name]], inputs, batch_shape)
    if not any(flag for _, flag in inputs):
        return [(value, False) for value in _evaluate(equation, [value for value, _ in inputs])]
    ranks = [len(atom.aval.shape) for atom in equation.invars]
    shape = equation.outvars[0].aval.shape
    if name in ELEMENTWISE:
        return _same(equation, _align(inputs, ranks, max(ranks)), True)
    if name in ALONG_LEADING_AXES:
        return _same(equation, [value for value, _ in inputs], True)
    value, rank = inputs[0][0], ranks[0]
    if name == "broadcast_in_dim":
        tail = value.shape[-2:]
        axes = (*parameters["broadcast_dimensions"], len(shape), len(shape) + 1)
        return [(jax.lax.broadcast_in_dim(value, (*shape, *tail), axes), True)]
    if name == "reshape" and parameters["dimensions"] is None:
        return [(value.reshape(*shape, *value.shape[-2:]), True)]
    if name == "transpose":
        return [(value.transpose(*parameters["permutation"], rank, rank + 1), True)]
    if name == "slice":
        cut = zip(parameters["start_indices"], parameters["limit_indices"], strict=True)
        strides = parameters["strides"] or (1,) * rank
        index = tuple(slice(a, b, s) for (a, b), s in zip(cut, strides, strict=True))
        return [(value[index], True)]
    if name == "dynamic_slice" and not any(flag for _, flag in inputs[1:]):  # the same place in all
        starts = [start for start, _ in inputs[1:]]
        sizes = (*parameters["slice_sizes"], *value.shape[-2:])
        return [(jax.lax.dynamic_slice(value, [*starts, 0, 0], sizes), True)]
    if name == "concatenate":
        parts = [_widen(value, flag, batch_shape) for value, flag in inputs]
        return [(jnp.concatenate(parts, axis=parameters["dimension"]), True)]
    if name == "random_wrap":
        return [
            (jax.random.wrap_key_data(jnp.moveaxis(value, rank - 1, -1), impl=parameters["impl"]), True)
        ]
    if name == "random_unwrap":
        return [(jnp.moveaxis(jax.random.key_data(value), -1, rank), True)]
    if name == "while":
        return _while(equation, inputs, batch_shape)
    return _fall_back(equation, inputs, ranks, batch_shape)


def _same(equation: Any, values: list[Any], flag: bool) -> list[Value]:
    """The equation's own operation, applied to other arrays."""
    return [(equation.primitive.bind(*values, **equation.params), flag)]


def _evaluate(equation: Any, values: list[Any]) -> list[Any]:
    """The equation as it stands, on values for all its inputs, as `jax.core.eval_jaxpr` does it."""
    primitive = equation.primitive
    bound = primitive.get_bind_params(equation.params)
    functions, parameters = bound if isinstance(bound, tuple) else ((), bound)
    result = primitive.bind(*functions, *values, **parameters)
    return list(result) if primitive.multiple_results else [result]


def _align(inputs: list[Value], ranks: list[int], rank: int) -> list[Array]:
    """Operands of an elementwise operation, brought to one shape."""
    expanded = [
        (*value.shape[:own], *(1,) * (rank - own), *(value.shape[own:] if flag else (1, 1)))
        for (value, flag), own in zip(inputs, ranks, strict=True)
    ]
    shape = np.broadcast_shapes(*expanded)
    return [
        _spread(value, shape, (*range(own), *((rank, rank + 1) if flag else ())))
        for (value, flag), own in zip(inputs, ranks, strict=True)
    ]


def _widen(value: Array, flag: bool, batch_shape: tuple[int, int]) -> Array:
    """A value with both batch axes present and full."""
    shape = *(value.shape[:-2] if flag else value.shape), *batch_shape
    return _spread(value, shape, tuple(range(value.ndim)))


def _spread(value: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """The value with other axes than these added, and those of length 1 repeated."""
    return value if value.shape == shape else jax.lax.broadcast_in_dim(value, shape, axes)


def _while(equation: Any, inputs: list[Value], batch_shape: tuple[int, int]) -> list[Value]:
    """A loop that runs until every instance is done; finished instances stay as they are."""
    given = equation.params
    for_condition, for_body = given["cond_nconsts"], given["body_nconsts"]
    outer, inner = inputs[:for_condition], inputs[for_condition : for_condition + for_body]
    rest = slice(for_condition + for_body, None)
    start = [_widen(value, flag, batch_shape) for value, flag in inputs[rest]]

    def replay(closed: Any, constants: list[Value], carry: list[Array]) -> list[Array]:
        values = constants + [(value, True) for value in carry]
        outputs = _replay(closed, values, batch_shape)
        return [_widen(value, flag, batch_shape) for value, flag in outputs]

    def running(carry: list[Array]) -> Array:
        return replay(given["cond_jaxpr"], outer, carry)[0]

    def body(carry: list[Array]) -> list[Array]:
        going = running(carry)
        return [
            jnp.where(jnp.broadcast_to(going, new.shape), new, old)
            for new, old in zip(replay(given["body_jaxpr"], inner, carry), carry, strict=True)
        ]

    return [(v, True) for v in jax.lax.while_loop(lambda c: running(c).any(), body, start)]


def _fall_back(
    equation: Any, inputs: list[Value], ranks: list[int], batch_shape: tuple[int, int]
) -> list[Value]:
    """Any other operation: `jax.vmap` over a flattened batch."""
    flat = [
        _widen(value, True, batch_shape).reshape(*value.shape[:rank], math.prod(batch_shape))
        if flag
        else value
        for (value, flag), rank in zip(inputs, ranks, strict=True)
    ]
    axes = [-1 if flag else None for _, flag in inputs]
    outputs = jax.vmap(lambda *v: _evaluate(equation, list(v)), in_axes=axes, out_axes=-1)(*flat)
    return [(value.reshape(*value.shape[:-1], *batch_shape), True) for value in outputs]
