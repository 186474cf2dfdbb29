"""Several processes, on one machine or on many, that do the same work, each a part of its blocks.

JAX's distributed runtime connects them. All of them hold the same parameters and come to the same results;
the first one writes files.
"""

import contextlib
import functools
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gradband.core.errors import InputError, OthersEndedError, whole

HEARTBEAT = 10  # seconds without a sign of life after which a process counts as dead
PATIENCE = 120  # seconds to wait for the others at the start
SILENCE = 6  # seconds of waiting for another process after which that is said
FAREWELL = 5  # seconds that a process that fails waits for the others to fail too


def connect(coordinator: str | None = None, count: int | None = None, rank: int | None = None) -> None:
    """Connects this process with the others, before anything else is asked of JAX.

    Under Slurm, Open MPI or Kubernetes, JAX finds them by itself. Otherwise all processes are told the
    address of the first, `host:port`, how many they are, and each its number.
    """
    given = [value is not None for value in (coordinator, count, rank)]
    if any(given) and not all(given):
        raise InputError(
            "coordinator and process must be given together (--process 0/2 is the first of two), or neither"
        )
    if coordinator is not None:
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise InputError(f"coordinator must be an address such as 10.0.0.1:12345, not {coordinator!r}")
        if whole("the number of a process", rank, least=0) >= whole("the number of processes", count):
            raise InputError(f"process must be below the number of processes, {count}, not {rank}")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    usual = signal.getsignal(signal.SIGTERM)
    try:
        jax.distributed.initialize(
            coordinator,
            count,
            rank,
            initialization_timeout=PATIENCE,
            heartbeat_timeout_seconds=HEARTBEAT,
        )
    except ValueError as error:
        raise InputError(
            "no other processes were found: start them under Slurm, Open MPI or Kubernetes, or give "
            f"coordinator and process ({str(error).splitlines()[0]})"
        ) from None
    except RuntimeError as error:
        raise RuntimeError(f"the other processes did not answer: {str(error).splitlines()[0]}") from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, usual)  # JAX's own handler keeps a process from ending
    with _no_output():
        _collected(np.zeros(1, np.uint8))
    threading.Thread(target=_watch, daemon=True, name="gradband-watch").start()


@contextlib.contextmanager
def _no_output() -> Iterator[None]:
    """Keeps from standard output what gloo writes there of its peers."""
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


_waiting: dict[str, float] = {}
"""since when this process has waited for others, if it does"""


def _watch() -> None:
    """Warns that another process does not answer: if it has ended, JAX ends this one without our words."""
    patience = float(SILENCE)
    while True:
        time.sleep(1)
        since = _waiting.get("since", math.inf)
        if time.monotonic() - since > patience:
            patience *= 4  # where waiting is usual, it is not said again and again
            print(
                "gradband: another process of this run has not answered for some seconds; if it or its "
                "machine has failed, this one stops too within half a minute: everything up to the last "
                "checkpoint is kept, and --resume continues from there",
                file=sys.stderr,
                flush=True,
            )


def leave(status: int) -> None:
    """Sees to it that a process that failed ends soon.

    In an orderly end JAX waits for the other processes, which is right if they fail for the same reason,
    and would take minutes if they wait for this one.
    """
    if jax.distributed.is_initialized():
        timer = threading.Timer(FAREWELL, os._exit, (status,))
        timer.daemon = True
        timer.start()


def count() -> int:
    """How many processes there are."""
    return jax.process_count()


def first() -> bool:
    """Whether this process is the one that writes files."""
    return jax.process_index() == 0


def mine(blocks: int) -> range:
    """The blocks of this process: every P-th."""
    return range(jax.process_index(), blocks, jax.process_count())


def gathered(results: list[Any], like: Any, blocks: int) -> list[Any]:
    """The results of all processes in the order of blocks, from those of `mine`, to the bit.

    They are all of the shapes and types that `like` has.
    """
    leaves, tree = jax.tree.flatten(like)
    sizes = [leaf.size * leaf.dtype.itemsize for leaf in leaves]
    shape = -(-blocks // count()), sum(sizes)  # whoever has a block less fills up with zeros
    buffer = np.zeros(math.prod(shape) + 1, np.uint8)
    buffer[-1] = _asked["here"]
    for row, result in zip(buffer[:-1].reshape(shape), results, strict=False):
        data = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(result))
        row[:] = np.frombuffer(data, np.uint8)
    found = _collected(buffer)
    _asked["anywhere"] = int(found[:, -1].max())
    rows = found[:, :-1].reshape(count(), *shape)
    ends = np.cumsum(sizes)[:-1]

    def unpacked(row: np.ndarray) -> Any:
        parts = np.split(row, ends)
        return jax.tree.unflatten(
            tree,
            [part.view(leaf.dtype).reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)],
        )

    return [unpacked(rows[block % count(), block // count()].copy()) for block in range(blocks)]


_asked = {"here": 0, "anywhere": 0}
"""the signal to stop that this process was sent, and the one that all know of: results carry it along"""


def agreed(number: int, last: bool = False) -> int:
    """The signal to stop, once all processes know of it, so that all leave after the same iteration.

    What one was sent the others hear of with the next results, or at once if there are none to come.
    """
    if count() == 1:
        return number
    if last:
        return int(_collected(np.array([number], np.uint8)).max())
    _asked["here"] = 0 if _asked["anywhere"] else number
    return _asked["anywhere"]


def shared(data: bytes) -> bytes:
    """What the first process has, in all of them."""
    if count() == 1:
        return data
    length = int(_collected(np.array([len(data)], np.int32))[0, 0])
    padded = np.zeros(length, np.uint8)
    if first():
        padded[:] = np.frombuffer(data, np.uint8)
    return bytes(_collected(padded)[0].tobytes())


@functools.cache
def _gathering() -> tuple[Any, Any, Any]:
    """This process's device, how an array is split over processes, and what gives all of it to all."""
    first_of = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.array([first_of[i] for i in range(count())]), ("process",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    split = NamedSharding(mesh, PartitionSpec("process"))
    return jax.local_devices()[0], split, jax.jit(lambda array: array, out_shardings=everywhere)


def _collected(array: np.ndarray) -> np.ndarray:
    """The arrays of all processes [P, ...]."""
    if not array.size:
        return np.zeros((count(), *array.shape), array.dtype)
    _waiting["since"] = time.monotonic()
    try:
        device, split, gather = _gathering()
        own = jax.device_put(array[None], device)
        whole = jax.make_array_from_single_device_arrays((count(), *array.shape), split, [own])
        return np.asarray(gather(whole).addressable_data(0))
    except Exception as error:  # gloo and NCCL have errors of their own
        reason = (str(error).splitlines() or ["?"])[0]
        raise OthersEndedError(
            "another process of this run has ended, so this one stops too; everything up to the last "
            f"checkpoint is kept, and --resume continues from there ({reason[:200]})"
        ) from None
    finally:
        _waiting.clear()
