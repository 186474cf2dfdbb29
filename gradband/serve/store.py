"""A connection to the database, used by one thread at a time: SQLite in a file, or PostgreSQL.

Statements are plain SQL that both understand, with `?` for each value.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gradband.core.errors import InputError
from gradband.core.extras import needs
from gradband.serve import schema

POSTGRES = ("postgresql://", "postgres://")
Row = Sequence[Any]


class StoreError(Exception):
    """The database failed, or cannot be reached. What was not committed is lost."""


class Store(ABC):
    """A connection. Everything between `begin` and `commit` happens at once or not at all."""

    lock_rows = ""
    """what a SELECT needs at its end to lock its rows until the commit"""
    clustered = ""
    """what makes a new table keep its rows in the order of their key"""
    schema_lock = ""
    """a statement that keeps others from changing the schema until the commit"""

    def migrate(self) -> list[int]:
        """Brings the schema up to date, and returns the versions that were missing."""
        try:
            self.begin()
            if self.schema_lock:
                self.execute(self.schema_lock)
            done = schema.migrate(self.execute, self.clustered)
            self.commit()
        except StoreError as error:
            raise StoreError(f"cannot update the schema: {error}") from None
        finally:
            self.rollback()
        return done

    @abstractmethod
    def begin(self) -> None:
        """Starts a transaction that will write."""

    @abstractmethod
    def execute(self, sql: str, values: Row = ()) -> list[Row]:
        """Runs a statement and returns its rows."""

    @abstractmethod
    def insert_events(self, rows: Sequence[tuple[int, int, str]]) -> None:
        """Adds events: the test's number, the event's number, and its JSON."""

    @abstractmethod
    def commit(self) -> None:
        """Returns when everything since `begin` is on disk."""

    @abstractmethod
    def rollback(self) -> None:
        """Undoes everything since `begin`; never raises an error."""

    @abstractmethod
    def tidy(self) -> None:
        """Does what would otherwise delay a commit; called every second, by a thread of its own."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connection; never raises an error."""

    def one(self, sql: str, values: Row = ()) -> Row | None:
        """The first row of what a statement returns, if there is one."""
        return next(iter(self.execute(sql, values)), None)

    def locked(self, columns: str, keys: Iterable[str]) -> list[Row]:
        """The tests with these keys, locked until the commit, in an order that all workers share."""
        wanted = sorted(keys)
        marks = ", ".join("?" * len(wanted))
        sql = f"SELECT {columns} FROM tests WHERE key IN ({marks}) ORDER BY id{self.lock_rows}"
        return self.execute(sql, wanted)


def open_store(address: str, create: bool = True) -> Store:
    """Connects to a database: `postgresql://…`, or the path of a SQLite file, which may be created."""
    try:
        if address.startswith(POSTGRES):
            from gradband.serve.postgres import Postgres

            return Postgres(address)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "psycopg":
            raise needs("PostgreSQL", "serve") from None
        raise
    if "://" in address:
        raise InputError("a database is postgresql://… or the path of a SQLite file")
    if not create and not Path(address).exists():
        raise InputError(f"there is no database {address}")
    from gradband.serve.sqlite import Sqlite

    return Sqlite(Path(address))


def without_password(address: str) -> str:
    """The address as it may be logged.

    >>> without_password("postgresql://me:secret@host/tests?password=x"), without_password("tests.db")
    ('postgresql://…@host/tests', 'tests.db')
    """
    if not address.startswith(POSTGRES):
        return address
    scheme, _, rest = address.partition("://")
    user, at, place = rest.partition("?")[0].rpartition("@")
    return f"{scheme}://{'…' if user else ''}{at}{place}"
