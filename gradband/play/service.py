"""Plays over lines of JSON: one request and one answer per line."""

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from gradband.core.errors import InputError, shown
from gradband.core.files import write_all
from gradband.play.journal import Journal
from gradband.play.player import Player

LONGEST_REQUEST = 1 << 24
Request = dict[str, Any]


def serve(player: Player, journal: Journal | None, source: int = 0, target: int = 1) -> None:
    """Answers every line from `source` until it ends.

    All requests that have arrived are answered together, after one commit of the journal.
    """
    buffer, number = b"", 0
    while True:
        chunk = os.read(source, 1 << 16)
        buffer += chunk
        *lines, buffer = (buffer if chunk or not buffer else buffer + b"\n").split(b"\n")
        answers = []
        for line in lines:
            number += 1
            if line.strip():
                answers.append(respond(player, journal, line, number))
        if len(buffer) > LONGEST_REQUEST:
            raise InputError(f"line {number + 1} is longer than {LONGEST_REQUEST >> 20} MiB")
        if journal is not None:
            journal.commit()
        write_all(target, "".join(answers).encode())
        if not chunk:
            return


def respond(player: Player, journal: Journal | None, line: bytes, number: int) -> str:
    """The answer to a request, or one that says what is wrong with it."""
    id = None
    try:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"this is not JSON: {error}") from None
        if not isinstance(request, dict):
            raise InputError(f'a request must be an object like {{"op": "select"}}, not {shown(request)}')
        id = request.get("id")
        answer = _answer(player, journal, request)
    except InputError as error:
        known = {"id": id} if isinstance(id, str) else {}
        answer = {"error": str(error), **known, "line": number}
    return json.dumps(answer, allow_nan=False) + "\n"


def _answer(player: Player, journal: Journal | None, request: Request) -> dict[str, Any]:
    """Does what is asked, and returns the result."""
    name = request.get("op")
    if not isinstance(name, str) or name not in OPS:
        raise InputError(f"op must be one of {', '.join(OPS)}, not {shown(name)}")
    op = OPS[name]
    known = (*op.needed, *op.optional)
    for key in request:
        if key not in (*known, "op"):
            raise InputError(f"{name} has no key {shown(key)}: it takes {', '.join(known) or 'none'}")
    for key in op.needed:
        if key not in request:
            raise InputError(f"{name} needs {key}")
    if name == "restore" and journal is not None:
        raise InputError("a player with a journal resumes from it: no other state can be restored")
    return {"op": name, **op.answer(player, request)}


def _select(player: Player, request: Request) -> dict[str, Any]:
    id = request.get("id")
    for name in ("unit", "context"):
        if "count" in request and name in request:
            raise InputError(f"a batch has no {name}: select takes count or {name}, not both")
    if "count" in request:
        batch = player.select_many(request["count"], id)
        return {"id": batch.id, "arms": list(batch), "propensities": list(batch.propensities)}
    decision = player.select(id, request.get("unit"), request.get("context"))
    named = {} if player.settings.arms is None else {"label": decision.label}
    again = {"returning": decision.returning} if "unit" in request else {}
    return {"id": decision.id, "arm": int(decision), **named, "propensity": decision.propensity, **again}


def _update(player: Player, request: Request) -> dict[str, Any]:
    id = request["id"]
    if not isinstance(id, str):
        raise InputError(f"an id must be a string, not {shown(id)}")
    if ("reward" in request) == ("sums" in request):
        raise InputError("update needs the reward of a decision, or the sums of a batch")
    if "sums" in request:
        player.update_many(id, request["sums"])
    else:
        player.update(id, request["reward"])
    return {"id": id}


def _retire(player: Player, request: Request) -> dict[str, Any]:
    player.retire(request["arm"])
    return {"arm": request["arm"]}


def _expire(player: Player, request: Request) -> dict[str, Any]:
    return {"expired": player.expire(request.get("now"))}


def _probabilities(player: Player, request: Request) -> dict[str, Any]:
    return {"probabilities": player.probabilities(request.get("context")).tolist()}


def _restore(player: Player, request: Request) -> dict[str, Any]:
    player.restore(request["state"])
    return {}


class Op(NamedTuple):
    """What can be requested, with the keys that a request must and may have."""

    answer: Callable[[Player, Request], dict[str, Any]]
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


OPS = {
    "select": Op(_select, optional=("id", "count", "unit", "context")),
    "update": Op(_update, needed=("id",), optional=("reward", "sums")),
    "probabilities": Op(_probabilities, optional=("context",)),
    "weights": Op(
        lambda player, request: {"weights": player.weights(request.get("context"))}, optional=("context",)
    ),
    "expire": Op(_expire, optional=("now",)),
    "recommend": Op(
        lambda player, request: {"arm": player.recommend(request.get("context"))}, optional=("context",)
    ),
    "add": Op(lambda player, request: {"arm": player.add_arm(request.get("arm"))}, optional=("arm",)),
    "retire": Op(_retire, needed=("arm",)),
    "state": Op(lambda player, _: {"state": player.state()}),
    "restore": Op(_restore, needed=("state",)),
}
