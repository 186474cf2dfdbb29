"""PostgreSQL, for any number of workers on any number of machines."""

import contextlib
from collections.abc import Sequence
from typing import Any

import psycopg

from gradband.serve.store import Row, Store, StoreError

# A worker that hangs or is cut off may hold its locks for this long, and a request waits no longer for one.
SETTINGS = {
    "lock_timeout": "10s",
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "30s",
    "client_min_messages": "warning",
}
MIGRATION_LOCK = 0x67726164  # any number that nobody else uses
NOT_DURABLE = ("off", "local")


class Postgres(Store):
    """A connection to a server. A commit returns when the server has it on disk."""

    lock_rows = " FOR UPDATE"
    schema_lock = f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"

    def __init__(self, address: str) -> None:
        try:
            self._db = psycopg.connect(
                address, autocommit=True, connect_timeout=5, application_name="gradband", keepalives_idle=10
            )
            for name, value in SETTINGS.items():
                self._db.execute(f"SET {name} = '{value}'")
            if self.execute("SHOW synchronous_commit")[0][0] in NOT_DURABLE:
                self._db.execute("SET synchronous_commit = on")
        except psycopg.Error as error:
            raise StoreError(f"cannot connect to PostgreSQL: {_sentence(error)}") from None

    def begin(self) -> None:
        self.execute("BEGIN")

    def execute(self, sql: str, values: Row = ()) -> list[Row]:
        try:
            query: Any = sql.replace("?", "%s") if values else sql
            cursor = self._db.execute(query, values or None)
            return list(cursor.fetchall()) if cursor.description else []
        except psycopg.Error as error:
            raise StoreError(_sentence(error)) from None

    def insert_events(self, rows: Sequence[tuple[int, int, str]]) -> None:
        tests, numbers, bodies = (list(column) for column in zip(*rows, strict=True))
        self.execute(
            "INSERT INTO events (test, seq, body) "
            "SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::text[])",
            (tests, numbers, bodies),
        )

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        with contextlib.suppress(psycopg.Error):
            if self._db.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self._db.execute("ROLLBACK")

    def tidy(self) -> None:
        """The server does this by itself."""

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._db.close()


def _sentence(error: psycopg.Error) -> str:
    """The first line of an error, which has no values of a request or an address in it."""
    return (str(error).splitlines() or [type(error).__name__])[0]
