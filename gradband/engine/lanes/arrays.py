"""Arrays of numbers in a kernel.

A small array is a NumPy array of `Scalar`s: moving its entries costs no instruction. A large one is a
`Lazy` array, a function from an index to an entry, so any number of operations on it become one loop over
its entries. It is stored in memory only if entries would otherwise be computed several times.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from gradband.engine.lanes.writer import DTYPES, Scalar, UnsupportedError, Writer, constant, i

KINDS = {"float32": "f", "int32": "i", "uint32": "u", "bool": "b"}
KINDS |= {"uint16": "u", "uint8": "u", "int16": "i", "int8": "i"}  # in tables
LONGEST, LARGEST = 16, 64  # axis and size up to which arrays are small
UNROLLED = 16  # entries that one turn of a loop computes
CHEAP = 2  # operations up to which entries are computed again rather than stored
CHAINS = 4  # partial sums side by side: in a single one, each addition would wait for the one before

Entry = Any
"""a `Scalar`, or a `Key`"""
Value = Any
"""a NumPy array of entries, or a `Lazy` array"""
Place = Any
"""a position along an axis: a Python integer, or a `Scalar` that is known only when the kernel runs"""
Index = tuple[Place, ...]
Shape = Sequence[int]


class Key:
    """A random key: two words."""

    __slots__ = ("words",)

    def __init__(self, *words: Scalar) -> None:
        self.words = words


class Lazy:
    """An array whose entries are computed where they are needed, at a `cost` in operations.

    `anywhere` says whether lanes may read different entries at once, as they may from memory.
    """

    def __init__(
        self,
        shape: Shape,
        at: Callable[[Index], Entry],
        cost: float = 0,
        anywhere: bool = False,
        slot: Any = None,
    ) -> None:
        self.shape, self.at, self.cost, self.anywhere, self.slot = tuple(shape), at, cost, anywhere, slot
        self.size, self.ndim = math.prod(shape), len(self.shape)


def is_large(shape: Shape) -> bool:
    return max(shape, default=1) > LONGEST or math.prod(shape) > LARGEST


def fill(shape: Shape, entries: Iterable[Entry]) -> np.ndarray:
    """A small array of entries in row-major order."""
    array = np.empty(shape, object)
    flat = array.reshape(-1)
    for place, entry in enumerate(entries):
        flat[place] = entry
    return array


# Places


def number(place: Place) -> Scalar:
    return place if isinstance(place, Scalar) else i(place)


def plus(e: Writer, a: Place, b: Place) -> Place:
    return a + b if isinstance(a, int) and isinstance(b, int) else e.binary("add", number(a), number(b))


def times(e: Writer, a: Place, n: int) -> Place:
    return a * n if isinstance(a, int) else e.binary("mul", a, i(n))


def flat_place(e: Writer, shape: Shape, index: Index) -> Place:
    """The position of an entry in row-major order."""
    place: Place = 0
    for size, own in zip(shape, index, strict=True):
        place = plus(e, times(e, place, size), own)
    return place


def every(shape: Shape) -> Iterable[Index]:
    """All indices, in row-major order."""
    return itertools.product(*map(range, shape))


# Entries


def entry(e: Writer, value: Value, index: Index) -> Entry:
    """An entry at an index that all lanes share; of an array in memory, at any index."""
    if isinstance(value, Lazy):
        return value.at(index)
    if any(isinstance(place, Scalar) for place in index):
        return _kept_small(e, value).at(index)
    return value[index]


def matching(e: Writer, value: Value, index: Index) -> Entry:
    """The entry at another array's index: axes of length 1 are repeated."""
    return entry(e, value, tuple(0 if n == 1 else at for n, at in zip(value.shape, index, strict=False)))


def force(e: Writer, value: Value) -> np.ndarray:
    """A small array as a NumPy array, even if it is lazy."""
    if isinstance(value, np.ndarray):
        return value
    if is_large(value.shape):
        raise UnsupportedError(f"an array of shape {value.shape} in registers")
    return fill(value.shape, map(value.at, every(value.shape)))


