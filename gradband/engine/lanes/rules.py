"""Operations of JAX on arrays: entry by entry, from other places, along an axis, and at computed places."""

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import numpy as np

from gradband.engine.lanes.arrays import (
    CHAINS,
    CHEAP,
    LARGEST,
    LONGEST,
    Entry,
    Index,
    Key,
    Lazy,
    Place,
    Shape,
    Slot,
    Value,
    entry,
    every,
    fill,
    flat_place,
    fold,
    force,
    is_large,
    keep,
    matching,
    memory,
    number,
    plus,
    settle,
    times,
)
from gradband.engine.lanes.entries import (
    COSTS,
    ELEMENTWISE,
    kind_of,
    larger,
    negation,
    select,
    smaller,
    threefry,
)
from gradband.engine.lanes.writer import Scalar, UnsupportedError, Writer, constant, i

LARGEST_MATRIX = 8192  # entries up to which products are faster here than by XLA's libraries
HIDDEN = 99  # the cost of entries that take a loop each


def apply(e: Writer, equation: Any, inputs: list[Value], uses: int) -> list[Value]:
    """The results of an operation."""
    name, given, out = equation.primitive.name, equation.params, equation.outvars[0].aval
    if name in ELEMENTWISE:
        return [_elementwise(e, name, given, inputs, out.shape, uses)]
    if name in MOVED:
        cost = max((x.cost for x in inputs if isinstance(x, Lazy)), default=0)
        found = MOVED[name](e, equation, *inputs)
        return [
            settle(e, v.aval.shape, at, cost, uses) if callable(at) else at
            for v, at in zip(equation.outvars, found if name == "split" else [found], strict=True)
        ]
    if name in REDUCED:
        return [_reduced(e, REDUCED[name], given["axes"], inputs[0], out.shape)]
    if name in RUNNING:
        return [_running(e, REDUCED[RUNNING[name]], given["axis"], given["reverse"], inputs[0])]
    if name in SPECIAL:
        return [settle(e, out.shape, SPECIAL[name](e, equation, inputs), HIDDEN, 2)]
    raise UnsupportedError(f"the operation {name}")


def _elementwise(e: Writer, name: str, given: Any, inputs: list[Value], shape: Shape, uses: int) -> Value:
    rule = partial(ELEMENTWISE[name], e, given)
    if not any(isinstance(x, Lazy) for x in inputs) and not is_large(shape):
        found = np.frompyfunc(rule, len(inputs), 1)(*inputs)
        return found if isinstance(found, np.ndarray) else fill(shape, [found])
    cost = COSTS.get(name, 1) + sum(x.cost for x in inputs if isinstance(x, Lazy))
    return settle(e, shape, lambda index: rule(*(matching(e, x, index) for x in inputs)), cost, uses)


# Moves: functions from an index of the result to an entry

At = Callable[[Index], Entry]


def _iota(e: Writer, equation: Any) -> At:
    axis, kind = equation.params["dimension"], kind_of(equation.outvars[0].aval)
    return lambda index: e.convert(number(index[axis]), kind)


def _broadcast(e: Writer, equation: Any, x: Value) -> At:
    axes = equation.params["broadcast_dimensions"]
    return lambda index: matching(e, x, tuple(index[axis] for axis in axes))


def _reshape(e: Writer, equation: Any, x: Value) -> Any:
    shape = equation.outvars[0].aval.shape
    if isinstance(x, np.ndarray):
        return x.reshape(shape)
    return lambda index: entry(e, x, _same_place(e, shape, x.shape, index))


def _same_place(e: Writer, shape: Shape, other: Shape, index: Index) -> Index:
    """The index in another shape of the entry at the same place in row-major order."""
    own = [(n, place) for n, place in zip(shape, index, strict=True) if n > 1]
    theirs = [n for n in other if n > 1]
    places = [place for _, place in own]
    if [n for n, _ in own] != theirs:  # not only axes of length 1 come or go
        rest = flat_place(e, [n for n, _ in own], tuple(places))
        places = []
        for n in reversed(theirs[1:]):
            rest, place = _divided(e, rest, n)
            places.insert(0, place)
        places.insert(0, rest)
    found = iter(places)
    return tuple(0 if n == 1 else next(found) for n in other)


def _divided(e: Writer, place: Place, n: int) -> tuple[Place, Place]:
    if isinstance(place, int):
        return divmod(place, n)
    return e.binary("div", place, i(n)), e.binary("rem", place, i(n))


