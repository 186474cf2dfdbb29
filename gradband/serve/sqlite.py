"""The embedded database: one file, with a write-ahead log beside it."""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from gradband.core.errors import InputError
from gradband.serve.store import Row, Store, StoreError

WAIT_FOR_LOCK = 10.0  # seconds
# Pages of the write-ahead log, 64 MiB, until a commit moves them into the file. Most are there by then:
# another thread moves them every second, but never catches up with a service that always writes.
CHECKPOINT = 16_000


class Sqlite(Store):
    """A connection to a file. A commit returns when the write-ahead log is on disk."""

    clustered = " WITHOUT ROWID"

    def __init__(self, path: Path) -> None:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # others may not read it
            self._db = sqlite3.connect(
                path, timeout=WAIT_FOR_LOCK, isolation_level=None, check_same_thread=False
            )
            for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
                self._db.execute(f"PRAGMA {setting}")
            self._db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}")
        except OSError as error:
            raise InputError(f"cannot open the database {path}: {error.strerror}") from None
        except sqlite3.OperationalError as error:
            raise StoreError(f"cannot open the database {path}: {error}") from None
        except sqlite3.DatabaseError as error:
            raise InputError(f"cannot open the database {path}: {error}") from None

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def execute(self, sql: str, values: Row = ()) -> list[Row]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(str(error)) from None

    def insert_events(self, rows: Sequence[tuple[int, int, str]]) -> None:
        try:
            self._db.executemany("INSERT INTO events (test, seq, body) VALUES (?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise StoreError(str(error)) from None

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        if self._db.in_transaction:
            try:
                self._db.execute("ROLLBACK")
            except sqlite3.Error:
                self.close()

    def tidy(self) -> None:
        self.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        self._db.close()

    def backup(self, target: Path) -> None:
        """Copies the database to a new file while others use it."""
        if target.exists():
            raise InputError(f"{target} exists already: a backup needs a new name")
        with sqlite3.connect(target) as copy:
            os.chmod(target, 0o600)
            self._db.backup(copy, pages=1000)
            # A backup is one file, without a write-ahead log beside it.
            copy.execute("PRAGMA journal_mode = DELETE")
        copy.close()
