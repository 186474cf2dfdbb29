"""Rules for JAX's operations that treat each entry of an array alike."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.extend import core

from gradband.engine.lanes import maths
from gradband.engine.lanes.arrays import KINDS, Entry, Key
from gradband.engine.lanes.writer import Scalar, UnsupportedError, Writer, constant

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
Rule = Callable[..., Entry]
"""`rule(writer, parameters of the operation, *entries) → entry`"""


def kind_of(aval: Any) -> str:
    """The kind of an array's numbers."""
    return _kind_of_type(aval.dtype)


@cache
def _kind_of_type(dtype: Any) -> str:
    if str(dtype) not in KINDS:
        raise UnsupportedError(f"numbers of type {dtype}")
    return KINDS[str(dtype)]


def _binary(name: str) -> Rule:
    return lambda e, given, a, b: e.binary(name, a, b)


def _compare(name: str) -> Rule:
    return lambda e, given, a, b: e.compare(name, a, b)


def _intrinsic(name: str) -> Rule:
    return lambda e, given, x: e.call(name, "f", x)


def _formula(function: Callable[..., Any], count: int = 1) -> Rule:
    """A rule from a formula of JAX, all of whose operations have rules."""

    @cache
    def traced() -> Any:
        """The formula's variables, its constants, and its operations: rule, parameters, in and out."""
        jaxpr = jax.make_jaxpr(function)(*[np.float32(0)] * count).jaxpr
        fixed: dict[int, Scalar] = {}

        def name(atom: Any) -> int:
            if isinstance(atom, core.Literal):
                fixed[id(atom)] = constant(kind_of(atom.aval), atom.val)
            return id(atom)

        steps = [
            (ELEMENTWISE[q.primitive.name], q.params, [name(atom) for atom in q.invars], id(q.outvars[0]))
            for q in jaxpr.eqns
        ]
        return jaxpr, fixed, steps  # names are valid as long as the jaxpr is kept

    def rule(e: Writer, given: Any, *entries: Scalar) -> Scalar:
        jaxpr, fixed, steps = traced()
        known = fixed | {id(variable): x for variable, x in zip(jaxpr.invars, entries, strict=True)}
        for apply, params, inputs, output in steps:
            known[output] = apply(e, params, *[known[name] for name in inputs])
        return known[id(jaxpr.outvars[0])]

    return rule


EXP, LOG, POWER = _formula(maths.exp), _formula(maths.log), _formula(maths.power, 2)


def _exp(e: Writer, given: Any, x: Scalar) -> Scalar:
    """e^x; for x = a − log s it is e^a / s if e^a is known, so that a softmax computes it once."""
    if x.value is not None:
        with np.errstate(all="ignore"):
            return constant("f", np.exp(x.value))
    if (found := _known_exp(e, x)) is not None:
        return found
    name, *made = x.made or ("",)
    if name == "select" and (_is_constant(made[1]) or _is_constant(made[2])):
        return e.select(made[0], _exp(e, given, made[1]), _exp(e, given, made[2]))
    if name == "sub" and made[1].made[:1] == ("log",) and (top := _known_exp(e, made[0])) is not None:
        return e.binary("mul", top, e.binary("div", constant("f", 1), made[1].made[1]))
    found = e.levels[x.level].known["exp", x.text] = EXP(e, given, x)
    return found


def _known_exp(e: Writer, x: Scalar) -> Scalar | None:
    return e.levels[x.level].known.get(("exp", x.text)) if x.level < len(e.levels) else None


def _is_constant(x: Scalar) -> bool:
    """Whether this is one of a few constants."""
    return x.value is not None or (x.made[:1] == ("select",) and all(map(_is_constant, x.made[2:])))


def _log(e: Writer, given: Any, x: Scalar) -> Scalar:
    if x.value is not None:
        with np.errstate(all="ignore"):
            return constant("f", np.log(x.value))
    found = LOG(e, given, x)
    found.made = ("log", x)
    return found


def _power(e: Writer, given: Any, x: Scalar, y: Scalar) -> Scalar:
    is_half = y.value is not None and y.value == 0.5
    return e.call("sqrt", "f", x) if is_half else POWER(e, given, x, y)


def _whole_power(e: Writer, given: Any, x: Scalar) -> Scalar:
    total, square, n = constant(x.kind, 1), x, abs(given["y"])
    while n:
        total = e.binary("mul", total, square) if n & 1 else total
        n >>= 1
        square = e.binary("mul", square, square) if n else square
    return total if given["y"] >= 0 else e.binary("div", constant("f", 1), total)


def larger(e: Writer, given: Any, a: Scalar, b: Scalar, name: str = "gt") -> Scalar:
    """The greater of two, or NaN if one of them is NaN."""
    if b.value is not None:
        a, b = b, a  # a constant, which is not NaN, goes first
    found = e.select(e.compare(name, a, b), a, b)
    return found if a.kind != "f" or a.value is not None else e.select(e.is_nan(a), a, found)


def smaller(e: Writer, given: Any, a: Scalar, b: Scalar) -> Scalar:
    return larger(e, given, a, b, "lt")


