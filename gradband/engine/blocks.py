"""Jobs on many instances, shared among workers.

Lanes compute single instances. XLA computes blocks of B instances, and every worker runs the same compiled
code, one block at a time. Instances depend on the seed alone, and B on the problem, the policy and the
estimator. So results have the same bits for any number of workers, and an instance takes memory only for
its results, a few numbers.
"""

import collections
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypedDict, Unpack

import jax
import numpy as np

from gradband.core import resources
from gradband.core.errors import InputError, whole
from gradband.engine import engines, memory, processes


@functools.cache
def block_size(arms: int) -> int:
    """Instances in a block: a power of two that keeps a block's state within a core's cache."""
    return int(2 ** np.clip(np.round(np.log2(1024 / arms)), 5, 9))


@functools.cache
def kept_block_size(rollouts: int, horizon: int, instances: int) -> int:
    """Instances in a block whose rounds are kept for a gradient: about 128 rollouts, fewer if they are long
    or if one block would hold them all, and leave other workers without one."""
    most = min(128 if rollouts * instances > 128 else 64, 2**16 / horizon)
    return int(2 ** max(0, np.floor(np.log2(most / rollouts))))


class Where(TypedDict, total=False):
    """Where to compute: arguments of whatever plays many instances."""

    devices: int | None
    """how many blocks of instances are computed at a time"""
    memory: int | str | None
    """a limit for the whole process, such as "2GB"; the bits are the same with any"""
    engine: str | None
    """lanes or xla; by default lanes on a CPU, and XLA for networks and what lanes do not support"""


def check_where(given: Iterable[str]) -> None:
    """Raises an error for unknown arguments, as Python does for any function."""
    for name in given:
        if name not in Where.__annotations__:
            raise TypeError(f"got an unexpected keyword argument {name!r}")


class Workers(NamedTuple):
    """What computes blocks, and within how much memory."""

    devices: tuple[Any, ...]
    """the device of each worker"""
    memory: int | None
    """bytes for blocks and their results; None for no limit"""
    engine: str | None = None
    """lanes or xla; None for the usual choice"""


def workers(**where: Unpack[Where]) -> Workers:
    """A worker on every local device, or on the CPU one for each core.

    A CPU that JAX sees as one device runs several blocks at a time, one per worker. Without a memory limit,
    free memory may be used.
    """
    check_where(where)
    count = where.get("devices")
    local = jax.local_devices()
    usual = len(local)
    if usual == 1 and local[0].platform == "cpu":
        usual = resources.cores()
    wanted = usual if count is None else whole("devices", count)
    if wanted > max(usual, 64):
        raise InputError(f"devices must be at most {max(usual, 64)}, not {wanted}")
    devices, own = tuple(local[i % len(local)] for i in range(wanted)), local[0].platform != "cpu"
    most = None if own else memory.budget(where.get("memory"))  # GPUs have memory of their own
    return Workers(devices, most, engines.named(where.get("engine")))


@functools.cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="gradband")


class Compiled(NamedTuple):
    """What computes a block as a job's function does, in code for vector units."""

    function: Callable[..., Any]
    needs: memory.Needs


