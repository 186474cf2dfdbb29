"""Plays traced functions and their loops.

The carry of a loop stays in registers. A large one has two pieces of memory that take turns: one is read
while the other is written.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import core

from gradband.engine.lanes import maths
from gradband.engine.lanes.arrays import (
    Index,
    Key,
    Lazy,
    Slot,
    Value,
    constants,
    entry,
    fill,
    force,
    keep,
    memory,
    number,
    plus,
    settle,
    times,
    words_of,
    write,
)
from gradband.engine.lanes.entries import kind_of, select
from gradband.engine.lanes.rules import apply
from gradband.engine.lanes.writer import Scalar, UnsupportedError, Writer, i

MOST_LINES = 60_000  # in a kernel: beyond that, LLVM takes longer to compile than XLA
INLINED = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}
INLINED |= {"custom_vjp_call": "call_jaxpr", "checkpoint": "jaxpr", "remat2": "jaxpr"}
FORMULAS = {"regularized_incomplete_beta": maths.incomplete_beta}  # with loops of their own


def play(e: Writer, jaxpr: Any, consts: list[Value], inputs: list[Value]) -> list[Value]:
    """A traced function on arrays of a kernel."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs), strict=True))
    uses = Counter(a for q in jaxpr.eqns for a in q.invars if not isinstance(a, core.Literal))
    uses.update(a for a in jaxpr.outvars if not isinstance(a, core.Literal))
    left = Counter(uses)

    def read(atom: Any) -> Value:
        return constants(e, atom.val, kind_of(atom.aval)) if isinstance(atom, core.Literal) else known[atom]

    for equation in jaxpr.eqns:
        given = [read(atom) for atom in equation.invars]
        found = _operation(e, equation, given, max(uses[v] for v in equation.outvars))
        known.update(zip(equation.outvars, found, strict=True))
        for atom in equation.invars:
            if isinstance(atom, core.Literal):
                continue
            left[atom] -= 1
            if not left[atom]:
                del known[atom]  # frees its memory, if it has any
        if sum(len(level.lines) for level in e.levels) > MOST_LINES:
            raise UnsupportedError(f"more than {MOST_LINES} instructions")
    return [read(atom) for atom in jaxpr.outvars]


def play_closed(e: Writer, function: Any, inputs: list[Value]) -> list[Value]:
    """A traced function with its constants."""
    jaxpr = function.jaxpr if hasattr(function, "consts") else function
    values = zip(getattr(function, "consts", []), jaxpr.constvars, strict=True)
    return play(e, jaxpr, [constants(e, c, kind_of(v.aval)) for c, v in values], inputs)


def _operation(e: Writer, equation: Any, inputs: list[Value], uses: int) -> list[Value]:
    name = equation.primitive.name
    if name in INLINED:
        return play_closed(e, equation.params[INLINED[name]], inputs)
    if name in FORMULAS:
        return play_closed(e, jax.make_jaxpr(FORMULAS[name])(*(v.aval for v in equation.invars)), inputs)
    if name in LOOPS:
        return LOOPS[name](e, equation, inputs)
    return apply(e, equation, inputs, uses)


class Carry:
    """The arrays that a loop carries: small ones in registers, large ones in two pieces of memory."""

    def __init__(self, e: Writer, start: list[Value]) -> None:
        self.e, self.likes = e, start
        self.slots: dict[int, tuple[Slot, Slot]] = {}
        self.kinds: dict[int, list[str]] = {}
        self.start: list[Scalar] = []
        for n, x in enumerate(start):
            if isinstance(x, np.ndarray):
                self.start += [word for entry in x.reshape(-1) for word in words_of(entry)]
                continue
            self.kinds[n] = [word.kind for word in words_of(x.at((0,) * x.ndim))]
            size = x.size * len(self.kinds[n])
            self.slots[n] = Slot(e, size), Slot(e, size)
            write(e, self.slots[n][0].base, x)
            self.start += [slot.base for slot in self.slots[n]]

    def unpack(self, carry: list[Scalar]) -> list[Value]:
        """The arrays that this turn reads."""
        rest, found = iter(carry), list[Value]()
        for n, like in enumerate(self.likes):
            if n in self.slots:
                now, _ = next(rest), next(rest)
                found.append(memory(self.e, now, like.shape, self.kinds[n], self.slots[n]))
                continue
            words = ([next(rest) for _ in words_of(x)] for x in like.reshape(-1))
            found.append(fill(like.shape, (Key(*pair) if len(pair) > 1 else pair[0] for pair in words)))
        return found

    def pack(self, new: list[Value], carry: list[Scalar]) -> list[Scalar]:
        """Writes the arrays for the next turn."""
        place, found = 0, []
        for n, value in enumerate(new):
            if n in self.slots:
                now, other = carry[place : place + 2]
                write(self.e, other, value)
                own = [other, now]
            else:
                own = [word for entry in force(self.e, value).reshape(-1) for word in words_of(entry)]
            found += own
            place += len(own)
        return found


