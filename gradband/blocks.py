"""Work in blocks of a fixed shape, shared out among workers.

A block is B instances in one compiled computation. Which instance is which depends on the seed alone,
B on the number of arms alone, and every worker runs the same compiled code, one block at a time. So a
result has the same bits whatever the number of workers, and of the instances only their results, a few
numbers each, take memory.
"""

import collections
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from gradband import machine, processes
from gradband.errors import InputError, whole


def block_size(arms: int) -> int:
    """Instances in a block: a power of two that keeps a block's state within a core's cache."""
    return int(2 ** np.clip(np.round(np.log2(1024 / arms)), 5, 9))


def kept_block_size(runs: int, horizon: int) -> int:
    """Instances in a block whose rounds are kept for a gradient: about 128 runs, fewer if they are long."""
    most = min(128, 2**16 / horizon)
    return int(2 ** max(0, np.floor(np.log2(most / runs))))


def workers(count: int | None = None) -> tuple[Any, ...]:
    """The device of each worker: every local device, or the CPU once for each core.

    A CPU that JAX sees as one device runs several blocks at a time, one a worker.
    """
    local = jax.local_devices()
    usual = len(local)
    if usual == 1 and local[0].platform == "cpu":
        usual = machine.cores()
    wanted = usual if count is None else whole("devices", count)
    if wanted > max(usual, 64):
        raise InputError(f"devices must be at most {max(usual, 64)}, not {wanted}")
    return tuple(local[i % len(local)] for i in range(wanted))


@functools.cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="gradband")


def map_blocks(
    function: Callable[..., Any],
    operands: Any,
    instances: int,
    size: int,
    on: tuple[Any, ...],
    report: Callable[[int], None] | None = None,
) -> list[Any]:
    """`function(*operands, block)` for the blocks 0, 1, … that hold `instances`, as NumPy arrays.

    `function` is compiled for one block. Of several processes each does a part of the blocks, and all have
    the results. `report` is told how many blocks are done.
    """
    total = -(-instances // size)
    blocks = processes.mine(total)
    alone = len(set(on)) == 1
    copies = {} if alone else {device: jax.device_put(operands, device) for device in set(on)}

    def run(block: int) -> Any:
        given = operands if alone else copies[on[block // processes.count() % len(on)]]
        return jax.tree.map(np.asarray, function(*given, np.int32(block)))

    results = []
    for result in map(run, blocks) if len(on) == 1 else _in_parallel(run, blocks, len(on)):
        results.append(result)
        if report:
            report(min(len(results) * processes.count(), total))
    if processes.count() == 1:
        return results
    like = results[0] if results else jax.eval_shape(function, *operands, np.int32(0))
    return processes.gathered(results, like, total)


def _in_parallel(run: Callable[[int], Any], blocks: range, count: int) -> Iterator[Any]:
    """The results in order. Only a few blocks wait at a time, so an interruption ends soon."""
    waiting: collections.deque[Future[Any]] = collections.deque()
    for block in blocks:
        waiting.append(_threads(count).submit(run, block))
        if len(waiting) > 2 * count:
            yield waiting.popleft().result()
    for future in waiting:
        yield future.result()


def join(pieces: Sequence[np.ndarray], instances: int) -> np.ndarray:
    """The blocks' results [..., B] as one double-precision array [..., instances]."""
    return np.concatenate(pieces, axis=-1, dtype=np.float64)[..., :instances]
