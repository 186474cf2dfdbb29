"""A traced function of one instance as a kernel: written, compiled for this machine, and played on threads.

A kernel plays instances by the vector. Nothing is shared between vectors, so any thread may play any of
them, and results have the same bits.
"""

import contextlib
import ctypes
import gc
import itertools
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any

import jax
import llvmlite.binding as llvm
import numpy as np
from jax.extend import core
from jax.interpreters import partial_eval

from gradband.core import resources
from gradband.core.errors import InputError
from gradband.engine.lanes import store, team
from gradband.engine.lanes.arrays import (
    Index,
    Key,
    Lazy,
    Value,
    entry,
    every,
    fill,
    flat_place,
    for_each,
    is_large,
    number,
    plus,
    table,
)
from gradband.engine.lanes.control import play_closed
from gradband.engine.lanes.entries import kind_of
from gradband.engine.lanes.writer import DTYPES, ENDLESS, MOST_STEPS, STOPPED, Scalar, Writer, i

WIDTH = 32  # lanes: two vectors of 16, so that one computes while the other waits
WIDTH_OF_LOOPS = 16  # where lanes wait for each other, the fewer the better
SOON = 0.05  # seconds that whoever waits may as well play too
AT_ONCE = 0.001  # seconds of a kernel for which to wake a thread of Python would take too long
SHARES = 4  # pieces of work per thread, so that all end at about the same time
SIGNATURE = (
    "define i32 @kernel(ptr %in, ptr %tables, ptr %out, ptr %scratch, ptr %stop, i64 %stride, "
    "i32 %first, i32 %last)"
)


def _compiler() -> tuple[Any, Any]:
    """This machine as LLVM knows it, and what links code for it."""
    return _target(2 if _is_optimised() else 0), _linker()


def _is_optimised() -> bool:
    """Whether code should be fast. Code that runs briefly need not be, as JAX may be told, and is there in
    half the time."""
    return not jax.config.values["jax_disable_most_optimizations"]


@cache
def _target(effort: int) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = machine()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu, features=features, opt=effort, jit=True)


@cache
def _linker() -> Any:
    return llvm.create_lljit_compiler(_target.__wrapped__(2), use_jit_link=False)


def _kept(given: str, make: Callable[[], bytes]) -> bytes:
    """The code for this machine that `make` compiles from what is given, from disk if it is there."""
    return store.stored((given, *machine(), *(() if _is_optimised() else ("not optimised",))), make)


@cache
def machine() -> tuple[str, str]:
    """The name of this processor, and what it can do."""
    features = llvm.get_host_cpu_features().flatten()
    return llvm.get_host_cpu_name(), features + ",-prefer-256-bit"


def is_fit() -> bool:
    """Whether this processor multiplies and adds in one step; otherwise kernels would be slow."""
    features = llvm.get_host_cpu_features()
    return features.get("fma", True)


@cache
def _team() -> team.Team:
    """Threads for kernels that end soon."""
    text = team.code(_compiler()[0].triple.startswith(("x86", "i686")))
    return team.Team(_linked(_kept(text, lambda: _compiled(text)), "lead", "help"))


def _linked(code: bytes, *names: str) -> Any:
    """Object code in memory, with these functions."""
    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name in names:
        library = library.export_symbol(name)
    return library.link(_compiler()[1], f"kernel{next(_numbers)}")


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="lanes")


if hasattr(os, "register_at_fork"):  # a forked process has no threads, and makes some of its own
    os.register_at_fork(after_in_child=_team.cache_clear)
    os.register_at_fork(after_in_child=_threads.cache_clear)


def is_key(aval: Any) -> bool:
    return bool(jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key))


class Program:
    """What is written of a function: its assembly, and the memory that it needs."""

    def __init__(self, traced: Any, width: int) -> None:
        jaxpr, _ = partial_eval.dce_jaxpr(
            traced.jaxpr, [True] * len(traced.jaxpr.outvars), instantiate=True
        )
        e = Writer(width)
        inputs = _operands(e, [v.aval for v in jaxpr.invars[:-1]])
        e.begin_vectors()
        number = e.binary("add", Scalar("i", False, 1, "%instance"), e.lane)
        outputs = play_closed(e, traced.replace(jaxpr=jaxpr), [*inputs, fill((), [number])])
        self.rows = 0
        for value in outputs:
            _give(e, value, self.rows)
            self.rows += value.size
        self.scratch, self.width = e.scratch, width
        self.text = e.end_vectors(SIGNATURE)


