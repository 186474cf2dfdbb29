"""A traced function of one instance as a program: the assembly of a kernel, and how to call it."""

import contextlib
import gc
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core
from jax.interpreters import partial_eval

from gradband.engine.lanes.arrays import (
    LARGEST,
    Index,
    Key,
    Value,
    entry,
    fill,
    flat_place,
    for_each_of,
    is_large,
    number,
    plus,
    table,
)
from gradband.engine.lanes.control import FORMULAS, play_closed
from gradband.engine.lanes.entries import kind_of
from gradband.engine.lanes.writer import DTYPES, Scalar, Writer, i

WIDTHS = {2200: 64, 10_000: 32, math.inf: 16}
"""lanes by the size of a function: the more there are, the less an instruction waits for the one before,
and the fewer numbers of each lane fit into registers"""
SIZE_OF_FORMULA = 1000  # with loops of its own
SIGNATURE = (
    "define i32 @kernel(ptr %in, ptr %tables, ptr %out, ptr %scratch, ptr %stop, i64 %stride, "
    "i32 %first, i32 %last) alignstack(64)"  # vectors on the stack do not cross cache lines
)
Plan = dict[str, Any]
"""how to call a kernel, as JSON can hold it: `rows` of results, vectors of `scratch` memory, `width`,
`operands` as (type or None for a key, shape, whether it is large), `results` as None or (shape, kind)"""


def written(function: Callable[..., Any], operands: tuple[Any, ...]) -> tuple[Plan, str]:
    """How to call the kernel of `function(*operands, number)`, and its assembly."""
    with _uncollected():
        traced, results = jax.make_jaxpr(function, return_shape=True)(*operands, np.int32(0))
        return _written(traced, results)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Stops garbage collection: pieces of a kernel's memory would be free again at random moments, and its
    assembly would depend on them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _written(traced: Any, results: Sequence[Any]) -> tuple[Plan, str]:
    jaxpr, _ = partial_eval.dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars), instantiate=True)
    e = Writer(_width(jaxpr))
    inputs = _operands(e, [v.aval for v in jaxpr.invars[:-1]])
    e.begin_vectors()
    instance = e.binary("add", Scalar("i", False, 1, "%instance"), e.lane)
    outputs = play_closed(e, traced.replace(jaxpr=jaxpr), [*inputs, fill((), [instance])])
    rows = 0
    for value in outputs:
        _give(e, value, rows)
        rows += value.size
    plan = {
        "rows": rows,
        "scratch": e.scratch,
        "width": e.width,
        "operands": [_stored(v.aval) for v in jaxpr.invars[:-1]],
        "results": [None if x is None else (x.shape, kind_of(x)) for x in results],
    }
    return plan, e.end_vectors(SIGNATURE)


# How many lanes


def _width(jaxpr: Any) -> int:
    size = _size(jaxpr)
    return next(width for most, width in WIDTHS.items() if size <= most)


def _inside(equation: Any) -> list[Any]:
    """The functions that an operation plays, such as the body of a loop."""
    parameters = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_traced)
    return [getattr(x, "jaxpr", x) for x in parameters if _is_traced(x)]


def _is_traced(value: Any) -> bool:
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr)


def _size(jaxpr: Any) -> int:
    """About how many entries are written."""
    total = 0
    for equation in jaxpr.eqns:
        inside, name = _inside(equation), equation.primitive.name
        entries = max((math.prod(v.aval.shape) for v in equation.outvars), default=0)
        own = min(entries, LARGEST) * (SIZE_OF_FORMULA if name in FORMULAS else 1)
        total += sum(map(_size, inside)) if inside else own
    return total


# Operands and results


def is_key(aval: Any) -> bool:
    return bool(jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key))


def _stored(aval: Any) -> tuple[str | None, tuple[int, ...], bool]:
    """The type of an operand in memory, None for a key, its shape, and whether it is large."""
    if is_key(aval):
        return None, aval.shape, False
    large, kind = is_large(aval.shape), kind_of(aval)
    dtype = np.dtype(np.int32 if kind == "b" else aval.dtype if large else DTYPES[kind])
    return dtype.name, aval.shape, large


def _operands(e: Writer, avals: Sequence[Any]) -> list[Value]:
    """Small operands come in one row of words, large ones as pointers."""
    found: list[Value] = []
    word = pointer = 0
    for aval in avals:
        if is_large(aval.shape) and not is_key(aval):
            at = e.emit("p", False, f"getelementptr ptr, ptr %tables, i64 {pointer}", 0)
            base = e.emit("p", False, f"load ptr, ptr {at.text}, align 8", 0)
            found.append(table(e, base, aval.shape, aval.dtype))
            pointer += 1
            continue
        count, kind = math.prod(aval.shape), "u" if is_key(aval) else kind_of(aval)
        words = [_word(e, kind, word + j) for j in range(count * (2 if is_key(aval) else 1))]
        pairs = zip(words[::2], words[1::2], strict=True) if is_key(aval) else ()
        found.append(fill(aval.shape, (Key(*pair) for pair in pairs) if is_key(aval) else words))
        word += len(words)
    return found


def _word(e: Writer, kind: str, place: int) -> Scalar:
    stored = "i" if kind == "b" else kind
    return e.convert(e.load(Scalar("p", False, text="%in"), stored, False, i(place)), kind)


def _give(e: Writer, value: Value, first: int) -> None:
    """Writes a result, a row for each of its entries."""

    def body(index: Index) -> None:
        x = entry(e, value, index)
        x = e.convert(x, "i") if x.kind == "b" else x
        e.store_row(x, number(plus(e, flat_place(e, value.shape, index), first)))

    for_each_of(e, value, body)
