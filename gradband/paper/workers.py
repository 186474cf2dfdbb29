"""Distributes units of work among processes, each with its own cores.

JAX is not imported here, so that a worker can choose its cores before JAX counts them.
"""

import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any

from gradband.core import progress, resources
from gradband.core.errors import InputError
from gradband.paper.store import Store
from gradband.paper.unit import Unit

DEATH_SIGNAL = 1  # Linux's PR_SET_PDEATHSIG
_notes: Any = None  # the queue for a worker's progress


def do_all(
    units: list[Unit],
    folder: Path,
    jobs: int,
    done: Callable[[Unit], None],
    note: Callable[[Unit, float, str], None],
) -> list[tuple[Unit, str]]:
    """Does all units, `jobs` at a time, and stores each result in the folder at once.

    Returns the units that failed, with their errors; the others continue.
    """
    failed: list[tuple[Unit, str]] = []
    with _pool(jobs) as (pool, notes):
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # workers leave Ctrl-C to their parent
        try:
            running: dict[Future[None], Unit] = {
                pool.submit(_work, place, unit, folder): unit for place, unit in enumerate(units)
            }
        finally:
            signal.signal(signal.SIGINT, before)
        while running:
            finished, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
            for place, part, words in _waiting(notes):
                if units[place] in running.values():
                    note(units[place], part, words)
            for future in finished:
                unit = running.pop(future)
                if isinstance(error := future.exception(), BrokenProcessPool):
                    raise RuntimeError(
                        "a worker process died, perhaps for lack of memory: try fewer --jobs. Finished "
                        "units are stored"
                    )
                if error is not None:
                    failed.append((unit, f"{type(error).__name__}: {error}"))
                done(unit)
    return failed


@contextlib.contextmanager
def _pool(jobs: int) -> Iterator[tuple[ProcessPoolExecutor, Any]]:
    """Processes, and the queue of their notes."""
    context = get_context("spawn")
    notes, shares = context.Queue(), context.Queue()
    for share in (cores := list(_shares(jobs))):
        shares.put(share)
    if cores[0]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(len(cores[0])))
    pool = ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(notes, shares))
    try:
        yield pool, notes
    except BaseException:
        # After any error, nobody waits for the running units.
        for process in active_children():
            process.kill()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _shares(jobs: int) -> Iterator[list[int]]:
    """Cores for each job: divided among the jobs, or taken in turn if there are more jobs than cores."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    for job in range(jobs):
        yield cores[job::jobs] or cores[job % len(cores) :][:1] if cores else []


def _waiting(notes: Any) -> Iterator[tuple[int, float, str]]:
    with contextlib.suppress(queue.Empty):
        while True:
            yield notes.get_nowait()


def _begin(notes: Any, shares: Any) -> None:
    """Sets up a worker: it ends with its parent, and has its own cores."""
    global _notes
    _notes = notes
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)  # at once, whatever it is doing
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if share := shares.get():
        os.sched_setaffinity(0, share)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _work(place: int, unit: Unit, folder: Path) -> None:
    """Does a unit in a worker, and stores its result."""
    from gradband.paper import work

    progress.silence()  # the parent shows what `note` says
    began, told = time.perf_counter(), 0.0

    def note(share: float, words: str) -> None:
        nonlocal told
        if time.perf_counter() > told + 0.1:
            told = time.perf_counter()
            _notes.put((place, share, words))

    store = Store(folder)
    draft = store.draft(unit)
    draft.parent.mkdir(parents=True, exist_ok=True)
    result = work.carry_out(unit, work.Desk(note, draft))
    store.keep(unit, result, time.perf_counter() - began)


def check_jobs(jobs: int | None) -> int:
    """The number of units to do at a time: as given, or one per core."""
    wanted = resources.cores() if jobs is None else jobs
    if not 1 <= wanted <= 256:
        raise InputError(f"jobs must be from 1 to 256, not {wanted}")
    return wanted
