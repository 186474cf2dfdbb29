"""The schema of the database, and the steps that bring an older one up to date."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from gradband.core.errors import InputError

CREATE = "CREATE TABLE IF NOT EXISTS gradband_schema (version BIGINT NOT NULL)"


def steps() -> dict[int, str]:
    """The SQL of each version, by its number."""
    folder = files("gradband.serve.migrations")
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return {int(entry.name[:3]): entry.read_text(encoding="utf-8") for entry in found}


def migrate(execute: Callable[[str], Sequence[Any]], clustered: str) -> list[int]:
    """Runs the steps that a database lacks, and returns their numbers. The caller holds the transaction.

    Args:
        execute: Runs a statement and returns its rows.
        clustered: What makes the database keep a table's rows in the order of its key.
    """
    execute(CREATE)
    ((version,),) = execute("SELECT max(version) FROM gradband_schema")
    have, known = int(version or 0), steps()
    if have > max(known):
        raise InputError(
            f"the database has schema {have}, but this gradband knows only {max(known)}: upgrade gradband"
        )
    missing = [number for number in sorted(known) if number > have]
    for number in missing:
        for statement in statements(known[number].replace("{clustered}", clustered)):
            execute(statement)
        execute(f"INSERT INTO gradband_schema (version) VALUES ({number})")
    return missing


def statements(sql: str) -> list[str]:
    """The statements of a file, without comments and empty ones.

    >>> statements("-- a note\\nSELECT 1;\\n\\nSELECT 2;\\n")
    ['SELECT 1', 'SELECT 2']
    """
    lines = [line for line in sql.splitlines() if not line.startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";") if part.strip()]
