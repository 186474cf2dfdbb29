"""JAX's operations as those of ONNX: one rule for each primitive."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from gradband.core.errors import InputError

_PAIRS = """
    abs Abs, acos Acos, add Add, and And, asin Asin, atan Atan, ceil Ceil, copy Identity, cos Cos,
    cosh Cosh, div Div, eq Equal, erf Erf, exp Exp, floor Floor, ge GreaterOrEqual, gt Greater,
    le LessOrEqual, log Log, logistic Sigmoid, lt Less, max Max, min Min, mul Mul, name Identity, neg Neg,
    not Not, or Or, pow Pow, sign Sign, sin Sin, sinh Sinh, sqrt Sqrt, stop_gradient Identity, sub Sub,
    tan Tan, tanh Tanh, xor Xor
"""
SAME: dict[str, str] = dict(pair.split() for pair in _PAIRS.split(","))
"""JAX primitives that are one ONNX operation."""


class Graph:
    """An ONNX graph under construction, from JAX's equations."""

    def __init__(self, onnx: Any, name: str) -> None:
        self.onnx, self.name = onnx, name
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def traced(self, closed: Any, inputs: list[str], outputs: list[str]) -> Any:
        """The graph of a traced function, with names for its inputs and outputs."""
        given = [self.cast(name, np.int32) if name == "arm" else name for name in inputs]
        results = self.inline(closed.jaxpr, closed.consts, given)
        for result, output in zip(results, outputs, strict=True):
            self.rename(result, output)

        def info(name: str, aval: Any) -> Any:
            dtype = np.dtype(np.int64) if name == "arm" else aval.dtype  # as usual for indices in ONNX
            kind = self.onnx.helper.np_dtype_to_tensor_dtype(dtype)
            return self.onnx.helper.make_tensor_value_info(name, kind, aval.shape)

        return self.onnx.helper.make_graph(
            self.nodes,
            self.name,
            [info(name, var.aval) for name, var in zip(inputs, closed.jaxpr.invars, strict=True)],
            [info(name, var.aval) for name, var in zip(outputs, closed.jaxpr.outvars, strict=True)],
            self.constants,
        )

    def inline(self, jaxpr: Any, consts: Any, inputs: list[str]) -> list[str]:
        """Adds all equations, and returns the names of the results."""
        names: dict[Any, str] = dict(zip(jaxpr.invars, inputs, strict=True))
        names |= {var: self.constant(value) for var, value in zip(jaxpr.constvars, consts, strict=True)}

        def of(var: Any) -> str:
            return self.constant(np.asarray(var.val, var.aval.dtype)) if hasattr(var, "val") else names[var]

        for equation in jaxpr.eqns:
            results = self.written(equation, [of(var) for var in equation.invars])
            names |= dict(zip(equation.outvars, results, strict=True))
        return [of(var) for var in jaxpr.outvars]

    def written(self, equation: Any, inputs: list[str]) -> list[str]:
        """Adds one equation, and returns the names of its results."""
        name = equation.primitive.name
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        if inner is not None:
            return self.inline(inner.jaxpr, inner.consts, inputs)
        if name in SAME:
            return [self.op(SAME[name], *inputs)]
        rule = RULES.get(name)
        if rule is None:
            raise InputError(f"{self.name} has an operation that cannot be exported to ONNX: {name}")
        found = rule(self, equation, *inputs)
        return found if isinstance(found, list) else [found]

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node with one result, and returns its name."""
        result = f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [result], **attributes))
        return result

    def rename(self, result: str, output: str) -> None:
        """Renames a result to an output; an Identity node would be optimised wrongly by some runtimes."""
        if not any(result in node.output for node in self.nodes):
            self.nodes.append(self.onnx.helper.make_node("Identity", [result], [output]))
            return
        for node in self.nodes:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name == result:
                        names[i] = output

    def constant(self, value: Any) -> str:
        """Adds a constant, and returns its name."""
        name = f"c{len(self.constants)}"
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def whole(self, *values: int) -> str:
        """A constant of 64-bit integers, as ONNX takes axes and shapes."""
        return self.constant(np.array(values, np.int64))

    def slice(self, x: str, *ranges: Iterable[int]) -> str:
        """Slices an array by starts, ends, axes and steps."""
        return self.op("Slice", x, *(self.whole(*values) for values in ranges))

    def cast(self, x: str, dtype: Any) -> str:
        return self.op("Cast", x, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _reduce(kind: str, graph: Graph, equation: Any, x: str) -> str:
    return graph.op(kind, x, graph.whole(*equation.params["axes"]), keepdims=0)


def _all_or_any(kind: str, graph: Graph, equation: Any, x: str) -> str:
    return graph.cast(_reduce(kind, graph, equation, graph.cast(x, np.int32)), bool)


def _index_of(kind: str, graph: Graph, equation: Any, x: str) -> str:
    (axis,) = equation.params["axes"]
    if equation.invars[0].aval.dtype == bool:
        x = graph.cast(x, np.int32)
    return graph.cast(graph.op(kind, x, axis=axis, keepdims=0), equation.params["index_dtype"])


def _with_one(kind: str, graph: Graph, equation: Any, x: str) -> str:
    """An operation on x and 1."""
    return graph.op(kind, x, graph.constant(np.ones((), equation.invars[0].aval.dtype)))


def _expm1(graph: Graph, equation: Any, x: str) -> str:
    return _with_one("Sub", graph, equation, graph.op("Exp", x))


def _log1p(graph: Graph, equation: Any, x: str) -> str:
    return graph.op("Log", _with_one("Add", graph, equation, x))


def _is_finite(graph: Graph, equation: Any, x: str) -> str:
    return graph.op("Not", graph.op("Or", graph.op("IsInf", x), graph.op("IsNaN", x)))


def _broadcast(graph: Graph, equation: Any, x: str) -> str:
    shape, kept = equation.params["shape"], equation.params["broadcast_dimensions"]
    sizes = dict(zip(kept, equation.invars[0].aval.shape, strict=True))
    aligned = graph.op("Reshape", x, graph.whole(*(sizes.get(axis, 1) for axis in range(len(shape)))))
    return graph.op("Expand", aligned, graph.whole(*shape))


def _reshape(graph: Graph, equation: Any, x: str) -> str:
    return graph.op("Reshape", x, graph.whole(*equation.outvars[0].aval.shape))


def _iota(graph: Graph, equation: Any) -> str:
    aval, axis = equation.outvars[0].aval, equation.params["dimension"]
    return graph.constant(np.indices(aval.shape, aval.dtype)[axis])


def _integer_pow(graph: Graph, equation: Any, x: str) -> str:
    exponent = np.asarray(equation.params["y"], equation.invars[0].aval.dtype)
    return graph.op("Pow", x, graph.constant(exponent))


def _cumsum(graph: Graph, equation: Any, x: str) -> str:
    axis = graph.constant(np.int64(equation.params["axis"]))
    return graph.op("CumSum", x, axis, reverse=int(equation.params["reverse"]))


def _product(graph: Graph, equation: Any, x: str, y: str) -> str:
    (of_x, of_y), batched = equation.params["dimension_numbers"]
    left, right = (var.aval for var in equation.invars)
    if batched != ((), ()) or len(of_x) != 1 or right.ndim > 2:
        raise InputError(f"{graph.name} has a matrix product that cannot be exported to ONNX")
    rows = [axis for axis in range(left.ndim) if axis not in of_x]
    if of_x != (left.ndim - 1,):
        x = graph.op("Transpose", x, perm=[*rows, *of_x])
    if of_y != (0,):
        y = graph.op("Transpose", y, perm=[1, 0])
    return graph.op("MatMul", x, y)


def _slice(graph: Graph, equation: Any, x: str) -> str:
    starts, ends = equation.params["start_indices"], equation.params["limit_indices"]
    steps = equation.params["strides"] or (1,) * len(starts)
    return graph.slice(x, starts, ends, range(len(starts)), steps)


def _reverse(graph: Graph, equation: Any, x: str) -> str:
    axes, far = equation.params["dimensions"], np.iinfo(np.int64)
    return graph.slice(x, [far.max] * len(axes), [far.min] * len(axes), axes, [-1] * len(axes))


def _split(graph: Graph, equation: Any, x: str) -> list[str]:
    axis, ends = graph.whole(equation.params["axis"]), np.cumsum(equation.params["sizes"])
    parts = zip([0, *ends[:-1]], ends, strict=True)
    return [graph.op("Slice", x, graph.whole(start), graph.whole(end), axis) for start, end in parts]


def _dynamic_slice(graph: Graph, equation: Any, x: str, *starts: str) -> str:
    sizes, shape = equation.params["slice_sizes"], equation.invars[0].aval.shape
    parts = [graph.op("Reshape", graph.cast(start, np.int64), graph.whole(1)) for start in starts]
    first = graph.op("Concat", *parts, axis=0)
    most = graph.whole(*(whole - size for whole, size in zip(shape, sizes, strict=True)))
    first = graph.op("Min", graph.op("Max", first, graph.whole(*(0,) * len(sizes))), most)
    last = graph.op("Add", first, graph.whole(*sizes))
    return graph.op("Slice", x, first, last, graph.whole(*range(len(sizes))))


def _gather(graph: Graph, equation: Any, x: str, index: str) -> str:
    numbers, shape = equation.params["dimension_numbers"], equation.invars[0].aval.shape
    places = tuple(range(len(numbers.start_index_map)))
    sizes = (1,) * len(places) + tuple(shape[len(places) :])
    found = (numbers.collapsed_slice_dims, numbers.start_index_map, numbers.offset_dims)
    ends = _last_axes(equation.outvars[0].aval, len(shape) - len(places))
    if found != (places, places, ends) or tuple(equation.params["slice_sizes"]) != sizes:
        raise InputError(f"{graph.name} looks up a table in a way that cannot be exported to ONNX")
    return graph.op("GatherND", x, graph.cast(index, np.int64))


def _scatter(reduction: str, graph: Graph, equation: Any, x: str, index: str, updates: str) -> str:
    numbers = equation.params["dimension_numbers"]
    whole, _, given = (var.aval for var in equation.invars)
    places = tuple(range(len(numbers.scatter_dims_to_operand_dims)))
    found = (numbers.inserted_window_dims, numbers.scatter_dims_to_operand_dims, numbers.update_window_dims)
    if found != (places, places, _last_axes(given, whole.ndim - len(places))):
        raise InputError(f"{graph.name} changes a table in a way that cannot be exported to ONNX")
    return graph.op("ScatterND", x, graph.cast(index, np.int64), updates, reduction=reduction)


def _last_axes(aval: Any, count: int) -> tuple[int, ...]:
    return tuple(range(aval.ndim - count, aval.ndim))


def _stack(graph: Graph, equation: Any, *inputs: str) -> str:
    axis = equation.params["axis"]
    lifted = [graph.op("Unsqueeze", x, graph.whole(axis)) for x in inputs]
    return graph.op("Concat", *lifted, axis=axis)


def _unstack(graph: Graph, equation: Any, x: str) -> list[str]:
    places = [graph.constant(np.int64(i)) for i in range(len(equation.outvars))]
    return [graph.op("Gather", x, place, axis=equation.params["axis"]) for place in places]


RULES: dict[str, Callable[..., str | list[str]]] = {
    "argmax": partial(_index_of, "ArgMax"),
    "argmin": partial(_index_of, "ArgMin"),
    "broadcast_in_dim": _broadcast,
    "clamp": lambda g, e, low, x, high: g.op("Min", g.op("Max", x, low), high),
    "concatenate": lambda g, e, *x: g.op("Concat", *x, axis=e.params["dimension"]),
    "convert_element_type": lambda g, e, x: g.cast(x, e.params["new_dtype"]),
    "cumsum": _cumsum,
    "dot_general": _product,
    "dynamic_slice": _dynamic_slice,
    "expm1": _expm1,
    "gather": _gather,
    "integer_pow": _integer_pow,
    "iota": _iota,
    "is_finite": _is_finite,
    "log1p": _log1p,
    "ne": lambda g, e, x, y: g.op("Not", g.op("Equal", x, y)),
    "reduce_and": partial(_all_or_any, "ReduceMin"),
    "reduce_max": partial(_reduce, "ReduceMax"),
    "reduce_min": partial(_reduce, "ReduceMin"),
    "reduce_or": partial(_all_or_any, "ReduceMax"),
    "reduce_prod": partial(_reduce, "ReduceProd"),
    "reduce_sum": partial(_reduce, "ReduceSum"),
    "rem": lambda g, e, x, y: g.op("Mod", x, y, fmod=1),
    "reshape": _reshape,
    "rev": _reverse,
    "rsqrt": lambda g, e, x: g.op("Reciprocal", g.op("Sqrt", x)),
    "scatter": partial(_scatter, "none"),
    "scatter-add": partial(_scatter, "add"),
    "select_n": lambda g, e, which, no, yes: g.op("Where", which, yes, no),
    "slice": _slice,
    "split": _split,  # for `unstack` in JAX before 0.10
    "square": lambda g, e, x: g.op("Mul", x, x),
    "squeeze": _reshape,
    "stack": _stack,
    "transpose": lambda g, e, x: g.op("Transpose", x, perm=list(e.params["permutation"])),
    "unstack": _unstack,
}
"""JAX primitives that take several ONNX operations."""
