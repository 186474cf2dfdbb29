"""Writes vector instructions as LLVM's assembly.

A `Scalar` is one number of one instance. In the kernel it is a constant, a number that all instances share,
or a vector with one entry per lane, that is, per instance. No instruction is written twice, constants are
computed here, and whatever does not change inside a loop is written before it. There is no fast-math, and
only `fma` fuses, so bits depend neither on the number of lanes nor on the machine.
"""

import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

TYPES = {"f": "float", "i": "i32", "u": "i32", "b": "i1", "p": "ptr"}
DTYPES: dict[str, Any] = {"f": np.float32, "i": np.int32, "u": np.uint32, "b": np.bool_}
MOST_STEPS = 1 << 22  # of a loop whose end depends on data
STOPPED, ENDLESS = 1, 2  # what a kernel returns if it was told to stop, or a loop did not end


class UnsupportedError(Exception):
    """A program that lanes do not support, and XLA plays."""


class Scalar:
    """A number of some kind: f (float), i (int), u (unsigned), b (boolean) or p (pointer).

    `value` is set for constants, `text` names the register of others. `wide` numbers differ between lanes.
    `level` is how many loops are around it. `made` is how it was computed, where a rule can use that.
    """

    __slots__ = ("kind", "level", "made", "text", "value", "wide")

    def __init__(self, kind: str, wide: bool, level: int = 0, text: str = "", value: Any = None) -> None:
        self.kind, self.wide, self.level, self.text, self.value = kind, wide, level, text, value
        self.made: tuple[Any, ...] = ()


def constant(kind: str, value: Any) -> Scalar:
    """A number that is known before the kernel runs."""
    with np.errstate(all="ignore"):
        return Scalar(kind, False, value=np.asarray(value).astype(DTYPES[kind])[()])


def _literal(x: Scalar) -> str:
    """A constant as LLVM writes it."""
    if x.kind == "f":
        return "0x" + struct.pack(">d", float(x.value)).hex().upper()
    return str(x.value).lower() if x.kind == "b" else str(int(np.asarray(x.value).astype(np.int32)))


def f(value: float) -> Scalar:
    return constant("f", value)


def i(value: int) -> Scalar:
    return constant("i", value)


