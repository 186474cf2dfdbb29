"""Memory: how much a computation takes, and how many blocks can be computed at a time.

The memory of a function is estimated from its trace, before anything is compiled, as the arrays that are
alive at once. Nearly all of it is the arrays of a block's rounds that are stored for a gradient.
"""

import functools
import math
import re
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from gradband.core import resources
from gradband.core.errors import InputError, shown

AT_REST = 600_000_000
"""bytes of a process without any blocks: Python, JAX and the compiler"""
UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
UNITS |= {"k": 2**10, "kib": 2**10, "m": 2**20, "mib": 2**20}
UNITS |= {"g": 2**30, "gib": 2**30, "t": 2**40, "tib": 2**40}


def parse(given: int | str) -> int:
    """The number of bytes that a number or a text such as 2GB means.

    >>> parse("1.5 GB"), parse("512MiB")
    (1500000000, 536870912)
    """
    if isinstance(given, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([a-z]*)\s*", given.lower())
        if found is None or found[2] not in UNITS:
            raise InputError(f"memory must be a size such as 2GB or 500MB, not {shown(given)}")
        given = math.floor(min(float(found[1]), 1e30) * UNITS[found[2]])
    count: Any = given
    if isinstance(count, bool) or not isinstance(count, Integral) or int(count) < 1:
        raise InputError(f"memory must be a size such as 2GB, or a number of bytes, not {shown(given)}")
    return int(count)


class Needs(NamedTuple):
    """Bytes of a computation in blocks."""

    shared: int
    """shared by all blocks"""
    block: int
    """for each block while it is computed"""
    result: int
    """for each block's results"""

    def total(self, blocks: int, at_once: int) -> int:
        """Bytes for these blocks. All results are kept, then joined in double precision."""
        return self.shared + min(blocks, at_once) * self.block + 3 * blocks * self.result


def budget(limit: int | str | None) -> int | None:
    """Bytes for blocks and their results, from a limit for the whole process or from what is free."""
    if limit is None:
        free = resources.free_memory()
        return None if free is None else int(0.9 * free)
    most = parse(limit)
    if most <= AT_REST:
        raise InputError(
            f"memory must be above {resources.in_bytes(AT_REST)}, which Python, JAX and compiled code need "
            f"before any work starts, not {resources.in_bytes(most)}"
        )
    return most - AT_REST


def at_once(needs: Needs, blocks: int, wanted: int, most: int, what: str) -> int:
    """How many blocks fit into memory at a time, at most `wanted`."""
    least = needs.total(blocks, 1)
    if least > most:
        raise InputError(
            f"{what} need {resources.in_bytes(least)} of memory ({resources.in_bytes(needs.block)} while "
            f"one is computed), but only {resources.in_bytes(most)} is available: use fewer instances "
            "or rounds"
        )
    return min(wanted, 1 + (most - least) // max(1, needs.block))


def estimate(function: Callable[..., Any], settings: tuple[Any, ...], operands: tuple[Any, ...]) -> Needs:
    """Memory for `function(*settings, *operands)`, a function of a block, from its trace."""
    leaves, tree = jax.tree.flatten(operands)
    shapes = tuple((np.shape(leaf), leaf.dtype) for leaf in leaves)
    return _traced(function, settings, tree, shapes)


@functools.lru_cache(maxsize=256)
def _traced(function: Callable[..., Any], settings: tuple[Any, ...], tree: Any, shapes: Any) -> Needs:
    operands = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*shape) for shape in shapes])
    traced = jax.make_jaxpr(functools.partial(function, *settings))(*operands).jaxpr
    given = sum(map(_size, (*traced.invars, *traced.constvars)))
    return Needs(given, _most(traced) - given, sum(map(_size, traced.outvars)))


def _most(jaxpr: Any) -> int:
    """The most bytes that are alive at once while operations run one after another."""
    last = {v: i for i, equation in enumerate(jaxpr.eqns) for v in equation.invars if _named(v)}
    last |= {v: len(jaxpr.eqns) for v in jaxpr.outvars if _named(v)}
    alive = most = sum(map(_size, (*jaxpr.invars, *jaxpr.constvars)))
    for i, equation in enumerate(jaxpr.eqns):
        inner = max((_most(sub) - sum(map(_size, sub.invars)) for sub in _inside(equation)), default=0)
        alive += sum(map(_size, equation.outvars))
        most = max(most, alive + inner)
        done = {v for v in equation.invars if _named(v) and last[v] == i}
        alive -= sum(map(_size, done | {v for v in equation.outvars if v not in last}))
    return most


def _inside(equation: Any) -> Iterator[Any]:
    """The jaxprs that an operation runs, such as the body of a loop."""
    for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
        if _is_jaxpr(parameter):
            yield getattr(parameter, "jaxpr", parameter)


def _is_jaxpr(value: Any) -> bool:
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr)


def _named(variable: Any) -> bool:
    return not isinstance(variable, core.Literal)


def _size(variable: Any) -> int:
    shape = getattr(variable.aval, "shape", ())
    return math.prod(shape) * getattr(variable.aval.dtype, "itemsize", 4)
