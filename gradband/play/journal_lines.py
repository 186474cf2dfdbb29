"""The lines of a journal: writes them, and reads them into a player."""

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

from gradband.core.errors import InputError, number_of_arms, shown, whole
from gradband.play import checks, events
from gradband.play.settings import Settings

if TYPE_CHECKING:
    from gradband.play.pending import Event
    from gradband.play.player import Player

VERSION = 2
LONGEST_LINE = 1 << 26
LISTS = ("open", "finished", "units")  # of a state, which a snapshot has in lines of their own
PER_LINE = 10_000


def make(event: "Event", before: int) -> tuple[bytes, int]:
    """The line for an event, and the checksum up to there."""
    body = json.dumps(event, separators=(",", ":"), allow_nan=False).encode()
    checksum = zlib.crc32(body, before)
    return body[:-1] + _ending(checksum) + b"\n", checksum


def join(given: "Iterable[Event]") -> tuple[bytes, int]:
    """The lines that a file begins with, and their checksum."""
    made, checksum = [], 0
    for event in given:
        line, checksum = make(event, checksum)
        made.append(line)
    return b"".join(made), checksum


def header(player: "Player", segment: int, before: int) -> "Event":
    """The first line of a file: the policy, the settings, and the number of events before."""
    return {
        "format": "gradband-journal",
        "version": VERSION,
        "policy": player.policy.name,
        "fingerprint": player.playable.fingerprint,
        "seed": player.seed,
        "arms": player.known_arms.ever,
        "first": player.known_arms.first,
        "settings": player.settings.as_dict(),
        "t": max(round(player.clock(), 3), player.time),
        "segment": segment,
        "events": before,
    }


def snapshot(state: dict[str, Any]) -> "Iterator[Event]":
    """A player's state, in lines of limited length."""
    parts = [
        {"op": "part", "of": name, "entries": state[name][start : start + PER_LINE]}
        for name in LISTS
        for start in range(0, len(state[name]), PER_LINE)
    ]
    rest = {name: value for name, value in state.items() if name not in LISTS}
    yield {"op": "snapshot", "state": rest, "parts": len(parts)}
    yield from parts


def check_line(line: bytes, before: int) -> tuple[Any, int]:
    """The content of a line, and the checksum up to there, which must be the one in the line."""
    body = line[:-ENDING] + b"}"
    after = zlib.crc32(body, before)
    if line[-ENDING:] != _ending(after):
        raise InputError("this line is damaged, or does not belong to a journal")
    try:
        return json.loads(body.decode()), after  # faster than from bytes
    except (ValueError, RecursionError):
        raise InputError("this is not JSON") from None


def check_header(found: Any) -> int:
    """The version of a journal, from the first line of a file."""
    if not isinstance(found, dict) or found.get("format") != "gradband-journal":
        raise InputError("this is not a gradband journal")
    version = found.get("version", 0)
    if version not in (1, VERSION) or isinstance(version, bool):
        raise InputError(f"the journal has the version {shown(version)}, not {VERSION} or 1")
    return int(version)