def _slice(e: Writer, equation: Any, x: Value) -> At:
    starts, strides = (equation.params[name] for name in ("start_indices", "strides"))
    return _stepped(e, x, list(zip(starts, strides or (1,) * x.ndim, strict=True)))


def _transpose(e: Writer, equation: Any, x: Value) -> At:
    order = np.argsort(equation.params["permutation"]).tolist()
    return lambda index: entry(e, x, tuple(index[axis] for axis in order))


def _reverse(e: Writer, equation: Any, x: Value) -> At:
    axes = equation.params["dimensions"]
    return _stepped(e, x, [(n - 1, -1) if axis in axes else (0, 1) for axis, n in enumerate(x.shape)])


def _stepped(e: Writer, x: Value, axes: list[tuple[int, int]]) -> At:
    """Entries from a start in steps, along each axis."""
    return lambda index: entry(
        e, x, tuple(plus(e, times(e, a, n), s) for a, (s, n) in zip(index, axes, strict=True))
    )


def _tile(e: Writer, equation: Any, x: Value) -> At:
    return lambda index: entry(
        e, x, tuple(_divided(e, a, n)[1] for a, n in zip(index[-x.ndim :], x.shape, strict=True))
    )


def _split(e: Writer, equation: Any, x: Value) -> list[At]:
    axis, sizes = equation.params["axis"], equation.params["sizes"]

    def part(edge: int) -> At:
        return lambda index: entry(e, x, (*index[:axis], plus(e, index[axis], edge), *index[axis + 1 :]))

    return [part(sum(sizes[:j])) for j in range(len(sizes))]


def _stack(e: Writer, equation: Any, *parts: Value) -> At:
    axis = equation.params["axis"]

    def at(index: Index) -> Entry:
        place, rest = index[axis], (*index[:axis], *index[axis + 1 :])
        if isinstance(place, int):
            return entry(e, parts[place], rest)
        return select(e, None, place, *(entry(e, part, rest) for part in parts))

    return at


def _concatenate(e: Writer, equation: Any, *parts: Value) -> At:
    axis = equation.params["dimension"]
    edges = np.cumsum([part.shape[axis] for part in parts]).tolist()

    def at(index: Index) -> Entry:
        place, found = index[axis], None
        for part, edge in reversed(list(zip(parts, edges, strict=True))):
            first = edge - part.shape[axis]
            if first == edge or (isinstance(place, int) and not first <= place < edge):
                continue
            own = _within(e, plus(e, place, -first), part.shape[axis] - 1)
            here = entry(e, part, (*index[:axis], own, *index[axis + 1 :]))
            behind = None if found is None else e.compare("ge", number(place), i(edge))
            found = here if behind is None else select(e, None, behind, here, found)
        return found

    return at


def _pad(e: Writer, equation: Any, x: Value, value: Value) -> At:
    config = equation.params["padding_config"]
    if any(low < 0 or high < 0 or gap for low, high, gap in config):
        raise UnsupportedError("negative padding, or between entries")

    def at(index: Index) -> Entry:
        places = [plus(e, a, -low) for a, (low, _, _) in zip(index, config, strict=True)]
        own = tuple(_within(e, place, n - 1) for place, n in zip(places, x.shape, strict=True))
        same = [e.compare("eq", number(a), number(b)) for a, b in zip(places, own, strict=True)]
        return e.select(reduce(partial(e.binary, "and"), same), entry(e, x, own), value.item())

    return at


def _within(e: Writer, place: Place, last: int) -> Place:
    """The nearest place from 0 to the last."""
    if isinstance(place, int):
        return min(max(place, 0), last)
    return smaller(e, None, larger(e, None, e.convert(place, "i"), i(0)), i(last))


def _wrap(e: Writer, equation: Any, x: Value) -> At:
    if "fry" not in str(equation.params["impl"]):
        raise UnsupportedError(f"keys of {equation.params['impl']}")
    return lambda index: Key(*(entry(e, x, (*index, word)) for word in (0, 1)))


def _unwrap(e: Writer, equation: Any, x: Value) -> At:
    return lambda index: select(e, None, number(index[-1]), *entry(e, x, index[:-1]).words)


MOVED: dict[str, Callable[..., Any]] = {
    "iota": _iota,
    "broadcast_in_dim": _broadcast,
    **dict.fromkeys(("reshape", "squeeze", "expand_dims"), _reshape),
    "slice": _slice,
    "transpose": _transpose,
    "rev": _reverse,
    "tile": _tile,
    "split": _split,
    "stack": _stack,
    "concatenate": _concatenate,
    "pad": _pad,
    "random_wrap": _wrap,
    "random_unwrap": _unwrap,
}