def settle(e: Writer, shape: Shape, at: Callable[[Index], Entry], cost: float, uses: int = 1) -> Value:
    """The array with these entries: computed now if small, stored if used more than once, else lazy."""
    if not is_large(shape):
        return fill(shape, map(at, every(shape)))
    value = Lazy(shape, at, cost)
    return keep(e, value) if uses > 1 and cost > CHEAP else value


def for_each(e: Writer, shape: Shape, body: Callable[[Index], None]) -> None:
    """Calls `body(index)` for all indices, with loops over the first axes and the last ones unrolled."""
    axes = len(shape)
    while axes and math.prod(shape[axes - 1 :]) <= UNROLLED:
        axes -= 1

    def inside(axis: int, index: Index) -> None:
        if axis == axes:
            for rest in every(shape[axes:]):
                body((*index, *rest))
            return

        def turn(step: Scalar, carry: list[Scalar]) -> list[Scalar]:
            inside(axis + 1, (*index, step))
            return []

        e.loop(shape[axis], [], turn)

    inside(0, ())


def for_each_of(e: Writer, value: Value, body: Callable[[Index], None]) -> None:
    """Calls `body(index)` for all entries of an array; a small one is in registers, which need no loop."""
    if isinstance(value, Lazy):
        for_each(e, value.shape, body)
        return
    for index in every(value.shape):
        body(index)


def fold(
    e: Writer, count: int, rule: Callable[[Entry, Entry], Entry], at: Callable[[Place], list[Entry]]
) -> list[Entry]:
    """Reduces the entries that `at(step)` gives for the steps 0, …, `count` − 1, each place by itself."""
    found = at(0)
    width = len(found)
    chains = CHAINS if count > LONGEST and width < CHAINS else 1
    turns = count // chains if count > LONGEST else 1
    for chain in range(1, chains):
        found = found + at(chain)
    if turns > 1:

        def turn(step: Scalar, carry: list[Scalar]) -> list[Scalar]:
            base = plus(e, times(e, step, chains), chains)
            new = [x for chain in range(chains) for x in at(plus(e, base, chain))]
            return [rule(a, b) for a, b in zip(carry, new, strict=True)]

        found = e.loop(turns - 1, found, turn)
    total = found[:width]
    for chain in range(1, chains):
        total = [rule(a, b) for a, b in zip(total, found[chain * width :], strict=False)]
    for step in range(turns * chains, count):
        total = [rule(a, b) for a, b in zip(total, at(step), strict=True)]
    return total


# Memory


def constants(e: Writer, value: Any, kind: str) -> Value:
    """An array of constants; a large one is read from memory."""
    value = np.asarray(value)
    if not is_large(value.shape):
        return fill(value.shape, (constant(kind, entry) for entry in value.reshape(-1)))
    if (value == value.flat[0]).all():
        return Lazy(value.shape, lambda index: constant(kind, value.flat[0]))
    words = np.ascontiguousarray(value.astype(np.int32 if kind == "b" else DTYPES[kind])).view(np.int32)
    name, entries = f"@constants{len(e.globals)}", ", ".join(f"i32 {word}" for word in words.reshape(-1))
    e.globals[f"{name} = private constant [{words.size} x i32] [{entries}], align 64"] = None
    return table(e, Scalar("p", False, text=name), value.shape, DTYPES[kind])


