"""A player that is asked in lines of JSON, and answers in lines of JSON."""

import json
import os
from collections.abc import Callable
from typing import Any

from gradband.core.errors import InputError, shown
from gradband.core.files import write_all
from gradband.play.journal import Journal
from gradband.play.player import Player

LONGEST_REQUEST = 1 << 24
Request = dict[str, Any]


def serve(player: Player, journal: Journal | None, source: int = 0, target: int = 1) -> None:
    """Answers every line that comes from `source`, until it ends.

    All requests that have come by now are answered together, after one commit of the journal.
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
        answer = answered(player, journal, request)
    except InputError as error:
        known = {"id": id} if isinstance(id, str) else {}
        answer = {"error": str(error), **known, "line": number}
    return json.dumps(answer, allow_nan=False) + "\n"


def answered(player: Player, journal: Journal | None, request: Request) -> dict[str, Any]:
    """Does what is asked, and says what came of it."""
    op = request.get("op")
    if not isinstance(op, str) or op not in OPS:
        raise InputError(f"op must be one of {', '.join(OPS)}, not {shown(op)}")
    function, needed, allowed = OPS[op]
    known = (*needed, *allowed)
    for key in request:
        if key not in (*known, "op"):
            takes = f"it takes {', '.join(known)}" if known else "it takes nothing"
            raise InputError(f"{op} knows no {shown(key)}: {takes}")
    for key in needed:
        if key not in request:
            raise InputError(f"{op} needs {key}")
    if op == "restore" and journal is not None:
        raise InputError("a player goes on from its journal, and can't be restored otherwise")
    return {"op": op, **function(player, request)}


def select(player: Player, request: Request) -> dict[str, Any]:
    id = request.get("id")
    if "count" in request:
        batch = player.select_many(request["count"], id)
        return {"id": batch.id, "arms": list(batch), "propensities": list(batch.propensities)}
    decision = player.select(id)
    return {"id": decision.id, "arm": int(decision), "propensity": decision.propensity}


def update(player: Player, request: Request) -> dict[str, Any]:
    id = request["id"]
    if not isinstance(id, str):
        raise InputError(f"an id must be a text, not {shown(id)}")
    if ("reward" in request) == ("sums" in request):
        raise InputError("update needs the reward of a decision, or the sums of a batch")
    if "sums" in request:
        player.update_many(id, request["sums"])
    else:
        player.update(id, request["reward"])
    return {"id": id}


def probabilities(player: Player, request: Request) -> dict[str, Any]:
    return {"probabilities": player.probabilities().tolist()}


def recommend(player: Player, request: Request) -> dict[str, Any]:
    return {"arm": player.recommend()}


def add(player: Player, request: Request) -> dict[str, Any]:
    return {"arm": player.add_arm(request.get("arm"))}


def retire(player: Player, request: Request) -> dict[str, Any]:
    player.retire(request["arm"])
    return {"arm": request["arm"]}


def state(player: Player, request: Request) -> dict[str, Any]:
    return {"state": player.state()}


def restore(player: Player, request: Request) -> dict[str, Any]:
    player.restore(request["state"])
    return {}


OPS: dict[str, tuple[Callable[[Player, Request], dict[str, Any]], tuple[str, ...], tuple[str, ...]]] = {
    "select": (select, (), ("id", "count")),
    "update": (update, ("id",), ("reward", "sums")),
    "probabilities": (probabilities, (), ()),
    "recommend": (recommend, (), ()),
    "add": (add, (), ("arm",)),
    "retire": (retire, ("arm",), ()),
    "state": (state, (), ()),
    "restore": (restore, ("state",), ()),
}
"""what can be asked: the function that does it, the keys that it needs, and those that it may have"""
