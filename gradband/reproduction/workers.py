"""Units of work, shared out among processes that each have some cores to themselves.

Nothing heavy is imported here, so that a worker can choose its cores before JAX looks for them.
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
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from gradband import machine
from gradband.errors import InputError
from gradband.reproduction.store import Store
from gradband.reproduction.unit import Unit

DEATH_SIGNAL = 1  # Linux's PR_SET_PDEATHSIG
_notes: Any = None  # a worker's way to tell how far it is


def do_all(
    units: list[Unit],
    folder: Path,
    jobs: int,
    done: Callable[[Unit], None],
    note: Callable[[Unit, float, str], None],
) -> None:
    """Does all units, `jobs` at a time; each result is in the folder's store as soon as it is there."""
    context = get_context("spawn")
    notes, shares = context.Queue(), context.Queue()
    for share in _shares(jobs):
        shares.put(share)
    pool = ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(notes, shares, os.getpid()))
    try:
        running: dict[Future[None], Unit] = {
            pool.submit(_work, place, unit, folder): unit for place, unit in enumerate(units)
        }
        while running:
            finished, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
            for place, part, words in _waiting(notes):
                note(units[place], part, words)
            for future in finished:
                unit = running.pop(future)
                future.result()
                done(unit)
    except BaseException:
        # Whatever it was, nobody waits for what is under way.
        for process in active_children():
            process.kill()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _shares(jobs: int) -> Iterator[list[int]]:
    """Cores for each job: all of them, in turn, or every job the same where there are fewer."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    for job in range(jobs):
        yield cores[job::jobs] or cores[job % len(cores) :][:1] if cores else []


def _waiting(notes: Any) -> Iterator[tuple[int, float, str]]:
    with contextlib.suppress(queue.Empty):
        while True:
            yield notes.get_nowait()


def _begin(notes: Any, shares: Any, parent: int) -> None:
    """Sets a worker up: its cores, and an end when its parent has ended."""
    global _notes
    _notes = notes
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    share = shares.get()
    if share:
        os.sched_setaffinity(0, share)
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(len(share)))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)  # at once, whatever it is doing
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    """Ends this process when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _work(place: int, unit: Unit, folder: Path) -> None:
    """Does a unit in a worker, and stores its result."""
    from gradband.reproduction import work

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
    """How many units at a time: as given, or one a core."""
    wanted = machine.cores() if jobs is None else jobs
    if not 1 <= wanted <= 256:
        raise InputError(f"jobs must be from 1 to 256, not {wanted}")
    return wanted