# Along an axis

REDUCED: dict[str, Callable[..., Scalar]] = {
    "reduce_sum": ELEMENTWISE["add"],
    "reduce_prod": ELEMENTWISE["mul"],
    "reduce_max": larger,
    "reduce_min": smaller,
    "reduce_and": ELEMENTWISE["and"],
    "reduce_or": ELEMENTWISE["or"],
}
RUNNING = {"cumsum": "reduce_sum", "cumprod": "reduce_prod", "cummax": "reduce_max", "cummin": "reduce_min"}


def _reduced(e: Writer, rule: Callable[..., Scalar], axes: Any, x: Value, shape: Shape) -> Value:
    lengths = tuple(x.shape[axis] for axis in axes)
    count, both = math.prod(lengths), partial(rule, e, None)

    def term(step: Place, index: Index) -> Scalar:
        inner, outer = iter(_same_place(e, (count,), lengths, (step,))), iter(index)
        return entry(e, x, tuple(next(inner if axis in axes else outer) for axis in range(x.ndim)))

    if is_large(shape):
        return settle(
            e, shape, lambda index: fold(e, count, both, lambda step: [term(step, index)])[0], HIDDEN, 2
        )
    indices = list(every(shape))
    return fill(shape, fold(e, count, both, lambda step: [term(step, index) for index in indices]))


def _running(e: Writer, rule: Callable[..., Scalar], axis: int, reverse: bool, x: Value) -> Value:
    """Running sums, products, maxima or minima along an axis."""
    length, others = x.shape[axis], list(every((*x.shape[:axis], *x.shape[axis + 1 :])))
    if len(others) > LARGEST:
        raise UnsupportedError(f"running sums of {len(others)} rows")
    slot = Slot(e, x.size) if is_large(x.shape) else None
    found = np.empty(x.shape, object)

    def turn(step: Place, before: list[Scalar]) -> list[Scalar]:
        along = plus(e, times(e, step, -1), length - 1) if reverse else step
        places = [(*rest[:axis], along, *rest[axis:]) for rest in others]
        new = [entry(e, x, place) for place in places]
        if before:
            new = [rule(e, None, a, b) for a, b in zip(before, new, strict=True)]
        for place, value in zip(places, new, strict=True):
            if slot is None:
                found[place] = value
            else:
                e.store(slot.base, value, number(flat_place(e, x.shape, place)))
        return new

    total = turn(0, [])
    if slot is None:
        for step in range(1, length):
            total = turn(step, total)
        return found
    e.loop(length - 1, total, lambda step, carry: turn(plus(e, step, 1), carry))
    return memory(e, slot.base, x.shape, [total[0].kind], slot)


def _arg(name: str, e: Writer, equation: Any, inputs: list[Value]) -> At:
    """The first place of the greatest or least entry; NaN counts as that."""
    (axis,), kind, x = equation.params["axes"], kind_of(equation.outvars[0].aval), inputs[0]

    def at(rest: Index) -> Scalar:
        def place(step: Place) -> list[Scalar]:
            return [entry(e, x, (*rest[:axis], step, *rest[axis:])), e.convert(number(step), kind)]

        def better(best: list[Scalar], step: Place) -> list[Scalar]:
            new = place(step)
            found = e.compare(name, new[0], best[0])
            if new[0].kind == "f":
                first_nan = e.binary("and", e.is_nan(new[0]), negation(e, None, e.is_nan(best[0])))
                found = e.binary("or", found, first_nan)
            return [e.select(found, a, b) for a, b in zip(new, best, strict=True)]

        if x.shape[axis] <= LONGEST:
            return reduce(better, range(1, x.shape[axis]), place(0))[1]
        return e.loop(x.shape[axis] - 1, place(0), lambda step, best: better(best, plus(e, step, 1)))[1]

    return at


