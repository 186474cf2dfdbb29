"""A policy as an ONNX model, for runtimes that know nothing of Python.

The model is one step: (state, arm, reward) → (next state, probabilities). It comes from the policy's own
JAX functions: these are traced, and each primitive operation is written as ONNX says it.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband._version import __version__
from gradband.core import jax_setup as jax_setup
from gradband.core.arrays import leaf_names
from gradband.core.errors import InputError
from gradband.core.files import write_atomically
from gradband.policies.policy_file import Learned

if TYPE_CHECKING:
    import onnx

OPSET, IR = 18, 9  # of 2023, which runtimes have long known


def write(model: "onnx.ModelProto", path: str | Path) -> None:
    """Writes a model to a file."""
    write_atomically(Path(path), lambda target: target.write_bytes(model.SerializeToString()))


def as_onnx(learned: Learned) -> "onnx.ModelProto":
    """The model. Its inputs are the state's arrays, an `arm` and its `reward`; its outputs are the arrays
    after that, named `next_…`, and `probabilities` for the coming round. With an arm of −1 the state stays
    as it is. The first state is all zeros; if a policy of your own has another, it is in the model's
    metadata as `first_state`, a JSON object of lists by the arrays' names.
    """
    try:
        import onnx
    except ImportError:
        raise InputError("ONNX needs a package of that name: pip install 'gradband[onnx]'") from None
    policy = learned.policy
    if policy.latents > 1:
        raise InputError(f"{policy.name} draws how it will play before the first round, which ONNX can't")
    params = policy.folded(learned.params)
    first = policy.begin(params, jnp.int32(0))
    paths, tree = jax.tree_util.tree_flatten_with_path(first)
    names = _names([path for path, _ in paths])
    leaves = [np.asarray(leaf) for _, leaf in paths]
    starts = {name: leaf.tolist() for name, leaf in zip(names, leaves, strict=True) if leaf.any()}
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise InputError(f"the first state of {policy.name} holds infinite numbers, which JSON can't hold")

    def step(*inputs: Array) -> tuple[Array, ...]:
        *given, arm, reward = inputs
        state = jax.tree.unflatten(tree, given)
        after = policy.update(params, state, jnp.maximum(arm, 0), reward)
        after = jax.tree.map(lambda new, old: jnp.where(arm < 0, old, new), after, state)
        return *jax.tree.leaves(after), policy.next_probabilities(params, after)

    try:
        traced = jax.make_jaxpr(step)(*leaves, np.int32(0), np.float32(0))
    except NotImplementedError:
        raise InputError(f"{policy.name} draws samples, for which ONNX has no operation") from None
    outputs = [*(f"next_{name}" for name in names), "probabilities"]
    graph = Graph(onnx, policy.name).traced(traced, [*names, "arm", "reward"], outputs)
    model = onnx.helper.make_model(
        graph,
        producer_name="gradband",
        producer_version=__version__,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR,
    )
    about = {
        "policy": policy.name,
        "arms": policy.arms,
        "horizon": policy.horizon,
        "rewards": "0 or 1" if policy.binary else "in [0, 1]" if policy.unit else "any",
        "settings": json.dumps(policy.settings()),
        **({"first_state": json.dumps(starts)} if starts else {}),
    }
    onnx.helper.set_model_props(model, {key: str(value) for key, value in about.items()})
    onnx.checker.check_model(model, full_check=True)
    return model


def _names(paths: list[Any]) -> list[str]:
    """What a model calls the arrays of a state: as a player's state does.

    >>> tree = jax.tree_util.tree_flatten_with_path({"a": {"x": 1}, "b": {"x": 2}})[0]
    >>> _names([path for path, _ in tree])
    ['a_x', 'b_x']
    """
    return leaf_names([tuple(re.findall(r"\w+", jax.tree_util.keystr(path))) for path in paths])


_PAIRS = """
    abs Abs, acos Acos, add Add, and And, asin Asin, atan Atan, ceil Ceil, copy Identity, cos Cos,
    cosh Cosh, div Div, eq Equal, erf Erf, exp Exp, floor Floor, ge GreaterOrEqual, gt Greater,
    le LessOrEqual, log Log, logistic Sigmoid, lt Less, max Max, min Min, mul Mul, name Identity, neg Neg,
    not Not, or Or, pow Pow, sign Sign, sin Sin, sinh Sinh, sqrt Sqrt, stop_gradient Identity, sub Sub,
    tan Tan, tanh Tanh, xor Xor
