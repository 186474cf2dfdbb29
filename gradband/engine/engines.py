"""Chooses the engine for a job: lanes on a CPU, XLA for whatever lanes do not support.

Lanes play one instance per vector lane (`gradband.engine.lanes`). XLA serves GPUs and TPUs, gradients in
reverse mode, sums over a block's instances, and operations that lanes lack. The choice is made for each
program, and logged by the logger `gradband` at the level INFO.
"""

import dataclasses
import functools
import logging
import os
import threading
import time
from typing import Any

import jax
import numpy as np

from gradband.core.errors import InputError, unknown
from gradband.engine import identity

ENGINES = ("lanes", "xla")
VARIABLE = "GRADBAND_ENGINE"
MOST_KERNELS = 512  # that a process keeps
log = logging.getLogger("gradband")


def named(engine: str | None) -> str | None:
    """The engine that was requested, by argument or environment variable; None for the usual choice."""
    engine = engine or os.environ.get(VARIABLE) or None
    if engine is not None and engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    return engine


_kernels: dict[Any, Any] = {}
"""kernels, or the reason why there is none, by all that decides them"""
_lock = threading.Lock()


def may_compile(engine: str | None, platform: str) -> bool:
    """Whether code for vector units may compute blocks in place of XLA."""
    from gradband.engine.lanes.compiler import is_fit

    return engine is None and platform == "cpu" and is_fit()


def kernel_for(job: Any, engine: str | None, platform: str) -> Any:
    """The kernel that computes a job's instances in lanes, or None if XLA does."""
    if engine == "xla" or platform != "cpu" or not job.separable:
        if engine == "lanes":
            raise InputError("lanes compute single instances on a CPU: this needs the engine xla")
        return None
    leaves, tree = jax.tree.flatten(job.operands)
    shapes = tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)
    name = job.function, job.settings, tree, shapes
    with _lock:
        if name not in _kernels:
            if len(_kernels) >= MOST_KERNELS:
                _kernels.pop(next(iter(_kernels)))
            _kernels[name] = _build(job)
        found = _kernels[name]
    if isinstance(found, str):
        if engine == "lanes":
            raise InputError(f"lanes do not support this program ({found}): use the engine xla")
        return None
    return found


def _build(job: Any) -> Any:
    """A kernel, or the reason why there is none."""
    spec, *rest = job.settings
    began = time.perf_counter()
    try:
        from gradband.engine.lanes.compiler import is_fit
        from gradband.engine.lanes.kernel import Kernel

        if not is_fit():
            raise ImportError("this processor has no fused multiply-add")
        # A block of one instance: the block's number is the instance's.
        one = functools.partial(job.function.__wrapped__, dataclasses.replace(spec, size=1), *rest)
        name = identity.name_of(job.function, job.settings, job.operands)
        found: Any = Kernel(one, job.operands, name)
    except Exception as error:  # XLA computes the same, or says what is wrong
        found = f"{error}" or type(error).__name__
    words = f"left to XLA: {found}" if isinstance(found, str) else "in lanes"
    what = f"{job.function.__name__.strip('_')} {spec.policy.name}"
    log.info("%s: %s, after %.2f s", what, words, time.perf_counter() - began)
    return found