def _scan(e: Writer, equation: Any, inputs: list[Value]) -> list[Value]:
    given = equation.params
    fixed, carried, length = given["num_consts"], given["num_carry"], given["length"]
    if length == 0:
        raise UnsupportedError("loops without a turn")
    outer, each = inputs[:fixed], [_rows(e, x) for x in inputs[fixed + carried :]]
    carry = Carry(e, inputs[fixed : fixed + carried])
    stacked = [v.aval for v in equation.outvars[carried:]]
    slots = [Slot(e, int(np.prod(aval.shape))) for aval in stacked]

    def row(x: Value, step: Scalar) -> Value:
        return settle(e, x.shape[1:], lambda index: entry(e, x, (step, *index)), 0)

    def turn(step: Scalar, now: list[Scalar]) -> list[Scalar]:
        step = e.binary("sub", i(length - 1), step) if given["reverse"] else step
        found = play_closed(e, given["jaxpr"], [*outer, *carry.unpack(now), *(row(x, step) for x in each)])
        for slot, value in zip(slots, found[carried:], strict=True):
            write(e, e.address(slot.base, "i", True, times(e, step, value.size)), value)
        return carry.pack(found[:carried], now)

    after = carry.unpack(e.loop(length, carry.start, turn))
    kept = zip(slots, stacked, strict=True)
    return after + [memory(e, slot.base, aval.shape, [kind_of(aval)], slot) for slot, aval in kept]


def _rows(e: Writer, x: Value) -> Lazy:
    """What a loop runs over, so that any row can be read; whole numbers in even steps are computed."""
    if isinstance(x, Lazy) and not x.cost:
        return x
    numbers: list[Any] = [n.value for n in x] if isinstance(x, np.ndarray) and x.ndim == 1 else [None]
    if None in numbers or x[0].kind not in "iu" or len(set(np.diff(numbers).tolist())) > 1:
        return keep(e, x)
    first, kind = int(numbers[0]), x[0].kind
    step = int(numbers[1]) - first if len(numbers) > 1 else 0

    def at(index: Index) -> Scalar:
        return e.convert(number(plus(e, times(e, index[0], step), first)), kind)

    return Lazy(x.shape, at)


def _while(e: Writer, equation: Any, inputs: list[Value]) -> list[Value]:
    given = equation.params
    for_condition, for_body = given["cond_nconsts"], given["body_nconsts"]
    outer, inner = inputs[:for_condition], inputs[for_condition : for_condition + for_body]
    carry = Carry(e, inputs[for_condition + for_body :])

    def going(now: list[Scalar]) -> Scalar:
        return force(e, play_closed(e, given["cond_jaxpr"], [*outer, *carry.unpack(now)])[0]).item()

    def turn(now: list[Scalar], lanes: Scalar) -> list[Scalar]:
        old = carry.unpack(now)
        new = play_closed(e, given["body_jaxpr"], [*inner, *old])
        return carry.pack([_choose(e, lanes, [b, a]) for a, b in zip(new, old, strict=True)], now)

    return carry.unpack(e.loop_while(carry.start, going, turn))


def _cond(e: Writer, equation: Any, inputs: list[Value]) -> list[Value]:
    """Computes all branches, since lanes may take different ones."""
    which = force(e, inputs[0]).item()
    results = [play_closed(e, branch, inputs[1:]) for branch in equation.params["branches"]]
    return [_choose(e, which, list(cases)) for cases in zip(*results, strict=True)]


def _choose(e: Writer, which: Scalar, cases: list[Value]) -> Value:
    cost = sum(case.cost for case in cases if isinstance(case, Lazy))
    return settle(
        e, cases[0].shape, lambda index: select(e, None, which, *(entry(e, x, index) for x in cases)), cost
    )


LOOPS: dict[str, Callable[..., list[Value]]] = {"scan": _scan, "while": _while, "cond": _cond}