OPERATORS = {"and": "and_", "or": "or_", "shl": "lshift", "lshr": "rshift", "ashr": "rshift"}
OPERATORS |= {"div": "truediv"}
NAMES = {
    "f": {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"},
    "i": {"div": "sdiv", "rem": "srem"},
    "u": {"div": "udiv", "rem": "urem"},
    "b": {},
}


class Level:
    """Instructions with the same loops around them, and their results by code."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.known: dict[Any, Scalar] = {}
        self.kept: dict[int, Any] = {}  # small arrays that were written to memory


class Writer:
    """Writes the body of a kernel with `width` lanes."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.levels = [Level()]
        self.block = "entry"  # the label that instructions are written under
        self.globals: dict[str, None] = {}
        self.count = 0
        self.scratch = 0  # vectors of memory that a kernel needs
        self.free: dict[int, list[int]] = {}  # places in it that are free again, by their sizes
        self.lane = Scalar("i", True, text=f"<{', '.join(f'i32 {lane}' for lane in range(width))}>")

    # Values

    def type(self, kind: str, wide: bool) -> str:
        return f"<{self.width} x {TYPES[kind]}>" if wide else TYPES[kind]

    def text(self, x: Scalar, wide: bool) -> str:
        """A number as an operand."""
        if x.value is None:
            return (self.widen(x) if wide else x).text
        if not x.text:
            x.text = _literal(x)
        return f"splat ({TYPES[x.kind]} {x.text})" if wide else x.text

    def widen(self, x: Scalar) -> Scalar:
        """A number as a vector."""
        if x.wide:
            return x
        if x.value is not None:
            return Scalar(x.kind, True, text=self.text(x, True))
        vector = self.type(x.kind, True)
        first = self.emit(
            x.kind, True, f"insertelement {vector} poison, {TYPES[x.kind]} {x.text}, i64 0", x.level
        )
        zeros = f"<{self.width} x i32> zeroinitializer"
        code = f"shufflevector {vector} {first.text}, {vector} poison, {zeros}"
        return self.emit(x.kind, True, code, x.level)

    def emit(self, kind: str, wide: bool, code: str, level: int) -> Scalar:
        """The result of an instruction, written at its `level`: as far out as its operands allow."""
        place = self.levels[level]
        found = place.known.get((kind, code))
        if found is None:
            found = place.known[kind, code] = self.fresh(kind, wide, level)
            place.lines.append(f"  {found.text} = {code}")
        return found

    def fresh(self, kind: str, wide: bool, level: int) -> Scalar:
        self.count += 1
        return Scalar(kind, wide, level, f"%v{self.count}")

    @property
    def level(self) -> int:
        """How many loops are around what is written now."""
        return len(self.levels) - 1

    def line(self, code: str) -> None:
        self.levels[-1].lines.append(f"  {code}")

    # Instructions

    def binary(self, name: str, a: Scalar, b: Scalar) -> Scalar:
        whole = a.kind in "iu"
        if a.value is not None and b.value is not None and not (whole and name in ("div", "rem")):
            with np.errstate(all="ignore"):
                return constant(a.kind, _computed(name, a.value, b.value))
        if (found := self._simpler(name, a, b)) is not None:
            return found
        wide = a.wide or b.wide
        if name == "div" and not whole and a.wide and not b.wide and b.level == 0:
            return self.binary("mul", a, self.binary("div", f(1), b))  # one division serves all
        if name in ("div", "rem") and whole:  # a divisor of 0 would end the program
            b = self.select(self.compare("eq", b, constant(b.kind, 0)), constant(b.kind, 1), b)
        code = NAMES[a.kind].get(name, name)
        code = f"{code} {self.type(a.kind, wide)} {self.text(a, wide)}, {self.text(b, wide)}"
        found = self.emit(a.kind, wide, code, max(a.level, b.level))
        found.made = (name, a, b)
        return found

    def _simpler(self, name: str, a: Scalar, b: Scalar) -> Scalar | None:
        """The operand that x + 0 (of whole numbers), x · 1, or a condition with a constant equals."""
        if a.value is not None and name in ("add", "mul", "and", "or"):
            a, b = b, a
        if b.value is None:
            return None
        if (name == "add" and a.kind in "iu" and b.value == 0) or (name == "mul" and b.value == 1):
            return a
        if a.kind == "b" and name in ("and", "or"):
            return a if bool(b.value) == (name == "and") else b
        return None

    def compare(self, name: str, a: Scalar, b: Scalar) -> Scalar:
        if a.value is not None and b.value is not None:
            return constant("b", _computed(name, a.value, b.value))
        wide = a.wide or b.wide
        if a.kind == "f":
            code = f"fcmp {'une' if name == 'ne' else 'o' + name}"
        else:
            code = f"icmp {name if name in ('eq', 'ne') else ('s' if a.kind == 'i' else 'u') + name}"
        code = f"{code} {self.type(a.kind, wide)} {self.text(a, wide)}, {self.text(b, wide)}"
        return self.emit("b", wide, code, max(a.level, b.level))

    def is_nan(self, x: Scalar) -> Scalar:
        if x.value is not None:
            return constant("b", np.isnan(x.value))
        return self.emit("b", x.wide, f"fcmp uno {self.type('f', x.wide)} {x.text}, {x.text}", x.level)

    def select(self, which: Scalar, a: Scalar, b: Scalar) -> Scalar:
        """a where `which` is true, else b."""
        if which.value is not None:
            return a if which.value else b
        if a is b or (a.value is not None and b.value is not None and _same(a.value, b.value)):
            return a
        wide = a.wide or b.wide or which.wide
        t = self.type(a.kind, wide)
        cases = f"{t} {self.text(a, wide)}, {t} {self.text(b, wide)}"
        code = f"select {self.type('b', wide)} {self.text(which, wide)}, {cases}"
        found = self.emit(a.kind, wide, code, max(which.level, a.level, b.level))
        found.made = ("select", which, a, b)
        return found

    def shift(self, name: str, x: Scalar, by: Scalar) -> Scalar:
        """A shift; shifts by 32 bits or more give 0, which LLVM does not promise."""
        if by.value is not None:
            return self.binary(name, x, by) if 0 <= int(by.value) < 32 else constant(x.kind, 0)
        small = self.binary("and", by, constant(by.kind, 31))
        inside = self.compare("lt", self.convert(by, "u"), constant("u", 32))
        return self.select(inside, self.binary(name, x, small), constant(x.kind, 0))

    def convert(self, x: Scalar, kind: str) -> Scalar:
        old = x.kind
        if old == kind:
            return x
        if x.value is not None:
            return constant(kind, x.value)
        if {old, kind} == {"i", "u"}:
            return Scalar(kind, x.wide, x.level, x.text)
        if kind == "b":
            return self.compare("ne", x, constant(old, 0))
        if old == "b":
            return self.select(x, constant(kind, 1), constant(kind, 0))
        if old == "f":
            return self._truncated(x, kind)
        code = f"{'sitofp' if old == 'i' else 'uitofp'} {self.type(old, x.wide)} {x.text}"
        return self.emit("f", x.wide, f"{code} to {self.type('f', x.wide)}", x.level)

    def _truncated(self, x: Scalar, kind: str) -> Scalar:
        """A float without its fraction: the nearest whole number that exists, or 0 for NaN.

        LLVM has an intrinsic for this, but computes it lane by lane.
        """
        least, beyond, code = (-(2.0**31), 2.0**31, "fptosi") if kind == "i" else (0.0, 2.0**32, "fptoui")
        low, high = self.compare("lt", x, f(least)), self.compare("ge", x, f(beyond))
        outside = self.binary("or", self.binary("or", low, high), self.is_nan(x))
        inside = self.select(outside, f(0), x)
        code = f"{code} {self.type('f', x.wide)} {inside.text} to {self.type(kind, x.wide)}"
        found = self.emit(kind, x.wide, code, x.level)
        found = self.select(low, constant(kind, least), found)
        return self.select(high, constant(kind, beyond - 1), found)

    def bitcast(self, x: Scalar, kind: str) -> Scalar:
        if x.value is not None:
            return constant(kind, np.asarray(x.value).view(DTYPES[kind]))
        code = f"bitcast {self.type(x.kind, x.wide)} {x.text} to {self.type(kind, x.wide)}"
        return self.emit(kind, x.wide, code, x.level)

    def call(self, name: str, kind: str, *given: Scalar) -> Scalar:
        """Calls an intrinsic of LLVM that takes one or a few instructions."""
        wide = any(x.wide for x in given)
        lanes = f"v{self.width}" if wide else ""
        own = f"{lanes}{'f' if kind == 'f' else 'i'}32"
        types, result = [self.type(x.kind, wide) for x in given], self.type(kind, wide)
        self.globals[f"declare {result} @llvm.{name}.{own}({', '.join(types)})"] = None
        operands = ", ".join(f"{t} {self.text(x, wide)}" for t, x in zip(types, given, strict=True))
        level = max(x.level for x in given)
        return self.emit(kind, wide, f"call {result} @llvm.{name}.{own}({operands})", level)

    def fma(self, a: Scalar, b: Scalar, c: Scalar) -> Scalar:
        """a · b + c, rounded once."""
        return self.call("fma", "f", a, b, c)

    # Memory

    def address(self, base: Scalar, kind: str, wide: bool, place: Scalar) -> Scalar:
        """The address of an entry, at a place that all lanes share."""
        code = f"getelementptr {self.type(kind, wide)}, ptr {base.text}, i32 {self.text(place, False)}"
        return self.emit("p", False, code, max(base.level, place.level))

    def load(self, base: Scalar, kind: str, wide: bool, place: Scalar, written: str = "") -> Scalar:
        """Reads an entry. Memory that was written since is marked by another `written`."""
        at = self.address(base, kind, wide, place)
        code = f"load {self.type(kind, wide)}, ptr {at.text}, align 4 ; {written}"
        return self.emit(kind, wide, code, at.level)

    def store(self, base: Scalar, x: Scalar, place: Scalar, level: int = -1) -> None:
        """Stores a number of each lane, a condition as 0 or 1."""
        x = self.convert(x, "i") if x.kind == "b" else x
        vector, at = self.type(x.kind, True), self.address(base, x.kind, True, place)
        self.levels[level].lines.append(f"  store {vector} {self.text(x, True)}, ptr {at.text}, align 4")

    def gather(self, base: Scalar, kind: str, place: Scalar, written: str = "") -> Scalar:
        """Reads entries at places, in bytes, that may differ between lanes."""
        w, vector, level = self.width, self.type(kind, True), max(base.level, place.level)
        pointers = f"getelementptr i8, ptr {base.text}, <{w} x i32> {self.text(place, True)}"
        pointers = self.emit("p", True, pointers, level).text
        name = f"@llvm.masked.gather.v{w}{'f' if kind == 'f' else 'i'}32.v{w}p0"
        self.globals[f"declare {vector} {name}(<{w} x ptr>, i32, <{w} x i1>, {vector})"] = None
        given = f"<{w} x ptr> {pointers}, i32 1, <{w} x i1> splat (i1 true), {vector} zeroinitializer"
        return self.emit(kind, True, f"call {vector} {name}({given}) ; {written}", level)

    def store_row(self, x: Scalar, row: Scalar) -> None:
        """Writes a result of all lanes into a row of the kernel's output."""
        wide_row = self.emit("p", False, f"sext i32 {self.text(row, False)} to i64", row.level).text
        place = self.emit("p", False, f"mul i64 %stride, {wide_row}", row.level).text
        place = self.emit("p", False, f"add i64 {place}, %lane", max(1, row.level)).text
        at = self.emit("p", False, f"getelementptr i32, ptr %out, i64 {place}", max(1, row.level)).text
        self.line(f"store {self.type(x.kind, True)} {self.text(x, True)}, ptr {at}, align 4")

    # Loops

    def begin_vectors(self) -> None:
        """Begins the part that is played for each vector of instances; what came before serves all."""
        self.levels.append(Level())
        self.block = "vectors"

    def end_vectors(self, signature: str) -> str:
        """The whole kernel."""
        head, body = self.levels
        return "\n".join(
            [
                *self.globals,
                f"{signature} {{",
                "entry:",
                *head.lines,
                "  br label %vectors",
                "vectors:",
                f"  %index = phi i32 [ %first, %entry ], [ %next, %{self.block} ]",
                f"  %instance = mul i32 %index, {self.width}",
                "  %lane = sext i32 %instance to i64",
                *body.lines,
                "  %next = add i32 %index, 1",
                "  %over = icmp sge i32 %next, %last",
                "  br i1 %over, label %end, label %vectors",
                "end:",
                "  ret i32 0",
                "stopped:",
                f"  ret i32 {STOPPED}",
                "endless:",
                f"  ret i32 {ENDLESS}",
                "}",
            ]
        )

    def label(self, name: str) -> str:
        self.count += 1
        return f"{name}{self.count}"

    def loop(
        self, length: int, start: Sequence[Scalar], body: Callable[[Scalar, list[Scalar]], Sequence[Scalar]]
    ) -> list[Scalar]:
        """`body(step, carry) → carry` for the steps 0, 1, …, `length` − 1."""
        begin = [self._carried(x) for x in start]
        before, head, done = self.block, self.label("loop"), self.label("done")
        outer = self._enter(head)
        step, *carry = (self.fresh(x.kind, x.wide, self.level) for x in (i(0), *begin))
        after = [self._carried(x) for x in body(step, carry)]
        following = self.emit("i", False, f"add nuw nsw i32 {step.text}, 1", self.level)
        if self.level == 2 and length > 1:  # the loop over rounds, which Ctrl-C may stop
            asked, onwards = self.fresh("i", False, self.level), self.label("onwards")
            self.line(f"{asked.text} = load volatile i32, ptr %stop, align 4")
            self._branch(self.compare("eq", asked, i(0)), onwards, "stopped")
            self._open(onwards)
        last = self.compare("eq", following, i(length))
        self._branch(last, done, head)
        self._leave(
            outer, head, before, zip([step, *carry], [i(0), *begin], [following, *after], strict=True)
        )
        self._open(done)
        return [Scalar(x.kind, x.wide, min(x.level, self.level), x.text, x.value) for x in after]

    def loop_while(
        self,
        start: Sequence[Scalar],
        condition: Callable[[list[Scalar]], Scalar],
        body: Callable[[list[Scalar], Scalar], Sequence[Scalar]],
    ) -> list[Scalar]:
        """`body(carry, going) → carry` while `condition(carry)` holds, in the lanes `going`."""
        begin = [i(0), *(self._carried(x) for x in start)]
        before, head, done = self.block, self.label("test"), self.label("done")
        outer = self._enter(head)
        step, *carry = (self.fresh(x.kind, x.wide, self.level) for x in begin)
        going = self.widen(condition(carry))
        bits = f"bitcast {self.type('b', True)} {going.text} to i{self.width}"
        bits = self.emit("i", False, bits, going.level).text
        some = self.emit("b", False, f"icmp ne i{self.width} {bits}, 0", going.level)
        inner = self.label("try")
        self._branch(some, inner, done)
        self._open(inner)
        after = [self._carried(x) for x in body(carry, going)]
        following = self.binary("add", step, i(1))
        self._branch(self.compare("lt", following, i(MOST_STEPS)), head, "endless")
        self._leave(outer, head, before, zip([step, *carry], begin, [following, *after], strict=True))
        self._open(done)
        return [Scalar(x.kind, x.wide, self.level, x.text) for x in carry]

    def _carried(self, x: Scalar) -> Scalar:
        return x if x.kind == "p" else self.widen(x)

    def _enter(self, head: str) -> Level:
        outer = self.levels[-1]
        self.levels.append(Level())
        self.block = head
        return outer

    def _leave(self, outer: Level, head: str, before: str, carried: Any) -> None:
        """Ends a loop, and writes it after everything that turned out not to change in it."""
        inner, latch = self.levels.pop(), self.block
        outer.lines += [f"  br label %{head}", f"{head}:"]
        for x, a, b in carried:
            incoming = f"[ {self.text(a, x.wide)}, %{before} ], [ {self.text(b, x.wide)}, %{latch} ]"
            outer.lines.append(f"  {x.text} = phi {self.type(x.kind, x.wide)} {incoming}")
        outer.lines += inner.lines

    def _branch(self, which: Scalar, one: str, other: str) -> None:
        self.line(f"br i1 {self.text(which, False)}, label %{one}, label %{other}")

    def _open(self, label: str) -> None:
        self.levels[-1].lines.append(f"{label}:")
        self.block = label


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (a != a and b != b)


def _computed(name: str, a: Any, b: Any) -> Any:
    return getattr(operator, OPERATORS.get(name, name))(a, b)