def _waits(jaxpr: Any) -> bool:
    """Whether there are loops that end after different numbers of steps."""
    inner = (x for q in jaxpr.eqns for x in jax.tree.leaves(list(q.params.values()), is_leaf=_is_traced))
    found = any(q.primitive.name == "while" for q in jaxpr.eqns)
    return found or any(_waits(getattr(x, "jaxpr", x)) for x in inner if _is_traced(x))


def _is_traced(value: Any) -> bool:
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr)


def _operands(e: Writer, avals: Sequence[Any]) -> list[Value]:
    """Small operands come in one row of words, large ones as pointers."""
    found: list[Value] = []
    word = pointer = 0
    for aval in avals:
        if is_large(aval.shape) and not is_key(aval):
            code = f"getelementptr ptr, ptr %tables, i64 {pointer}"
            at = e.emit("p", False, code, 0)
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

    if isinstance(value, Lazy):
        for_each(e, value.shape, body)
        return
    for index in every(value.shape):
        body(index)


class Kernel:
    """`function(*operands, number)` for many numbers.

    It returns a tuple of None and of arrays that end in an axis of one instance.
    """

    def __init__(
        self, function: Callable[..., Any], operands: tuple[Any, ...], name: str | None = None
    ) -> None:
        """Traces and compiles, unless a kernel of this `name`, which must decide it, is on disk."""
        if name:
            plan, code = _unpacked(_kept(name, lambda: _packed(function, operands)))
        else:
            plan, text = _written(function, operands)
            code = _kept(text, lambda: _compiled(text))
        self.plan, self.rows, self.width = plan, plan["rows"], plan["width"]
        self.pace = math.inf  # seconds per vector, once they are known
        self.code = _linked(code, "kernel")
        pointers = [ctypes.c_void_p] * 5
        call = ctypes.CFUNCTYPE(ctypes.c_int32, *pointers, ctypes.c_int64, ctypes.c_int32, ctypes.c_int32)
        self.call = call(self.code["kernel"])

    @property
    def scratch_bytes(self) -> int:
        """Memory of each thread's own."""
        return 4 * self.plan["scratch"] * self.width

    def __call__(
        self,
        operands: tuple[Any, ...],
        first: int,
        last: int,
        threads: int,
        report: Callable[[float], None] | None = None,
    ) -> Any:
        """The results of the instances `first`, …, `last` − 1; `report` is told the share that is done."""
        words, tables = self._given(operands)
        width, room = self.width, max(1, self.plan["scratch"]) * self.width
        start, end = first // width, -(-last // width)
        out = np.empty((self.rows, (end - start) * width), np.uint32)
        stop = np.zeros(1, np.int32)
        pointers = np.array([t.ctypes.data for t in tables] or [0], np.uint64)
        shift = out.ctypes.data - 4 * start * width  # kernels count vectors from instance 0
        given = words.ctypes.data, pointers.ctypes.data, shift

        def part(edges: tuple[int, int]) -> int:
            return self.call(*given, _scratch(room).ctypes.data, stop.ctypes.data, out.shape[1], *edges)

        count = max(1, min(threads, end - start))
        expected = self.pace * (end - start) / count
        code: int | None = None
        began = time.perf_counter()
        if expected < AT_ONCE and count > 1:
            more = _scratch(room * count).ctypes.data, 4 * room, stop.ctypes.data, out.shape[1]
            code = _team().play(self.code["kernel"], (*given, *more), (start, end), count)
        if code is None:
            here = expected < SOON
            size = -(-(end - start) // (count if here else count * SHARES))
            pieces = [(a, min(a + size, end)) for a in range(start, end, size)]
            self._play(part, pieces, here, stop, report)
        else:
            _check(code)
            if report:
                report(1.0)
        self.pace = (time.perf_counter() - began) * count / (end - start)
        return self._taken(out[:, first - start * width : last - start * width])

    def _play(
        self,
        part: Callable[[tuple[int, int]], int],
        pieces: list[tuple[int, int]],
        here: bool,
        stop: np.ndarray,
        report: Callable[[float], None] | None,
    ) -> None:
        """Plays all pieces, the first one `here` if that ends soon; an interruption of whoever waits ends
        them within a round."""
        elsewhere = pieces[1:] if here else pieces
        waiting: list[Future[int]] = [
            _threads(resources.cores()).submit(part, piece) for piece in elsewhere
        ]
        try:
            results = ([part(pieces[0])] if here else []), (future.result() for future in waiting)
            for done, result in enumerate(itertools.chain(*results), 1):
                _check(result)
                if report:
                    report(done / len(pieces))
        except BaseException:
            stop[0] = STOPPED
            for future in waiting:
                future.cancel()
            wait(waiting)
            raise

    def _given(self, operands: tuple[Any, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
        """The operands' words in one row, and arrays to point to."""
        words, tables = [np.zeros(1, np.uint32)[:0]], []
        for leaf, (dtype, large) in zip(jax.tree.leaves(operands), self.plan["operands"], strict=True):
            if large:
                tables.append(np.ascontiguousarray(np.asarray(leaf).astype(dtype, copy=False)))
            else:
                words.append(_words_of(leaf, dtype))
        return np.concatenate(words), tables

    def _taken(self, out: np.ndarray) -> Any:
        """The rows of words as results."""
        found, row = list[Any](), 0
        for result in self.plan["results"]:
            if result is None:
                found.append(None)
                continue
            shape, kind = result
            count = math.prod(shape)
            piece = np.ascontiguousarray(out[row : row + count])
            piece = piece.view(np.int32).astype(bool) if kind == "b" else piece.view(DTYPES[kind])
            found.append(piece.reshape(*shape[:-1], -1))
            row += count
        return tuple(found)


def _check(code: int) -> None:
    """Raises an error if a kernel returned that a loop did not end."""
    if code == ENDLESS:
        raise InputError(f"a loop in a policy, a prior or a reward did not end within {MOST_STEPS} steps")


Plan = dict[str, Any]
"""how to call a kernel, as JSON can hold it: the types of its operands and results, and its memory"""


def _written(function: Callable[..., Any], operands: tuple[Any, ...]) -> tuple[Plan, str]:
    """How to call a kernel, and its assembly, which would else depend on when garbage is collected."""
    with _uncollected():
        return _write(function, operands)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Until its end nothing is collected: pieces of memory would be free again at moments of their own."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _write(function: Callable[..., Any], operands: tuple[Any, ...]) -> tuple[Plan, str]:
    traced, results = jax.make_jaxpr(function, return_shape=True)(*operands, np.int32(0))
    program = Program(traced, WIDTH_OF_LOOPS if _waits(traced.jaxpr) else WIDTH)
    plan = {
        "rows": program.rows,
        "scratch": program.scratch,
        "width": program.width,
        "operands": [_stored(v.aval) for v in traced.jaxpr.invars[:-1]],
        "results": [None if x is None else (x.shape, kind_of(x)) for x in results],
    }
    return plan, program.text


def _stored(aval: Any) -> tuple[str | None, bool]:
    """The type that an operand has in memory, None for a key, and whether it is large."""
    if is_key(aval):
        return None, False
    large, kind = is_large(aval.shape), kind_of(aval)
    return np.dtype(np.int32 if kind == "b" else aval.dtype if large else DTYPES[kind]).name, large


def _packed(function: Callable[..., Any], operands: tuple[Any, ...]) -> bytes:
    """A plan in the first line, and object code."""
    plan, text = _written(function, operands)
    return json.dumps(plan).encode() + b"\n" + _compiled(text)


def _unpacked(packed: bytes) -> tuple[Plan, bytes]:
    plan, _, code = packed.partition(b"\n")
    return json.loads(plan), code


def _compiled(text: str) -> bytes:
    """Assembly as object code. One pass drops what is not needed; more of them made code slower."""
    target, _ = _compiler()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = target.triple, str(target.target_data)
    passes = llvm.create_new_module_pass_manager()
    passes.add_aggressive_dce_pass()
    passes.run(module, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2)))
    return bytes(target.emit_object(module))


_numbers = itertools.count()  # linkers want a name for each
_own = threading.local()


def _scratch(words: int) -> np.ndarray:
    """Memory of a thread's own, kept for the next kernel."""
    memory = getattr(_own, "memory", None)
    if memory is None or memory.size < words:
        memory = _own.memory = np.empty(words, np.uint32)
    return memory


_words: dict[int, tuple[Any, str | None, np.ndarray]] = {}


def _words_of(leaf: Any, dtype: str | None) -> np.ndarray:
    """The words of a small operand, or of a key if it has no type.

    JAX takes longer to tell them than a kernel to run, so those of its last arrays, which never change,
    are kept.
    """
    fixed = isinstance(leaf, jax.Array)
    found = _words.get(id(leaf)) if fixed else None
    if found is not None and found[0] is leaf and found[1] == dtype:
        return found[2]
    data = jax.random.key_data(leaf) if dtype is None else leaf
    words = np.ascontiguousarray(np.asarray(data, dtype)).reshape(-1).view(np.uint32)
    if fixed:
        if len(_words) > 64:
            _words.clear()
        _words[id(leaf)] = leaf, dtype, words
    return words
