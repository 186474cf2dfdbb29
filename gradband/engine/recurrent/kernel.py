"""Compiles forward and backward for this machine, and calls them on blocks of rollouts."""

import ctypes
import logging
import threading
import time
from functools import cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from gradband.engine.lanes import compiler
from gradband.engine.recurrent import backward, forward
from gradband.engine.recurrent.backward import BACKWARD
from gradband.engine.recurrent.forward import AHEAD, FORWARD, Shape
from gradband.engine.recurrent.vectors import LANES

FUNCTIONS = {"forward": FORWARD, "ahead": AHEAD, "backward": BACKWARD}
BY_ROLLOUT = ("uniforms", "rewards", "arms", "log_probs", "slopes", "after")
log = logging.getLogger("gradband")
WIDE, NARROW = 64, 16  # lanes of a tile with 32 registers of 16 floats, and with 16 of 8


class Weights(NamedTuple):
    """A network's weights as the functions read them."""

    gates: Any
    head: Any
    bias: Any
    back: Any
    back_head: Any


class Slopes(NamedTuple):
    """Derivatives with respect to the weights."""

    gates: np.ndarray
    """[d, 4, padded], by unit and gate"""
    head: np.ndarray
    """[K, d, 64], to be summed over lanes"""
    bias: np.ndarray
    """[K, 64], as well"""


class Kernel:
    """An LSTM with K arms and d units, compiled."""

    def __init__(self, shape: Shape) -> None:
        self.shape, module = shape, ir.Module("lstm")
        for part in (forward, backward):
            part.write(module, shape, _tile())
        self.code = compiler.functions(str(module), *FUNCTIONS)
        self.functions = {
            name: ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers), *[ctypes.c_int64] * 2)(
                self.code[name]
            )
            for name, pointers in FUNCTIONS.items()
        }

    def play(
        self, weights: Weights, uniforms: np.ndarray, rewards: np.ndarray, look_ahead: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Arms [n, N] and log p of all arms [n, K, N], from uniforms [n, N] and all rewards [n, K, N].

        If it is to `look_ahead`, where rewards are 0 or 1, log p after either of them [2, n, K, N] as well.
        What `differentiate` needs of these rollouts is kept for this thread.
        """
        rounds, count = uniforms.shape
        arms, log_probs = np.empty_like(uniforms), np.empty_like(rewards)
        given = {"uniforms": uniforms, "rewards": rewards, "arms": arms, "log_probs": log_probs}
        given |= {"gates": weights.gates, "head": weights.head, "bias": weights.bias}
        given["inputs"] = _scratch("inputs", 2 * self.shape.inputs * LANES)
        name, after = "forward", None
        if look_ahead:
            name, after = "ahead", np.empty((2, *rewards.shape), np.float32)
            given |= {"after": after, "imagined": _scratch("imagined", 2 * self.shape.hidden * LANES)}
        for group in range(count // LANES):
            self._call(name, given | {"kept": self._kept(group, rounds)}, group, count)
        return arms, log_probs, after

    def differentiate(
        self, weights: Weights, rewards: np.ndarray, arms: np.ndarray, slopes: np.ndarray
    ) -> Slopes:
        """Derivatives from those with respect to scores [n, K, N], after `play` in the same thread."""
        (d, k), padded = self.shape, self.shape.padded
        found = Slopes(*(np.zeros(s, np.float32) for s in ((d, 4, padded), (k, d, LANES), (k, LANES))))
        given = {"rewards": rewards, "arms": arms, "slopes": slopes}
        given |= {"back": weights.back, "back_head": weights.back_head}
        given |= {"of_gates": found.gates, "of_head": found.head, "of_bias": found.bias}
        sizes = {"inputs": padded, "turned": padded, "bent": d, "sums": 8 * d, "cells": d}
        given |= {name: _scratch(f"back {name}", size * LANES) for name, size in sizes.items()}
        rounds, count = arms.shape
        for group in range(count // LANES):
            self._call("backward", given | {"kept": self._kept(group, rounds)}, group, count)
        return found

    def _kept(self, group: int, rounds: int) -> np.ndarray:
        return _scratch(f"kept {group}", (rounds + 1) * 5 * self.shape.hidden * LANES)

    def _call(self, name: str, given: dict[str, Any], group: int, count: int) -> None:
        """Calls a function on a group of 64 of the rollouts."""
        shifts = dict.fromkeys(BY_ROLLOUT, 4 * LANES * group)
        pointers = (given[x].ctypes.data + shifts.get(x, 0) for x in FUNCTIONS[name])
        self.functions[name](*pointers, given["arms"].shape[0], count)


def bytes_for(shape: Shape, rounds: int, count: int) -> int:
    """Memory for so many rollouts at once."""
    return 4 * count * (5 * shape.hidden * (rounds + 1) + (6 * shape.arms + 4) * rounds)


def kernel_for(shape: Shape) -> Kernel:
    """The compiled network of this size; whoever asks first compiles it."""
    with _lock:
        return made(shape)


@cache
def made(shape: Shape) -> Kernel:
    began = time.perf_counter()
    found = Kernel(shape)
    log.info("an LSTM, forward and back: compiled, after %.2f s", time.perf_counter() - began)
    return found


def _tile() -> int:
    return WIDE if llvm.get_host_cpu_features().get("avx512f", False) else NARROW


_lock = threading.Lock()
_own = threading.local()


def _scratch(name: str, size: int) -> np.ndarray:
    """Memory of a thread's own, kept for the next block."""
    known = vars(_own)
    if name not in known or known[name].size < size:
        known[name] = np.empty(size, np.float32)
    return known[name]