class BlockJob(NamedTuple):
    """`function(*settings, *operands, block)` for the blocks 0, 1, … that hold `instances`, B in each.

    The function is compiled for its settings and one block.
    """

    function: Callable[..., Any]
    settings: tuple[Any, ...]
    operands: tuple[Any, ...]
    instances: int
    size: int
    separable: bool = False
    """whether all results end in an axis of instances, so that each can be computed by itself"""
    known: dict[Workers, tuple[Any, tuple[Any, ...]]] | None = None
    """for a repeated job: the kernel and the workers that were found before"""
    compiled: "Compiled | None" = None
    """what computes a block on a CPU in place of XLA, unless XLA is asked for"""

    @property
    def blocks(self) -> int:
        return -(-self.instances // self.size)

    def workers(self, on: Workers) -> tuple[Any, ...]:
        """The workers that there is memory for, or an error if there is not enough for one."""
        return self.workers_for(self.kernel(on), on)

    def workers_for(self, kernel: Any, on: Workers) -> tuple[Any, ...]:
        """The same for the kernel of this job, or for XLA if it has none."""
        if on.memory is None:
            return on.devices
        needs = self.needs(kernel)
        what = f"{self.blocks} blocks of {self.size} instances"
        return on.devices[: memory.at_once(needs, self.blocks, len(on.devices), on.memory, what)]

    def needs(self, kernel: Any) -> memory.Needs:
        """Memory for this kernel of the job, or for XLA if it has none."""
        if kernel is None:
            return memory.estimate(self.function, self.settings, (*self.operands, np.int32(0)))
        if isinstance(kernel, Compiled):
            return kernel.needs
        return memory.Needs(0, kernel.scratch_bytes, 4 * kernel.rows * self.size)

    def prepare(self, on: Workers) -> tuple[Any, tuple[Any, ...]]:
        """The kernel, if there is one, and the workers that there is memory for."""
        if self.known is not None and on in self.known:
            return self.known[on]
        kernel = self.kernel(on)
        found = kernel, self.workers_for(kernel, on)
        if self.known is not None:
            self.known[on] = found
        return found

    def kernel(self, on: Workers) -> Any:
        """The kernel that computes this in lanes or by the block, or None if XLA does."""
        if self.compiled is not None and engines.may_compile(on.engine, on.devices[0].platform):
            return self.compiled
        return engines.kernel_for(self, on.engine, on.devices[0].platform)


def map_blocks(job: BlockJob, on: Workers, report: Callable[[float], None] | None = None) -> list[Any]:
    """The results of all blocks as NumPy arrays.

    Several processes share the blocks, and each gets all results. `report` is told how many blocks are
    done. Only as many blocks are computed at a time as fit into memory.
    """
    (kernel, devices), total = job.prepare(on), job.blocks
    if kernel is None or isinstance(kernel, Compiled):
        run, like = _by_block(job, devices, kernel)
    elif processes.count() == 1:
        told = report and (lambda share: report(share * total))
        return [kernel(job.operands, 0, job.instances, len(devices), told)]
    else:
        run, like = _in_lanes(job, kernel), None
    results, blocks = [], processes.mine(total)
    for result in map(run, blocks) if len(devices) == 1 else _in_parallel(run, blocks, len(devices)):
        results.append(result)
        if report:
            report(min(len(results) * processes.count(), total))
    if processes.count() == 1:
        return results
    return processes.gathered(results, results[0] if results else like or run(0), total)


def _by_block(
    job: BlockJob, devices: tuple[Any, ...], kernel: Compiled | None
) -> tuple[Callable[[int], Any], Any]:
    """What computes a block, by XLA unless there is a kernel, and the shapes of its results."""
    whole = functools.partial(job.function, *job.settings)
    function = whole if kernel is None else functools.partial(kernel.function, *job.settings)
    operands = job.operands
    alone = len(set(devices)) == 1
    copies = {} if alone else {device: jax.device_put(operands, device) for device in set(devices)}

    def run(block: int) -> Any:
        given = operands if alone else copies[devices[block // processes.count() % len(devices)]]
        return jax.tree.map(np.asarray, function(*given, np.int32(block)))

    return run, jax.eval_shape(whole, *operands, np.int32(0)) if processes.count() > 1 else None


def _in_lanes(job: BlockJob, kernel: Any) -> Callable[[int], Any]:
    def run(block: int) -> Any:
        return kernel(job.operands, block * job.size, (block + 1) * job.size, 1)

    return run


def _in_parallel(run: Callable[[int], Any], blocks: range, count: int) -> Iterator[Any]:
    """The results in order. Only a few blocks are queued at a time, so interruptions take effect soon."""
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