class Reader:
    """Reads a file of a journal into a player, line by line."""

    def __init__(self, file: IO[bytes], name: str, player: "Player") -> None:
        self.file, self.name, self.player = file, name, player
        self.sum = 0
        self.end = 0  # of what was read
        self.dropped = 0  # bytes of an incomplete last line
        self.version = VERSION
        self.segment = 1
        self.events = 0  # so far, with those in older files
        self.tail = 0  # those after the snapshot
        self._state: dict[str, Any] | None = None  # a snapshot of which parts are missing
        self._missing = 0
        self._begun = 0  # lines

    def read_all(self) -> None:
        """Reads all lines, or raises an error that names the line."""
        for number, line in enumerate(iter(lambda: self.file.readline(LONGEST_LINE), b""), 1):
            try:
                if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
                    self._drop(line, number)
                    return
                event, self.sum = check_line(line.rstrip(b"\n"), self.sum)
                if number == 1:
                    self._read_header(event)
                elif number == 2 and self.segment > 1:
                    self._read_snapshot(event)
                elif self._state is not None:
                    self._read_part(event)
                else:
                    events.check_event(self.player, event)
                    self.player.apply(event)
                    self.tail += 1
                    self.events += 1
            except InputError as error:
                raise InputError(f"{self.name}, line {number}: {error}") from None
            self.end += len(line)
            self._begun = number
        if self._state is not None or (self.segment > 1 and self._begun == 1):
            raise InputError(f"{self.name}: the snapshot is incomplete")

    def _drop(self, line: bytes, number: int) -> None:
        if number == 1 and not _begins_header(line, self.player):
            raise InputError("this is not a gradband journal")
        if self.segment > 1 and (number == 2 or self._state is not None):
            raise InputError("the snapshot is incomplete")
        self.dropped = len(line)

    def _read_header(self, found: Any) -> None:
        player, self.version = self.player, check_header(found)
        if found.get("fingerprint") != player.playable.fingerprint:
            self._find_policy(found)
        seed = checks.check_count("seed", found.get("seed"))
        if player.seed_given and seed != player.seed:
            raise InputError(f"the journal was started with the seed {seed}: use that seed, or give none")
        settings = player.settings
        if self.version == VERSION:
            self.segment = whole("segment", found.get("segment"))
            self.events = checks.check_count("events", found.get("events"))
            settings = Settings.from_dict(found.get("settings")).stored_as(player.settings)
            given, kept = player.settings.as_dict(), settings.as_dict()
            for name in sorted(player.settings_given):
                if kept[name] != given[name]:
                    raise InputError(
                        f"the journal was started with {name} = {shown(kept[name])}, not "
                        f"{shown(given[name])}: give the same settings, or none"
                    )
        first = number_of_arms(found.get("first", player.policy.arms))
        if self.segment == 1 and first != player.policy.arms:
            raise InputError(f"{player.policy.name} has {player.policy.arms} arms, not {first}")
        player.begin(seed, settings, first)

    def _find_policy(self, found: dict[str, Any]) -> None:
        """Switches to the policy that the file began with, if `policies` returns it."""
        fingerprint = found.get("fingerprint")
        if self.player.policies is None or not isinstance(fingerprint, str):
            raise InputError(
                f"the journal belongs to another policy ({shown(found.get('policy'))}): "
                "play the file that it was started with"
            )
        self.player.playable = self.player.find_policy(fingerprint)

    def _read_snapshot(self, found: Any) -> None:
        if not isinstance(found, dict) or found.get("op") != "snapshot":
            raise InputError("expected a snapshot here")
        state, parts = found.get("state"), checks.check_count("parts", found.get("parts"))
        if not isinstance(state, dict):
            raise InputError("this snapshot has no state")
        self._state, self._missing = state | {name: [] for name in LISTS}, parts
        self._load_if_complete()

    def _read_part(self, found: Any) -> None:
        right = isinstance(found, dict) and found.get("op") == "part" and found.get("of") in LISTS
        if not right or not isinstance(found.get("entries"), list):
            raise InputError("expected a part of the snapshot here")
        assert self._state is not None
        self._state[found["of"]] += found["entries"]
        self._missing -= 1
        self._load_if_complete()

    def _load_if_complete(self) -> None:
        if self._missing == 0:
            if self._state is not None and self._state.get("seed") != self.player.seed:
                raise InputError("the snapshot's seed differs from its journal's")
            self.player.load(self._state)
            self._state = None


def _ending(checksum: int) -> bytes:
    return b',"crc":"%08x"}' % checksum


ENDING = len(_ending(0))


def _begins_header(line: bytes, player: "Player") -> bool:
    """Whether a header of this policy, of any version and with any seed, begins like this line."""
    for version in (1, VERSION):
        made = make(header(player, 1, 0) | {"version": version}, 0)[0]
        before_seed, key, _ = made.partition(b'"seed":')
        start = before_seed + key
        if start.startswith(line) or re.match(re.escape(start) + rb"\d*(,.*)?$", line):
            return True
    return False
