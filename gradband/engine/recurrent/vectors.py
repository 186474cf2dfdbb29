"""Writes loops over vectors of floats as LLVM's assembly.

Memory is addressed in floats. An array [..., 64] holds one number of each of 64 rollouts in its last axis,
which is worked on in tiles that fit the registers. There is no fast-math, and only `fma` fuses, so a
rollout's bits do not depend on the size of a tile.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from gradband.engine.lanes.maths import EXP2, LOG, TANH_BOTTOM, TANH_TOP

LANES = 64
FLOAT, INT, LONG, POINTER = ir.FloatType(), ir.IntType(32), ir.IntType(64), ir.PointerType()
TALLEST = 0.693359375  # log 2 in few bits, so that its multiples are exact
LEAST, MOST = -87.3, 7.905311  # beyond which exp and tanh remain what they are there

Value = Any
"""a number or a vector in a register"""
Term = Any
"""a number, or a tuple of numbers to multiply: a place in memory is a sum of such terms"""


class Writer:
    """Writes a function of pointers to floats, named, and of n and the stride between rows of rollouts."""

    def __init__(self, module: ir.Module, name: str, pointers: Sequence[str], tile: int) -> None:
        self.module, self.tile = module, tile
        kind = ir.FunctionType(ir.VoidType(), [POINTER] * len(pointers) + [LONG, LONG])
        self.function = ir.Function(module, kind, name)
        *given, self.rounds, self.stride = self.function.args
        for argument in given:
            argument.add_attribute("noalias")
        self.at = dict(zip(pointers, given, strict=True))
        self.code = ir.IRBuilder(self.function.append_basic_block())
        self.vector = ir.VectorType(FLOAT, tile)

    def loop(self, count: Any, body: Callable[..., Any], carry: Sequence[Value] = ()) -> list[Value]:
        """`body(step, *carry) → carry` for the steps 0, 1, …, `count` − 1; at least one."""
        before, inside = self.code.block, self.function.append_basic_block()
        self.code.branch(inside)
        self.code.position_at_end(inside)
        step, *values = (self.code.phi(x.type) for x in (LONG(0), *carry))
        after = list(body(step, *values) or ())
        following = self.code.add(step, LONG(1))
        phis = zip([step, *values], [LONG(0), *carry], [following, *after], strict=True)
        for phi, first, then in phis:
            phi.add_incoming(first, before)
            phi.add_incoming(then, self.code.block)
        outside = self.function.append_basic_block()
        self.code.cbranch(self.code.icmp_signed("<", following, _long(count)), inside, outside)
        self.code.position_at_end(outside)
        return after

    def tiles(self, body: Callable[[Value], Any]) -> None:
        """`body(lane)` for the first lane of each tile."""
        if self.tile == LANES:
            body(LONG(0))
        else:
            self.loop(LANES // self.tile, lambda i: body(self.place((i, self.tile))))

    # Memory

    def place(self, *terms: Term) -> Value:
        """A sum of terms, each a number or a product of numbers."""
        total = LONG(0)
        for term in terms:
            product, *factors = term if isinstance(term, tuple) else (term,)
            product = _long(product)
            for factor in factors:
                product = self.code.mul(product, _long(factor))
            total = self.code.add(total, product)
        return total

    def address(self, base: str, *terms: Term) -> Value:
        return self.code.gep(self.at[base], [self.place(*terms)], source_etype=FLOAT)

    def load(self, base: str, *terms: Term, width: int | None = None) -> Value:
        """A vector of numbers that lie side by side."""
        kind = self.vector if width is None else ir.VectorType(FLOAT, width)
        return self.code.load(self.address(base, *terms), typ=kind, align=4)

    def store(self, x: Value, base: str, *terms: Term) -> None:
        self.code.store(x, self.address(base, *terms), align=4)

    def everywhere(self, base: str, *terms: Term, width: int | None = None) -> Value:
        """One number in all lanes."""
        kind = self.vector if width is None else ir.VectorType(FLOAT, width)
        one, nothing = self.code.load(self.address(base, *terms), typ=FLOAT, align=4), _undefined(kind)
        first = self.code.insert_element(nothing, one, INT(0))
        return self.code.shuffle_vector(first, nothing, _whole(kind.count, 0))

    def fetch(self, base: str, *terms: Term) -> None:
        """Asks for memory that is read soon."""
        name, rest = "llvm.prefetch.p0", [INT(0), INT(2), INT(1)]
        kind = ir.FunctionType(ir.VoidType(), [POINTER, INT, INT, INT])
        known = self.module.globals.get(name) or ir.Function(self.module, kind, name)
        self.code.call(known, [self.address(base, *terms), *rest])

    def clear(self, base: str, count: Any) -> None:
        self.loop(count, lambda i: self.store(FLOAT(0.0), base, i))

    # Arithmetic

    def number(self, value: float) -> Value:
        """A constant in all lanes."""
        return ir.Constant(self.vector, [_single(value)] * self.tile)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a · b + c, rounded once."""
        name = f"llvm.fma.v{a.type.count}f32"
        known = self.module.globals.get(name)
        known = known or ir.Function(self.module, ir.FunctionType(a.type, [a.type] * 3), name)
        return self.code.call(known, [a, b, c])

    def add(self, a: Value, b: Value) -> Value:
        return self.code.fadd(a, b)

    def minus(self, a: Value, b: Value) -> Value:
        return self.code.fsub(a, b)

    def times(self, a: Value, *factors: Value) -> Value:
        for factor in factors:
            a = self.code.fmul(a, factor)
        return a

    def where(self, a: Value, sign: str, b: Value, one: Value, other: Value) -> Value:
        """`one` where a < b, a ≥ b or whatever the sign says, else `other`, also for NaN."""
        return self.code.select(self.code.fcmp_ordered(sign, a, b), one, other)

    def leaky(self, x: Value, y: Value) -> Value:
        """y where x ≥ 0, else .01 y: LeakyReLU of x if y is x, and its derivative times y."""
        return self.where(x, ">=", self.number(0), y, self.times(y, self.number(0.01)))

    def share(self, t: Value) -> Value:
        """½ + ½ t."""
        return self.fma(t, self.number(0.5), self.number(0.5))

    def bend(self, t: Value) -> Value:
        """1 − t², the derivative of a tanh that is t."""
        return self.fma(self.code.fneg(t), t, self.number(1))

    def tanh(self, x: Value) -> Value:
        """As XLA computes it, so NaN remains NaN."""
        for sign, edge in (("<", -MOST), (">", MOST)):
            x = self.where(x, sign, self.number(edge), self.number(edge), x)
        square = self.times(x, x)
        top = self.times(x, self.polynomial(square, TANH_TOP))
        return self.code.fdiv(top, self.polynomial(square, TANH_BOTTOM))

    def exp(self, x: Value) -> Value:
        """2^n 2^r with n whole and r in [−½, ½], for x ≤ 0."""
        high, magic = float(_single(math.log2(math.e))), self.number(1.5 * 2**23)
        low = math.log2(math.e) - high
        x = self.where(x, "<", self.number(LEAST), self.number(LEAST), x)
        shifted = self.fma(x, self.number(high), magic)
        r = self.fma(x, self.number(low), self.fma(x, self.number(high), self.minus(magic, shifted)))
        power = self.bits(self.fma(self.polynomial(r, EXP2), r, self.number(1)))
        n = self.code.shl(self.bits(shifted), _whole(self.tile, 23))
        return self.code.bitcast(self.code.add(power, n), self.vector)

    def log(self, x: Value) -> Value:
        """n log 2 + log m with n whole and m in [√½, √2), for x ≥ 1."""
        word, shift = self.bits(x), _whole(self.tile, 23)
        power = self.code.ashr(self.code.sub(word, _whole(self.tile, 0x3F3504F3)), shift)
        mantissa = self.code.bitcast(self.code.sub(word, self.code.shl(power, shift)), self.vector)
        r, n = self.minus(mantissa, self.number(1)), self.code.sitofp(power, self.vector)
        square = self.times(r, r)
        tail = self.times(r, square, self.polynomial(r, LOG))
        tail = self.fma(n, self.number(math.log(2) - TALLEST), tail)
        tail = self.fma(square, self.number(-0.5), tail)
        return self.fma(n, self.number(TALLEST), self.add(r, tail))

    def bits(self, x: Value) -> Value:
        return self.code.bitcast(x, ir.VectorType(INT, self.tile))

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's rule; the constant comes first."""
        *rest, total = (self.number(c) for c in coefficients)
        for c in reversed(rest):
            total = self.fma(total, x, c)
        return total

    def turned(self, rows: Sequence[Value]) -> list[Value]:
        """The columns of a square block, given its rows: blocks off the diagonal change places."""
        found, count = list(rows), len(rows)
        step = count // 2
        while step:
            for i in (i for i in range(count) if not i & step):
                pair = found[i], found[i | step]
                one = [count + (j ^ step) if j & step else j for j in range(count)]
                other = [count + j if j & step else j | step for j in range(count)]
                for place, order in ((i, one), (i | step, other)):
                    mask = ir.Constant(ir.VectorType(INT, count), order)
                    found[place] = self.code.shuffle_vector(*pair, mask)
            step //= 2
        return found

    def end(self) -> None:
        self.code.ret_void()


def _long(x: Any) -> Value:
    return LONG(x) if isinstance(x, int) else x


def _single(value: float) -> float:
    """The nearest number in single precision, as LLVM wants it."""
    return float(np.float32(value))


def _whole(count: int, value: int) -> Value:
    return ir.Constant(ir.VectorType(INT, count), [value] * count)


def _undefined(kind: Any) -> Value:
    return ir.Constant(kind, ir.Undefined)
