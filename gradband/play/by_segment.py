"""Shares of the arms for segments of visitors, from what a test has learned so far."""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradband.core import files
from gradband.core.errors import InputError, shown
from gradband.play.journal_lines import Reader
from gradband.play.playable import Playable, as_playable
from gradband.play.player import Player
from gradband.play.segments import open_to_read
from gradband.policies import Policy
from gradband.policies.own import Trust

if TYPE_CHECKING:
    from gradband.policies.policy_file import Learned

MOST_BYTES = 1 << 26


def segment_weights(
    policy: "str | PathLike[str] | Learned | Policy | Playable",
    segments: Mapping[str, Any],
    journal: "str | PathLike[str] | None" = None,
    state: dict[str, Any] | None = None,
    trust: Trust | None = None,
) -> dict[str, dict[str, float]]:
    """The share of each arm in each segment: its probability in a player's next decision there.

    Args:
        policy: A policy file, what `gb.learn` returned, or a bound policy with contexts.
        segments: The context of each segment by its name, as for `Player.select`: features of the arms
            [K, d], or of the visitors [d].
        journal: The journal of a player. It is only read, and may be in use.
        state: What `Player.state` returned, in place of a journal.
        trust: For a policy file with a class of your own: the class, or the Python file that has it.
    """
    if (journal is None) == (state is None):
        raise InputError("shares by segment need either the journal or the state of a player")
    if not isinstance(segments, Mapping) or not segments or not all(isinstance(s, str) for s in segments):
        raise InputError(f"segments must be contexts by name, not {shown(segments)}")
    player = Player(as_playable(policy, trust))
    if journal is not None:
        _read(Path(journal), player)
    else:
        player.load(state)
    found = {}
    for name, context in segments.items():
        try:
            found[name] = player.weights(context)
        except InputError as error:
            raise InputError(f"segment {shown(name)}: {error}") from None
    return found


def read_json(path: Path, what: str) -> dict[str, Any]:
    """An object in a JSON file."""
    try:
        found = json.loads(files.read(path, MOST_BYTES))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} must have {what}, not {shown(found)}")
    return found


def _read(path: Path, player: Player) -> None:
    """Brings a new player to the end of a journal."""
    with open_to_read(path) as file:
        found = Reader(file, str(path), player)
        found.read_all()
    if not found.end:
        raise InputError(f"{path} is empty: this is not a gradband journal")
