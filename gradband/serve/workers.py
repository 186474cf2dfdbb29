"""Several processes that share a socket. One that dies is replaced."""

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess

from prometheus_client.multiprocess import mark_process_dead

log = logging.getLogger("gradband.serve")
Serve = Callable[[socket.socket], None]
SOONEST = 1.0  # seconds until a worker that died is replaced


def run_workers(count: int, serve: Serve, bound: socket.socket) -> None:
    """Runs `serve` in this many processes until this one is told to stop."""
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    workers = [_start(serve, bound) for _ in range(count)]
    while not stopping.is_set():
        wait([worker.sentinel for worker in workers], timeout=0.2)
        for place, worker in enumerate(workers):
            if worker.exitcode is not None and not stopping.is_set():
                log.error("a worker died", extra={"pid": worker.pid, "exit_code": worker.exitcode})
                mark_process_dead(worker.pid)  # its queue is gone
                time.sleep(SOONEST)
                workers[place] = _start(serve, bound)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()


def _start(serve: Serve, bound: socket.socket) -> SpawnProcess:
    worker = multiprocessing.get_context("spawn").Process(target=_work, args=(serve, bound))
    worker.start()
    return worker


def _work(serve: Serve, bound: socket.socket) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    serve(bound)


def _end_with_parent() -> None:
    """Stops this worker if the process that started it is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