def table(e: Writer, base: Scalar, shape: Shape, dtype: Any) -> Lazy:
    """An array in memory that all lanes share; conditions take 4 bytes there."""
    count, kind = math.prod(shape), KINDS[str(np.dtype(dtype))]
    size, stored = 4 if kind == "b" else np.dtype(dtype).itemsize, "i" if kind == "b" else kind
    if count * size >= 2**31:
        raise UnsupportedError("arrays of more than 2 GB")

    def at(index: Index) -> Scalar:
        place = number(flat_place(e, shape, index))
        if size == 4 and not place.wide:
            return e.convert(e.load(base, stored, False, place), kind)
        wanted = e.binary("mul", place, i(size))
        if size == 4:
            return e.convert(e.gather(base, stored, wanted), kind)
        # Gathers read 4 bytes, so the last one begins earlier to stay inside.
        read = e.call("smin", "i", wanted, i(count * size - 4))
        word = e.gather(base, kind, e.widen(read))
        behind = e.binary("mul", e.binary("sub", wanted, read), i(8))
        left = e.shift("shl", word, e.binary("sub", i(32 - 8 * size), behind))
        return e.shift("lshr" if kind == "u" else "ashr", left, constant(kind, 32 - 8 * size))

    return Lazy(shape, at, anywhere=True)


class Slot:
    """A piece of a kernel's memory, reused once nothing refers to this object."""

    def __init__(self, e: Writer, size: int, fresh: bool = False) -> None:
        self.e, self.size = e, size
        spare = e.free.setdefault(size, [])
        if spare and not fresh:
            self.place = spare.pop()
        else:
            self.place, e.scratch = e.scratch, e.scratch + size
        code = f"getelementptr {e.type('i', True)}, ptr %scratch, i64 {self.place}"
        self.base = e.emit("p", False, code, 0)

    def __del__(self) -> None:
        self.e.free[self.size].append(self.place)


def keep(e: Writer, value: Value) -> Lazy:
    """Stores the array in memory, one vector per entry, two per key."""
    if isinstance(value, Lazy) and value.anywhere:
        return value
    kinds = [word.kind for word in words_of(entry(e, value, (0,) * value.ndim))]
    slot = Slot(e, value.size * len(kinds))
    write(e, slot.base, value)
    return memory(e, slot.base, value.shape, kinds, slot)


def words_of(x: Entry) -> tuple[Scalar, ...]:
    return x.words if isinstance(x, Key) else (x,)


def write(e: Writer, base: Scalar, value: Value) -> None:
    """Writes all entries of an array to memory."""

    def body(index: Index) -> None:
        words = words_of(entry(e, value, index))
        place = times(e, flat_place(e, value.shape, index), len(words))
        for part, word in enumerate(words):
            e.store(base, word, number(plus(e, place, part)))

    for_each_of(e, value, body)


def memory(
    e: Writer,
    base: Scalar,
    shape: Shape,
    kinds: Sequence[str],
    slot: Any = None,
    level: int | None = None,
) -> Lazy:
    """An array that is already in memory, one vector per entry and word."""
    # Loads must not move further out than this level: memory was not written there yet.
    base = Scalar("p", False, e.level if level is None else level, base.text)
    mark = e.label("written")

    def word(place: Scalar, kind: str) -> Scalar:
        stored = "i" if kind == "b" else kind
        if not place.wide:
            return e.convert(e.load(base, stored, True, place, mark), kind)
        lane = e.binary("add", e.binary("mul", place, i(e.width)), e.lane)
        return e.convert(e.gather(base, stored, e.binary("mul", lane, i(4)), mark), kind)

    def at(index: Index) -> Entry:
        place = times(e, flat_place(e, shape, index), len(kinds))
        words = [word(number(plus(e, place, part)), kind) for part, kind in enumerate(kinds)]
        return words[0] if len(words) == 1 else Key(*words)

    return Lazy(shape, at, anywhere=True, slot=slot)


def _kept_small(e: Writer, value: np.ndarray) -> Lazy:
    """A small array in memory, written once, in the outermost loop in which its entries are known."""
    entries = value.reshape(-1)
    if isinstance(entries[0], Key):
        return keep(e, value)
    level = max(x.level for x in entries)
    known = e.levels[level].kept
    if id(value) not in known:
        slot = Slot(e, value.size, fresh=True)
        for place, x in enumerate(entries):
            e.store(slot.base, x, i(place), level)
        known[id(value)] = value, memory(e, slot.base, value.shape, [entries[0].kind], slot, level)
    return known[id(value)][1]