def _clamp(e: Writer, given: Any, low: Scalar, x: Scalar, high: Scalar) -> Scalar:
    return smaller(e, given, larger(e, given, x, low), high)


def _negative(e: Writer, given: Any, x: Scalar) -> Scalar:
    if x.value is not None:
        return constant(x.kind, -x.value)
    if x.kind != "f":
        return e.binary("sub", constant(x.kind, 0), x)
    return e.emit("f", x.wide, f"fneg {e.type('f', x.wide)} {x.text}", x.level)


def _absolute(e: Writer, given: Any, x: Scalar) -> Scalar:
    return e.call("fabs", "f", x) if x.kind == "f" else larger(e, given, x, _negative(e, given, x))


def _sign(e: Writer, given: Any, x: Scalar) -> Scalar:
    zero, one, minus = (constant(x.kind, value) for value in (0, 1, -1))
    return e.select(e.compare("gt", x, zero), one, e.select(e.compare("lt", x, zero), minus, x))


def negation(e: Writer, given: Any, x: Scalar) -> Scalar:
    return e.binary("xor", x, constant(x.kind, True if x.kind == "b" else -1))


def _round(e: Writer, given: Any, x: Scalar) -> Scalar:
    return e.call("roundeven" if int(given["rounding_method"]) == 1 else "round", "f", x)


def select(e: Writer, given: Any, which: Scalar, *cases: Entry) -> Entry:
    """The case of this number, or the nearest one."""
    if isinstance(cases[0], Key):
        pairs = zip(*(case.words for case in cases), strict=True)
        return Key(*(select(e, given, which, *pair) for pair in pairs))
    if which.kind == "b":
        return e.select(which, cases[1], cases[0])
    found = cases[-1]
    for j in reversed(range(len(cases) - 1)):
        here = e.compare("le" if j == 0 else "eq", which, constant(which.kind, j))
        found = e.select(here, cases[j], found)
    return found


def threefry(e: Writer, key: Key, counter: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
    """The hash of `jax.random`."""
    k0, k1 = key.words
    schedule = (k0, k1, e.binary("xor", e.binary("xor", k0, k1), constant("u", 0x1BD11BDA)))
    a, b = (e.binary("add", x, k) for x, k in zip(counter, key.words, strict=True))
    for turn in range(20):
        distance = constant("u", ROTATIONS[turn // 4 % 2][turn % 4])
        a = e.binary("add", a, b)
        b = e.binary("xor", a, e.call("fshl", "u", b, b, distance))
        if turn % 4 == 3:
            j = turn // 4 + 1
            a = e.binary("add", a, schedule[j % 3])
            b = e.binary("add", b, e.binary("add", schedule[(j + 1) % 3], constant("u", j)))
    return a, b


def _fold_in(e: Writer, given: Any, key: Key, number: Scalar) -> Key:
    return Key(*threefry(e, key, (constant("u", 0), e.convert(number, "u"))))


ELEMENTWISE: dict[str, Rule] = {
    **{name: _binary(name) for name in ("add", "sub", "mul", "div", "rem", "and", "or", "xor")},
    **{name: _compare(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: _intrinsic(name) for name in ("sqrt", "floor", "ceil")},
    **{name: _formula(getattr(maths, name)) for name in ("expm1", "log1p", "logistic", "tanh")},
    **{name: _formula(getattr(maths, name)) for name in ("erf_inv", "lgamma")},
    "add_any": _binary("add"),
    "max": larger,
    "min": smaller,
    "clamp": _clamp,
    "neg": _negative,
    "abs": _absolute,
    "sign": _sign,
    "not": negation,
    "exp": _exp,
    "exp2": lambda e, given, x: _exp(e, given, e.binary("mul", x, constant("f", math.log(2)))),
    "log": _log,
    "pow": _power,
    "integer_pow": _whole_power,
    "square": lambda e, given, x: e.binary("mul", x, x),
    "rsqrt": lambda e, given, x: e.binary("div", constant("f", 1), e.call("sqrt", "f", x)),
    "fma": lambda e, given, a, b, c: e.fma(a, b, c),
    "round": _round,
    "is_finite": lambda e, given, x: e.compare("lt", _absolute(e, given, x), constant("f", np.inf)),
    "select_n": select,
    "shift_left": lambda e, given, x, by: e.shift("shl", x, by),
    "shift_right_logical": lambda e, given, x, by: e.shift("lshr", x, by),
    "shift_right_arithmetic": lambda e, given, x, by: e.shift("ashr", x, by),
    "convert_element_type": lambda e, given, x: e.convert(x, KINDS[str(given["new_dtype"])]),
    "bitcast_convert_type": lambda e, given, x: e.bitcast(x, KINDS[str(given["new_dtype"])]),
    "random_fold_in": _fold_in,
    **dict.fromkeys(("copy", "copy_p", "name", "stop_gradient"), lambda e, given, x: x),
}
COSTS = dict.fromkeys(("exp", "log", "log1p", "expm1", "pow", "erf_inv", "lgamma", "tanh", "logistic"), 10)
COSTS |= dict.fromkeys(("div", "sqrt", "rem", "random_fold_in"), 5)
"""the cost of operations, where it is not 1"""
