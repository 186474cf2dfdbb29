"""Several processes, on one machine or many, that share the blocks of the same work.

JAX's distributed runtime connects them. All hold the same parameters and get the same results; the first
one writes files.
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
SILENCE = 6  # seconds of waiting for another process before a warning
FAREWELL = 5  # seconds that a failing process waits for the others to fail too


def connect(coordinator: str | None = None, count: int | None = None, rank: int | None = None) -> None:
    """Connects this process with the others. Call it before any other use of JAX.

    Under Slurm, Open MPI or Kubernetes, JAX finds the others. Otherwise every process needs the address of
    the first, `host:port`, the number of processes, and its own number.
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
    """Suppresses gloo's messages about its peers on standard output."""
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
"""since when this process has been waiting for others, if it is"""


def _watch() -> None:
    """Warns if another process does not answer: JAX would end this one without a clear error."""
    patience = float(SILENCE)
    while True:
        time.sleep(1)
        since = _waiting.get("since", math.inf)
        if time.monotonic() - since > patience:
            patience *= 4  # slow runs should not warn again and again
            print(
                "gradband: another process of this run has not answered for some seconds; if it or its "
                "machine has failed, this one stops too within half a minute: everything up to the last "
                "checkpoint is kept, and --resume continues from there",
                file=sys.stderr,
                flush=True,
            )


def leave(status: int) -> None:
    """Ends a failed process soon.

    On a normal exit JAX waits for the other processes. That is right if they fail for the same reason, but
    takes minutes if they wait for this one.
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
    """The results of all processes in the order of blocks, with the same bits, from those of `mine`.

    All have the shapes and types of `like`.
    """
    leaves, tree = jax.tree.flatten(like)
    sizes = [leaf.size * leaf.dtype.itemsize for leaf in leaves]
    shape = -(-blocks // count()), sum(sizes)  # processes with a block less add zeros
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
"""the stop signal that this process received, and the one that all know of, which results carry along"""


def agreed(number: int, last: bool = False) -> int:
    """The stop signal, once all processes know of it, so that all stop after the same iteration.

    The others learn of it with the next results, or at once if these were the last.
    """
    if count() == 1:
        return number
    if last:
        return int(_collected(np.array([number], np.uint8)).max())
    _asked["here"] = 0 if _asked["anywhere"] else number
    return _asked["anywhere"]


def shared(data: bytes) -> bytes:
    """The first process's data, in all processes."""
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
