"""Group commit: handles all requests that have arrived in one transaction, then answers them.

One thread per worker takes turns. In a turn it locks the rows of the tests in question, catches up with
other workers' events, handles the requests one by one, writes their events and commits. Only then does it
answer. So every answer is on disk, and every worker knows all earlier decisions of a test, whichever worker
made them.
"""

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from gradband.core.errors import InputError
from gradband.serve.errors import RefusalError, UnavailableError
from gradband.serve.library import Library
from gradband.serve.live import COLUMNS, SNAPSHOT_AT_THE_END, LiveTest, load_test
from gradband.serve.metrics import Metrics
from gradband.serve.store import Store, StoreError, open_store

LARGEST_TURN = 1000  # requests
LONGEST_QUEUE = 20_000
MOST_LIVE = 2000  # tests in memory
RETRY_AFTER = 1.0  # seconds until a database that failed is tried again

log = logging.getLogger("gradband.serve")
Work = Callable[["Turn", "LiveTest | None"], Any]


class Job:
    """A request that waits for its turn."""

    __slots__ = ("error", "future", "key", "loop", "result", "work")

    def __init__(self, key: str, work: Work) -> None:
        self.key, self.work = key, work
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: Any = None
        self.error: Exception | None = None

    def answer(self) -> None:
        if not self.future.done():  # the client may have gone
            if self.error is None:
                self.future.set_result(self.result)
            else:
                self.future.set_exception(self.error)


class Turn:
    """What a request may use: the open transaction, and the tests in it."""

    def __init__(self, store: Store, library: Library) -> None:
        self.store, self.library = store, library
        self.tests: dict[str, LiveTest] = {}
        self.broken: dict[str, Exception] = {}  # tests that cannot be read
        self.now = time.time()


class Batcher:
    """Takes requests from event loops and handles them in turns, in its own thread."""

    def __init__(self, address: str, metrics: Metrics) -> None:
        self._address, self._metrics = address, metrics
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._store: Store | None = None
        self._library = Library()
        self._live: OrderedDict[str, LiveTest] = OrderedDict()
        self._thread = threading.Thread(target=self._run, name="turns", daemon=True)
        self._closing = False

    def start(self) -> None:
        """Starts the thread. The database must exist."""
        self._thread.start()

    def close(self) -> None:
        """Handles what is queued, then ends the thread."""
        self._closing = True
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, key: str, work: Work) -> "asyncio.Future[Any]":
        """Queues a request for a test. Its future has the result when that is on disk."""
        if self._queue.qsize() >= LONGEST_QUEUE or self._closing:
            raise UnavailableError("the service is overloaded: try again later", RETRY_AFTER)
        job = Job(key, work)
        self._queue.put(job)
        return job.future

    def _run(self) -> None:
        while jobs := self._take():
            started = time.perf_counter()
            try:
                self._do(jobs)
            except Exception:  # a turn must not end the thread
                log.exception("a turn failed")
                self._fail(jobs)
            self._metrics.turn(len(jobs), time.perf_counter() - started, self._queue.qsize())
            _answer(jobs)
        self._write_snapshots()
        self._give_up()

    def _write_snapshots(self) -> None:
        """Makes the next start fast."""
        late = [test for test in self._live.values() if test.version - test.snapshot >= SNAPSHOT_AT_THE_END]
        if self._store is None or not late:
            return
        try:
            self._store.begin()
            for row in self._store.locked(COLUMNS, [test.key for test in late]):
                test = self._live[row[1]]
                if test.version == row[6]:
                    test.write_snapshot(self._store)
            self._store.commit()
        except StoreError as error:
            log.warning("no snapshots were written", extra={"reason": str(error)})
            self._store.rollback()

    def _take(self) -> list[Job]:
        """The requests that have arrived, at least one of them, or none to end the thread."""
        first = self._queue.get()
        if first is None:
            return []
        jobs = [first]
        while len(jobs) < LARGEST_TURN:
            try:
                job = self._queue.get_nowait()
            except Empty:
                break
            if job is None:
                self._queue.put(None)  # end after this turn
                break
            jobs.append(job)
        return jobs

    def _do(self, jobs: list[Job]) -> None:
        """One turn. A request that fails by itself is left out, and the others are repeated."""
        rest = jobs
        while rest:
            try:
                failed = self._attempt(rest)
            except StoreError as error:
                self._metrics.failures.inc()
                log.error("the database failed", extra={"reason": str(error)})
                self._fail(rest)
                return
            if failed is None:
                return
            rest = [job for job in rest if job is not failed]

    def _attempt(self, jobs: list[Job]) -> Job | None:
        """Handles all requests and commits, or undoes all and returns the one to blame."""
        store = self._connected()
        turn = Turn(store, self._library)
        store.begin()
        committed = False
        try:
            self._bring_up(turn, {job.key for job in jobs if job.key})
            for job in jobs:
                job.error = turn.broken.get(job.key)
                if job.error is not None:
                    continue
                try:
                    job.result = job.work(turn, turn.tests.get(job.key))
                except (InputError, RefusalError) as error:
                    job.error = error
                except StoreError:
                    raise
                except Exception as error:
                    log.exception("a request failed", extra={"test": job.key})
                    job.error = error
                    return job
            written = {test.key: test.write(store) for test in turn.tests.values() if test.events}
            store.commit()
            committed = True
        finally:
            if not committed:
                store.rollback()  # and the players that did this are gone
        self._keep(turn)
        self._metrics.count_events(written)
        return None

    def _bring_up(self, turn: Turn, keys: set[str]) -> None:
        """Locks the tests and brings their players up to date."""
        for row in turn.store.locked(COLUMNS, keys) if keys else ():
            key, version = row[1], row[6]
            test = self._live.pop(key, None)  # until the commit
            try:
                if test is None:
                    test = load_test(turn.store, turn.library, row)
                elif test.version != version:
                    test.read_row(row)
                    test.catch_up(turn.store, version)
            except StoreError:
                raise
            except Exception as error:  # of this test alone: the others are served
                log.exception("a test cannot be read", extra={"test": key})
                turn.broken[key] = error
            else:
                turn.tests[key] = test

    def _keep(self, turn: Turn) -> None:
        self._live.update(turn.tests)
        while len(self._live) > MOST_LIVE:
            self._live.popitem(last=False)

    def _connected(self) -> Store:
        if self._store is None:
            self._store = open_store(self._address)
        return self._store

    def _fail(self, jobs: list[Job]) -> None:
        """The database may have kept the turn or not: forget everything, and connect again."""
        for job in jobs:
            job.error = UnavailableError("the database did not confirm: repeat the request", RETRY_AFTER)
        self._give_up()

    def _give_up(self) -> None:
        self._live.clear()
        if self._store is not None:
            self._store.close()
            self._store = None


def _answer(jobs: list[Job]) -> None:
    """Hands the results to the event loops that wait for them, each woken once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, theirs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_answer_here, theirs)
        except RuntimeError:  # that loop is closed: nobody waits any more
            continue


def _answer_here(jobs: list[Job]) -> None:
    for job in jobs:
        job.answer()
