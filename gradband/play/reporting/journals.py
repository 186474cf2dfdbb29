"""Reads the journal of a player, with all its files, without a player or its policy."""

import os
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import IO, Any

from gradband.core.errors import InputError, number_of_arms, shown
from gradband.play import segments
from gradband.play.journal_lines import LONGEST_LINE, VERSION, check_header, check_line
from gradband.play.reporting.ledger import Event, Ledger
from gradband.play.settings import Settings


def read_journal(path: "str | PathLike[str]") -> Ledger:
    """The ledger of a journal: the current file and the older ones beside it that are still there.

    The journal may be in use. An incomplete last line is ignored; any other damage is an error that names
    the file and the line.
    """
    current = Path(os.path.realpath(path))
    ledger: Ledger | None = None
    version = expected = 0
    with segments.open_to_read(current) as file:  # first: it stays this file, even if a new one starts now
        last = _segment(file, current)
        older = [old for old in segments.older(current) if _number(old) < last]
        for name in [*older, current]:
            file.seek(0)
            lines = _events(file, name, whole=False) if name == current else _read(name, whole=True)
            _, header = next(lines)
            if ledger is not None and header.get("segment") != expected:
                raise InputError(f"{name} cannot follow the file number {expected - 1} of the journal")
            expected = header.get("segment", 1) + 1
            version = header["version"]
            if ledger is None:
                first = _first_arms(name) if version == 1 else header.get("arms")
                ledger = _begin(header, first)
                if expected > 2:
                    ledger.before = header["events"]
            _observe_all(ledger, lines, name)
    assert ledger is not None
    return ledger


def _number(old: Path) -> int:
    return int(old.suffix[1:])


def _segment(file: IO[bytes], name: Path) -> int:
    """The number of an open file."""
    _, header = next(_events(file, name, whole=False))
    return int(header.get("segment", 1))


def _read(name: Path, whole: bool) -> Iterator[tuple[int, Event]]:
    with segments.open_to_read(name) as file:
        yield from _events(file, name, whole)


def _events(file: IO[bytes], name: Path, whole: bool) -> Iterator[tuple[int, Event]]:
    """The header and all events of a file, each with the number of its line."""
    checksum = number = 0
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
        try:
            if not line.endswith(b"\n"):
                if whole or number == 1 or len(line) == LONGEST_LINE:
                    raise InputError(
                        "this is not a gradband journal" if number == 1 else "this line is incomplete"
                    )
                return  # it is being written, or nobody has seen its result
            event, checksum = check_line(line.rstrip(b"\n"), checksum)
            if number == 1:
                _check_header(event)
        except InputError as error:
            raise InputError(f"{name}, line {number}: {error}") from None
        yield number, event
    if not number:
        raise InputError(f"{name} is empty: this is not a gradband journal")


def _check_header(found: Any) -> None:
    if check_header(found) == VERSION:
        for name in ("segment", "events"):
            if isinstance(found.get(name), bool) or not isinstance(found.get(name), int):
                raise InputError(f"{name} must be a whole number, not {shown(found.get(name))}")


def _first_arms(name: Path) -> int:
    """How many arms a test of version 1 had at first: its header does not say so."""
    most = 0
    for number, event in _read(name, whole=False):
        if number == 1 or not isinstance(event, dict):
            continue
        if event.get("op") == "add":
            return int(event.get("arm", 0)) or most
        if isinstance(event.get("arms"), list):
            return len(event["arms"])
        if isinstance(event.get("arm"), int):
            most = max(most, event["arm"] + 1)
    return max(most, 1)


def _begin(header: Event, arms: Any) -> Ledger:
    settings = Settings.from_dict(header.get("settings", {}))
    count = number_of_arms(arms)
    labels = list(settings.arms or [])
    labels += [str(arm) for arm in range(len(labels), count)]
    return Ledger(count, labels[:count], settings.wait_seconds, settings.default)


def _observe_all(ledger: Ledger, lines: Iterator[tuple[int, Event]], name: Path) -> None:
    """Folds a file. Its snapshot is needed only where the files before it are gone."""
    begins = ledger.before > 0 and not ledger.decisions
    for number, event in lines:
        try:
            if isinstance(event, dict) and event.get("op") == "snapshot":
                if begins:
                    ledger.begin_with(event.get("state"))
            elif not isinstance(event, dict) or event.get("op") != "part":
                ledger.observe(event)
        except InputError as error:
            raise InputError(f"{name}, line {number}: {error}") from None