"""
SAME: dict[str, str] = dict(zip(*[iter(_PAIRS.replace(",", " ").split())] * 2, strict=True))
"""Primitives of JAX that are one operation of ONNX."""


class Graph:
    """An ONNX graph that grows by JAX's equations."""

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
            dtype = np.dtype(np.int64) if name == "arm" else aval.dtype  # ONNX likes its indices long
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
        """Writes all equations, and returns the names of their results."""
        names: dict[Any, str] = dict(zip(jaxpr.invars, inputs, strict=True))
        names |= {var: self.constant(value) for var, value in zip(jaxpr.constvars, consts, strict=True)}

        def of(var: Any) -> str:
            return self.constant(np.asarray(var.val, var.aval.dtype)) if hasattr(var, "val") else names[var]

        for equation in jaxpr.eqns:
            results = self.written(equation, [of(var) for var in equation.invars])
            names |= dict(zip(equation.outvars, results, strict=True))
        return [of(var) for var in jaxpr.outvars]

    def written(self, equation: Any, inputs: list[str]) -> list[str]:
        """Writes one equation, and returns the names of its results."""
        name = equation.primitive.name
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        if inner is not None:
            return self.inline(inner.jaxpr, inner.consts, inputs)
        if name in SAME:
            return [self.op(SAME[name], *inputs)]
        rule = RULES.get(name)
        if rule is None:
            raise InputError(f"{self.name} has an operation that ONNX has not: {name}")
        found = rule(self, equation, *inputs)
        return found if isinstance(found, list) else [found]

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node with one result, and returns its name."""
        result = f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [result], **attributes))
        return result

    def rename(self, result: str, output: str) -> None:
        """Calls a result by its name outside; no node for that, which some runtimes optimise wrongly."""
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
        """A constant of indices, as ONNX takes axes and shapes."""
        return self.constant(np.array(values, np.int64))

    def cast(self, x: str, dtype: Any) -> str:
        return self.op("Cast", x, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _reduced(kind: str) -> Callable[..., str]:
    def rule(graph: Graph, equation: Any, x: str) -> str:
        return graph.op(kind, x, graph.whole(*equation.params["axes"]), keepdims=0)

    return rule


def _all_or_any(kind: str) -> Callable[..., str]:
    def rule(graph: Graph, equation: Any, x: str) -> str:
        return graph.cast(_reduced(kind)(graph, equation, graph.cast(x, np.int32)), bool)

    return rule


def _index_of(kind: str) -> Callable[..., str]:
    def rule(graph: Graph, equation: Any, x: str) -> str:
        (axis,) = equation.params["axes"]
        if equation.invars[0].aval.dtype == bool:
            x = graph.cast(x, np.int32)
        return graph.cast(graph.op(kind, x, axis=axis, keepdims=0), equation.params["index_dtype"])

    return rule


def _with_one(kind: str, first: str = "") -> Callable[..., str]:
    """An operation on x and 1, or on 1 and what another operation makes of x."""

    def rule(graph: Graph, equation: Any, x: str) -> str:
        one = graph.constant(np.ones((), equation.invars[0].aval.dtype))
        return graph.op(kind, graph.op(first, x), one) if first else graph.op(kind, x, one)

    return rule


def _broadcast(graph: Graph, equation: Any, x: str) -> str:
    shape, kept = equation.params["shape"], equation.params["broadcast_dimensions"]
    sizes = dict(zip(kept, equation.invars[0].aval.shape, strict=True))
    aligned = graph.op("Reshape", x, graph.whole(*(sizes.get(axis, 1) for axis in range(len(shape)))))
    return graph.op("Expand", aligned, graph.whole(*shape))


def _reshape(graph: Graph, equation: Any, x: str) -> str:
    return graph.op("Reshape", x, graph.whole(*equation.outvars[0].aval.shape))


def _iota(graph: Graph, equation: Any) -> str:
    aval, axis = equation.outvars[0].aval, equation.params["dimension"]
    shape = [size if i == axis else 1 for i, size in enumerate(aval.shape)]
    counting = np.arange(aval.shape[axis], dtype=aval.dtype).reshape(shape)
    return graph.constant(np.broadcast_to(counting, aval.shape))


def _integer_pow(graph: Graph, equation: Any, x: str) -> str:
    exponent = np.asarray(equation.params["y"], equation.invars[0].aval.dtype)
    return graph.op("Pow", x, graph.constant(exponent))


def _product(graph: Graph, equation: Any, x: str, y: str) -> str:
    (of_x, of_y), batched = equation.params["dimension_numbers"]
    left, right = (var.aval for var in equation.invars)
    if batched != ((), ()) or len(of_x) != 1 or right.ndim > 2:
        raise InputError(f"{graph.name} has a product of matrices that is not written for ONNX")
    rows = [axis for axis in range(left.ndim) if axis not in of_x]
    if of_x != (left.ndim - 1,):
        x = graph.op("Transpose", x, perm=[*rows, *of_x])
    if of_y != (0,):
        y = graph.op("Transpose", y, perm=[1, 0])
    return graph.op("MatMul", x, y)


def _slice(graph: Graph, equation: Any, x: str) -> str:
    starts, ends = equation.params["start_indices"], equation.params["limit_indices"]
    steps = equation.params["strides"] or (1,) * len(starts)
    axes = range(len(starts))
    return graph.op("Slice", x, *(graph.whole(*values) for values in (starts, ends, axes, steps)))


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
    rest = len(shape) - len(places)
    ends = tuple(range(equation.outvars[0].aval.ndim - rest, equation.outvars[0].aval.ndim))
    sizes = (1,) * len(places) + tuple(shape[len(places) :])
    if (numbers.collapsed_slice_dims, numbers.start_index_map, numbers.offset_dims) != (
        places,
        places,
        ends,
    ) or tuple(equation.params["slice_sizes"]) != sizes:
        raise InputError(f"{graph.name} looks up a table in a way that is not written for ONNX")
    return graph.op("GatherND", x, graph.cast(index, np.int64))


def _scatter(reduction: str) -> Callable[..., str]:
    def rule(graph: Graph, equation: Any, x: str, index: str, updates: str) -> str:
        numbers, given = equation.params["dimension_numbers"], equation.invars[2].aval
        places = tuple(range(len(numbers.scatter_dims_to_operand_dims)))
        rest = equation.invars[0].aval.ndim - len(places)
        ends = tuple(range(given.ndim - rest, given.ndim))
        found = (
            numbers.inserted_window_dims,
            numbers.scatter_dims_to_operand_dims,
            numbers.update_window_dims,
        )
        if found != (places, places, ends):
            raise InputError(f"{graph.name} changes a table in a way that is not written for ONNX")
        return graph.op("ScatterND", x, graph.cast(index, np.int64), updates, reduction=reduction)

    return rule


def _reversed(graph: Graph, equation: Any, x: str) -> str:
    axes = equation.params["dimensions"]
    far = np.iinfo(np.int64)
    starts, ends, steps = ((value,) * len(axes) for value in (far.max, far.min, -1))
    return graph.op("Slice", x, *(graph.whole(*values) for values in (starts, ends, axes, steps)))


def _stacked(graph: Graph, equation: Any, *inputs: str) -> str:
    axis = equation.params["axis"]
    lifted = [graph.op("Unsqueeze", x, graph.whole(axis)) for x in inputs]
    return graph.op("Concat", *lifted, axis=axis)


def _unstacked(graph: Graph, equation: Any, x: str) -> list[str]:
    axis = equation.params["axis"]
    return [
        graph.op("Gather", x, graph.constant(np.int64(i)), axis=axis) for i in range(len(equation.outvars))
    ]


def _split(graph: Graph, equation: Any, x: str) -> list[str]:
    axis, ends = graph.whole(equation.params["axis"]), np.cumsum(equation.params["sizes"])
    starts = [0, *ends[:-1]]
    return [
        graph.op("Slice", x, graph.whole(start), graph.whole(end), axis)
        for start, end in zip(starts, ends, strict=True)
    ]


def _log1p(graph: Graph, equation: Any, x: str) -> str:
    return graph.op("Log", _with_one("Add")(graph, equation, x))


def _is_finite(graph: Graph, equation: Any, x: str) -> str:
    return graph.op("Not", graph.op("Or", graph.op("IsInf", x), graph.op("IsNaN", x)))


RULES: dict[str, Callable[..., str | list[str]]] = {
    "argmax": _index_of("ArgMax"),
    "argmin": _index_of("ArgMin"),
    "broadcast_in_dim": _broadcast,
    "clamp": lambda g, e, low, x, high: g.op("Min", g.op("Max", x, low), high),
    "concatenate": lambda g, e, *x: g.op("Concat", *x, axis=e.params["dimension"]),
    "convert_element_type": lambda g, e, x: g.cast(x, e.params["new_dtype"]),
    "cumsum": lambda g, e, x: g.op(
        "CumSum", x, g.constant(np.int64(e.params["axis"])), reverse=int(e.params["reverse"])
    ),
    "dot_general": _product,
    "dynamic_slice": _dynamic_slice,
    "expm1": _with_one("Sub", "Exp"),
    "gather": _gather,
    "integer_pow": _integer_pow,
    "iota": _iota,
    "is_finite": _is_finite,
    "log1p": _log1p,
    "ne": lambda g, e, x, y: g.op("Not", g.op("Equal", x, y)),
    "reduce_and": _all_or_any("ReduceMin"),
    "reduce_max": _reduced("ReduceMax"),
    "reduce_min": _reduced("ReduceMin"),
    "reduce_or": _all_or_any("ReduceMax"),
    "reduce_prod": _reduced("ReduceProd"),
    "reduce_sum": _reduced("ReduceSum"),
    "rem": lambda g, e, x, y: g.op("Mod", x, y, fmod=1),
    "reshape": _reshape,
    "rev": _reversed,
    "rsqrt": lambda g, e, x: g.op("Reciprocal", g.op("Sqrt", x)),
    "scatter": _scatter("none"),
    "scatter-add": _scatter("add"),
    "select_n": lambda g, e, which, no, yes: g.op("Where", which, yes, no),
    "slice": _slice,
    "split": _split,  # what JAX before 0.10 unstacks by
    "square": lambda g, e, x: g.op("Mul", x, x),
    "squeeze": _reshape,
    "stack": _stacked,
    "transpose": lambda g, e, x: g.op("Transpose", x, perm=list(e.params["permutation"])),
    "unstack": _unstacked,
}
"""Primitives of JAX that take a few operations of ONNX."""
