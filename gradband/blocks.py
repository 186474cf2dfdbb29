"""Work in blocks of a fixed shape, shared out among devices.

A block is B instances in one compiled computation. Which instance is which depends on the seed
alone, and B on the number of arms alone, so a result has the same bits on any number of devices
and for any number of blocks computed at a time.
"""

import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from gradband.errors import InputError, whole


def use_cores() -> None:
    """Gives JAX one CPU device a core (or GRADBAND_DEVICES), unless JAX has started already."""
    given = os.environ.get("GRADBAND_DEVICES", "")
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if given and not (given.isdecimal() and int(given) > 0):
        raise InputError(f"GRADBAND_DEVICES must be a whole number of at least 1, not {given!r}")
    with contextlib.suppress(RuntimeError):  # JAX runs already: its devices are the user's choice
        jax.config.update("jax_num_cpu_devices", int(given) if given else count)


def block_size(arms: int) -> int:
    """Instances in a block: a power of two that keeps a block's state within a core's cache."""
    return int(2 ** np.clip(np.round(np.log2(1024 / arms)), 5, 9))


def devices(count: int | None = None) -> tuple[Any, ...]:
    """The first `count` local devices, all of them by default."""
    available = jax.local_devices()
    if count is not None and whole("devices", count) > len(available):
        raise InputError(f"there are {len(available)} devices, not {count}")
    return tuple(available[:count])


def map_blocks(
    function: Callable[[Any, Array], Any], operands: Any, blocks: Array, on: tuple[Any, ...]
) -> Any:
    """`function(operands, block)` for every number in `blocks` [N], N a multiple of the devices.

    Call it under `jax.jit`. Each device goes through its share one block at a time, so memory does
    not grow with N. The results are stacked in the order of `blocks`.
    """
    mesh = Mesh(np.array(on), ("devices",))
    shares, everywhere = PartitionSpec("devices"), PartitionSpec()

    @partial(jax.shard_map, mesh=mesh, in_specs=(everywhere, shares), out_specs=shares, check_vma=False)
    def share(operands: Any, blocks: Array) -> Any:
        return jax.lax.map(partial(function, operands), blocks)

    return share(operands, blocks)


def block_numbers(instances: int, size: int, on: tuple[Any, ...], first: int = 0) -> np.ndarray:
    """Numbers of the blocks that hold `instances`, filled up to a multiple of the devices."""
    count = -(-instances // size)
    return np.arange(first, first + -(-count // len(on)) * len(on), dtype=np.int32)


def gather(stacked: Any, instances: int) -> Any:
    """Results [N, ..., B] as NumPy arrays [..., instances], in the order of the instances."""

    def join(array: Array) -> np.ndarray:
        joined = np.moveaxis(np.asarray(array), 0, -2)
        return joined.reshape(*joined.shape[:-2], -1)[..., :instances]

    return jax.tree.map(join, stacked)