def _dot_general(e: Writer, equation: Any, inputs: list[Value]) -> At:
    (left, right), (left_batch, right_batch) = equation.params["dimension_numbers"]
    x, y = (keep(e, v) if isinstance(v, Lazy) and v.cost else v for v in inputs)
    if max(x.size, y.size) > LARGEST_MATRIX:
        raise UnsupportedError("products of large matrices")
    lengths = tuple(x.shape[axis] for axis in left)
    count, batch, whole = math.prod(lengths), len(left_batch), equation.outvars[0].aval.dtype != np.float32
    own = x.ndim - len(left)  # axes of the result that come from the left

    def factor(v: Value, summed: Any, batched: Any, step: Place, index: Index, rest: Index) -> Scalar:
        places = dict(zip(summed, _same_place(e, (count,), lengths, (step,)), strict=True))
        places |= dict(zip(batched, index, strict=False))
        others = iter(rest)
        return entry(e, v, tuple(places[a] if a in places else next(others) for a in range(v.ndim)))

    def pair(step: Place, index: Index) -> tuple[Scalar, Scalar]:
        first = factor(x, left, left_batch, step, index, index[batch:own])
        return first, factor(y, right, right_batch, step, index, index[own:])

    def at(index: Index) -> Scalar:
        if count > LARGEST or whole:
            add = partial(e.binary, "add")
            return fold(e, count, add, lambda step: [e.binary("mul", *pair(step, index))])[0]
        sums = [e.binary("mul", *pair(step, index)) for step in range(min(count, CHAINS))]
        for step in range(CHAINS, count):
            sums[step % CHAINS] = e.fma(*pair(step, index), sums[step % CHAINS])
        return reduce(partial(e.binary, "add"), sums)

    return at


# At computed places


def _pick(e: Writer, x: Value, index: Index) -> Entry:
    """An entry at a place that may differ between lanes, and must be inside."""
    if isinstance(x, Lazy):
        return x.at(index)
    if not index:
        return x
    if isinstance(index[0], int):
        return _pick(e, x[index[0]], index[1:])
    return select(e, None, index[0], *(_pick(e, row, index[1:]) for row in x))


def _dynamic_slice(e: Writer, equation: Any, inputs: list[Value]) -> At:
    sizes, x = equation.params["slice_sizes"], inputs[0]
    starts = [force(e, start).item() for start in inputs[1:]]
    starts = [_within(e, s, n - size) for s, n, size in zip(starts, x.shape, sizes, strict=True)]
    # If all lanes read the same entries, no copy in memory is needed.
    shared = not any(isinstance(s, Scalar) and s.wide for s in starts)
    source = keep(e, x) if isinstance(x, Lazy) and (x.cost > CHEAP or not shared) else x
    return lambda index: _pick(e, source, tuple(plus(e, a, s) for a, s in zip(index, starts, strict=True)))


def _gather(e: Writer, equation: Any, inputs: list[Value]) -> At:
    given, (x, places), out = equation.params, inputs, equation.outvars[0].aval
    numbers, sizes = given["dimension_numbers"], given["slice_sizes"]
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    source = keep(e, x) if isinstance(x, Lazy) else x
    batch = [axis for axis in range(len(out.shape)) if axis not in numbers.offset_dims]
    fills = "fill" in str(given["mode"]).lower()

    def at(index: Index) -> Entry:
        own, offsets = (
            tuple(index[axis] for axis in batch),
            iter(index[axis] for axis in numbers.offset_dims),
        )
        found = [0 if axis in dropped else next(offsets) for axis in range(x.ndim)]
        for axis, n in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
            found[axis] = own[n]
        inside = constant("b", True)
        for n, axis in enumerate(numbers.start_index_map):
            start = e.convert(entry(e, places, (*own, n)), "i")
            clipped = _within(e, start, x.shape[axis] - sizes[axis])
            inside = e.binary("and", inside, e.compare("eq", start, clipped))
            found[axis] = plus(e, found[axis], clipped)
        value = _pick(e, source, tuple(found))
        if not fills or isinstance(value, Key):
            return value
        outside = {"f": np.nan, "i": -(2**31), "u": 2**32 - 1, "b": True}[value.kind]
        outside = outside if given["fill_value"] is None else given["fill_value"]
        return e.select(inside, value, constant(value.kind, outside))

    return at


# Random bits, as JAX draws them from keys


def _random(e: Writer, equation: Any, inputs: list[Value]) -> At:
    shape, keys, bits = equation.params["shape"], inputs[0], equation.params.get("bit_width")
    newer = getattr(jax.config, "jax_threefry_partitionable", False)
    if bits not in (None, 32) or not newer:
        raise UnsupportedError(f"random numbers of {bits} bits, or drawn in JAX's older way")

    def at(index: Index) -> Entry:
        counter = e.convert(number(flat_place(e, shape, index[keys.ndim :])), "u")
        words = threefry(e, entry(e, keys, index[: keys.ndim]), (constant("u", 0), counter))
        return Key(*words) if bits is None else e.binary("xor", *words)

    return at


SPECIAL: dict[str, Callable[..., At]] = {
    "argmax": partial(_arg, "gt"),
    "argmin": partial(_arg, "lt"),
    "dot_general": _dot_general,
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
    "random_bits": _random,
    "random_split": _random,
}
