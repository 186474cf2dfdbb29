"""Reports on tests, from the events in the database. Each worker reads an event once."""

import json
import time
from collections import OrderedDict

import orjson

from gradband.core.errors import InputError, shown
from gradband.play.reporting.ledger import Ledger
from gradband.play.reporting.report import Report
from gradband.serve.errors import NotFoundError
from gradband.serve.store import Store, StoreError, open_store

MOST_LEDGERS = 200  # in memory
AT_ONCE = 5000  # events


class Reports:
    """Ledgers of requested tests, each with the number of its last event."""

    def __init__(self) -> None:
        self._ledgers: OrderedDict[int, tuple[Ledger, int]] = OrderedDict()

    def report(self, store: Store, key: str) -> Report:
        """The report on a test by now. Runs in one thread only."""
        id, new = find_test(store, key)
        # Taken out meanwhile: a ledger that stopped halfway is not used again.
        ledger, last = self._ledgers.pop(id, (new, 0))
        last = fold(store, id, ledger, last)
        self._ledgers[id] = ledger, last
        while len(self._ledgers) > MOST_LEDGERS:
            self._ledgers.popitem(last=False)
        return ledger.report(time.time())


def find_test(store: Store, key: str) -> tuple[int, Ledger]:
    """The number of a test, and a ledger for its events."""
    row = store.one("SELECT id, spec FROM tests WHERE key = ?", (key,))
    if row is None:
        raise NotFoundError(f"there is no test {shown(key)}")
    settings = json.loads(row[1])["settings"]
    arms = settings["arms"]
    return row[0], Ledger(len(arms), arms, settings["wait"], settings["default"])


def read_test(address: str, key: str) -> Ledger:
    """The ledger of a test in a database, which may be in use."""
    try:
        store = open_store(address, create=False)
        id, ledger = find_test(store, key)
        fold(store, id, ledger, 0)
        store.close()
    except NotFoundError as error:
        raise InputError(str(error)) from None
    except StoreError as error:
        raise RuntimeError(str(error)) from None
    return ledger


def fold(store: Store, test: int, ledger: Ledger, last: int) -> int:
    """Reads the events after `last` into a ledger, and returns the number of the last one."""
    while True:
        rows = store.execute(
            f"SELECT seq, body FROM events WHERE test = ? AND seq > ? ORDER BY seq LIMIT {AT_ONCE}",
            (test, last),
        )
        for seq, body in rows:
            ledger.observe(orjson.loads(body))
            last = seq
        if len(rows) < AT_ONCE:
            return last
