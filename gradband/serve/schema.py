"""The schema of the database, and the steps that bring an older one up to date."""

from importlib.resources import files
from typing import Any, Protocol

from gradband.core.errors import InputError

CREATE = "CREATE TABLE IF NOT EXISTS gradband_schema (version BIGINT NOT NULL)"


class Cursor(Protocol):
    """What both drivers offer to run a statement."""

    def execute(self, query: Any, params: Any = ..., /) -> Any: ...


def steps() -> dict[int, str]:
    """The SQL of each version, by its number."""
    folder = files("gradband.serve.migrations")
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return {int(entry.name[:3]): entry.read_text(encoding="utf-8") for entry in found}


def migrate(cursor: Cursor, clustered: str = "") -> list[int]:
    """Runs the steps that a database lacks, and returns their numbers. The caller holds the transaction.

    Args:
        cursor: Runs the statements.
        clustered: What makes the database keep a table's rows in the order of its key.
    """
    cursor.execute(CREATE)
    row = cursor.execute("SELECT max(version) FROM gradband_schema").fetchone()
    have, known = int(row[0] or 0), steps()
    if have > max(known):
        raise InputError(
            f"the database has schema {have}, but this gradband knows only {max(known)}: upgrade gradband"
        )
    missing = [number for number in sorted(known) if number > have]
    for number in missing:
        for statement in statements(known[number].replace("{clustered}", clustered)):
            cursor.execute(statement)
        cursor.execute(f"INSERT INTO gradband_schema (version) VALUES ({number})")
    return missing


def statements(sql: str) -> list[str]:
    """The statements of a file, without comments and empty ones.

    >>> statements("-- a note\\nSELECT 1;\\n\\nSELECT 2;\\n")
    ['SELECT 1', 'SELECT 2']
    """
    lines = [line for line in sql.splitlines() if not line.startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";") if part.strip()]
