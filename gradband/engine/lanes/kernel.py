"""A kernel: plays the instances of a program, on any number of threads.

Instances are played by the vector. Nothing is shared between vectors, so any thread may play any of them,
and results have the same bits.
"""

import ctypes
import itertools
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any

import jax
import numpy as np

from gradband.core import resources
from gradband.core.errors import InputError
from gradband.engine.lanes import compiler, team
from gradband.engine.lanes.program import Plan, written
from gradband.engine.lanes.writer import DTYPES, ENDLESS, MOST_STEPS, STOPPED

SOON = 0.05  # seconds: the calling thread plays along in kernels that end sooner
AT_ONCE = 0.001  # seconds of a kernel for which waking one of Python's threads would take too long
SHARES = 4  # pieces of work per thread, so that all end at about the same time
LINE = 64  # bytes of a cache line
Report = Callable[[float], None] | None


class Kernel:
    """Plays `function(*operands, number)` for many numbers.

    The function returns a tuple of None and of arrays that end in an axis of one instance.
    """

    def __init__(
        self, function: Callable[..., Any], operands: tuple[Any, ...], name: str | None = None
    ) -> None:
        """Traces and compiles, unless a kernel of this `name`, which must decide it, is on disk."""
        if name:
            plan, code = _unpacked(compiler.kept(name, lambda: _packed(function, operands)))
        else:
            plan, text = written(function, operands)
            code = compiler.kept(text, lambda: compiler.compiled(text))
        self.plan, self.rows, self.width = plan, plan["rows"], plan["width"]
        self.scratch_bytes = 4 * self.width * max(1, plan["scratch"])  # of each thread
        self.pace = math.inf  # seconds per vector, once they are known
        self.code = compiler.linked(code, "kernel")
        pointers = [ctypes.c_void_p] * 5
        call = ctypes.CFUNCTYPE(ctypes.c_int32, *pointers, ctypes.c_int64, ctypes.c_int32, ctypes.c_int32)
        self.address = self.code["kernel"]
        self.call = call(self.address)
        self.results = list(_places(plan))
        self._spare: list[_Inputs] = []

    def __call__(
        self, operands: tuple[Any, ...], first: int, last: int, threads: int, report: Report = None
    ) -> Any:
        """The results of instances `first`, …, `last` − 1; `report` is told the share that is done."""
        try:
            inputs = self._spare.pop()
        except IndexError:
            inputs = _Inputs(self.plan)
        inputs.take(operands)
        start, end = first // self.width, -(-last // self.width)
        out = np.empty((self.rows, (end - start) * self.width), np.uint32)
        shift = _address(out) - 4 * start * self.width  # kernels count vectors from instance 0
        given, stride, vectors = (*inputs.addresses, shift), out.shape[1], (start, end)
        count = max(1, min(threads, end - start))
        began = time.perf_counter()
        code: int | None = None
        if count > 1 and self.pace * (end - start) < AT_ONCE * count:
            memory = _scratch(self.scratch_bytes * count), self.scratch_bytes
            code = _team().play(self.address, (*given, *memory, inputs.stop_at, stride), vectors, count)
        if code is None:
            self._play(given, stride, vectors, inputs, count, report)
        else:
            _check(code)
            if report:
                report(1.0)
        self.pace = (time.perf_counter() - began) * count / (end - start)
        inputs.tables.clear()
        self._spare.append(inputs)
        return self._taken(out, first - start * self.width, last - start * self.width)

    def _play(
        self,
        given: tuple[int, ...],
        stride: int,
        vectors: tuple[int, int],
        inputs: "_Inputs",
        count: int,
        report: Report,
    ) -> None:
        """Plays all vectors in pieces, the first of them here if that ends soon.

        An interruption of the calling thread stops all pieces within a round.
        """

        def part(first: int, last: int) -> int:
            return self.call(*given, _scratch(self.scratch_bytes), inputs.stop_at, stride, first, last)

        start, end = vectors
        here = self.pace * (end - start) / count < SOON
        size = -(-(end - start) // (count if here else count * SHARES))
        pieces = [(a, min(a + size, end)) for a in range(start, end, size)]
        waiting: list[Future[int]] = [
            _threads(resources.cores()).submit(part, *piece) for piece in pieces[1 if here else 0 :]
        ]
        try:
            results = ([part(*pieces[0])] if here else []), (future.result() for future in waiting)
            for done, result in enumerate(itertools.chain(*results), 1):
                _check(result)
                if report:
                    report(done / len(pieces))
        except BaseException:
            inputs.stop[0] = STOPPED
            for future in waiting:
                future.cancel()
            wait(waiting)
            raise

    def _taken(self, out: np.ndarray, first: int, last: int) -> Any:
        """The rows of words as results."""
        found: list[Any] = []
        for place in self.results:
            if place is None:
                found.append(None)
                continue
            rows, shape, kind = place
            piece = out[rows, first:last].reshape(*shape, last - first)
            found.append(piece.view(np.int32).astype(bool) if kind == "b" else piece.view(DTYPES[kind]))
        return tuple(found)


def _places(plan: Plan) -> Iterator[tuple[slice, tuple[int, ...], str] | None]:
    """The rows of each result, its shape without the axis of instances, and its kind."""
    row = 0
    for result in plan["results"]:
        if result is None:
            yield None
            continue
        shape, kind = result
        count = math.prod(shape)
        yield slice(row, row + count), tuple(shape[:-1]), kind
        row += count


def _check(code: int) -> None:
    """Raises an error if a kernel returned that a loop did not end."""
    if code == ENDLESS:
        raise InputError(f"a loop in a policy, a prior or a reward did not end within {MOST_STEPS} steps")


def _packed(function: Callable[..., Any], operands: tuple[Any, ...]) -> bytes:
    """A plan in the first line, and object code."""
    plan, text = written(function, operands)
    return json.dumps(plan).encode() + b"\n" + compiler.compiled(text)


def _unpacked(packed: bytes) -> tuple[Plan, bytes]:
    plan, _, code = packed.partition(b"\n")
    return json.loads(plan), code


# Memory


class _Inputs:
    """The operands of a call as a kernel reads them: small ones in a row of words, large ones by address.

    They are kept for the next call, and what has not changed since is not read again: to read JAX's arrays
    may take longer than to run a kernel.
    """

    def __init__(self, plan: Plan) -> None:
        edges = [0]
        for dtype, shape, large in plan["operands"]:
            edges.append(edges[-1] + (0 if large else math.prod(shape) * (1 if dtype else 2)))
        words, self.stop = np.zeros(max(1, edges[-1]), np.uint32), np.zeros(1, np.int32)
        self.types = [(dtype, large) for dtype, _, large in plan["operands"]]
        count = sum(large for *_, large in plan["operands"])
        self.pointers = np.zeros(max(1, count), np.uint64)
        self.tables: list[np.ndarray] = []  # what they point to
        self.places = [words[a:b] for a, b in itertools.pairwise(edges)]
        for n, (dtype, shape, large) in enumerate(plan["operands"]):
            if dtype and not large:
                self.places[n] = self.places[n].view(dtype).reshape(shape)
        self.addresses, self.stop_at = (_address(words), _address(self.pointers)), _address(self.stop)
        self.known: dict[int, tuple[Any, int]] = {}  # what was read last, if it never changes

    def take(self, operands: tuple[Any, ...]) -> None:
        """Reads what may have changed."""
        place = 0
        for n, part in enumerate(_parts(operands)):
            known, count = self.known.get(n, (None, 0))
            if known is not part:
                leaves = jax.tree.leaves(part)
                count = len(leaves)
                kept = [self._read(place + m, leaf) for m, leaf in enumerate(leaves)]
                fixed = all(kept) and not isinstance(part, dict | list)
                self.known[n] = (part if fixed else None), count
            place += count

    def _read(self, place: int, leaf: Any) -> bool:
        """Reads an operand; returns whether it never changes, and its words are all that is needed."""
        (dtype, large), own = self.types[place], self.places[place]
        if large:
            table = np.ascontiguousarray(np.asarray(leaf).astype(dtype, copy=False))
            self.pointers[len(self.tables)] = _address(table)
            self.tables.append(table)
            return False
        own[...] = leaf if dtype else np.asarray(jax.random.key_data(leaf)).reshape(-1)
        return isinstance(leaf, jax.Array | np.generic)


def _parts(operands: tuple[Any, ...]) -> Iterator[Any]:
    """The operands in tuples of tuples, in the order of their leaves."""
    for part in operands:
        if isinstance(part, tuple):
            yield from _parts(part)
        elif part is not None:
            yield part


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


_own = threading.local()


def _scratch(size: int) -> int:
    """The address of so many bytes of a thread's own, kept for the next kernel. They begin with a cache
    line, so that no vector crosses one."""
    if getattr(_own, "size", 0) < size:
        _own.memory, _own.size = np.empty(size + LINE, np.uint8), size
        _own.address = -(-_address(_own.memory) // LINE) * LINE
    return _own.address


# Threads


@cache
def _team() -> team.Team:
    """Threads for kernels that end soon."""
    text = team.code(compiler.target().triple.startswith(("x86", "i686")))
    code = compiler.kept(text, lambda: compiler.compiled(text))
    return team.Team(compiler.linked(code, "lead", "help"))


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="lanes")


if hasattr(os, "register_at_fork"):  # a forked process has no threads, and makes some of its own
    os.register_at_fork(after_in_child=_team.cache_clear)
    os.register_at_fork(after_in_child=_threads.cache_clear)
