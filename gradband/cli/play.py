"""`gradband play`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gradband.cli.options import Trust


def play(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy file.", show_default=False)],
    journal: Annotated[
        Path | None,
        typer.Option(help="Keep every decision and reward in this file, and go on from what is in it."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Decides all draws. The journal's, or one from the system, if it is not given."),
    ] = None,
    trust: Trust = None,
) -> None:
    """Play a policy: requests come as lines of JSON, and so do answers.

    Each line asks for one thing, and has one line of answer:

      {"op": "select", "id": "visitor-17"}

      → {"op": "select", "id": "visitor-17", "arm": 2, "propensity": 0.31}

      {"op": "update", "id": "visitor-17", "reward": 1}

      → {"op": "update", "id": "visitor-17"}

      {"op": "select", "id": "monday", "count": 200}

      → {…, "arms": [50, 63, 44, 43], "propensities": […]}

      {"op": "update", "id": "monday", "sums": [1, 0, 3, 2]}

      {"op": "probabilities"}, {"op": "add"}, {"op": "retire", "arm": 2}

      {"op": "recommend"} (the arm to stay with if the test ended now)

      {"op": "state"}, {"op": "restore", "state": …} (without a journal)

    What can't be done is answered by {"error": …}, and changes nothing.

    An id may be left out of select; the answer has one. Rewards may come late
    and in any order. Ask again after a failure: an id that waits for its
    reward gives the same decision, and no reward counts twice.

    With a journal, everything is on disk before it is answered, and a restart
    goes on from there, whenever it stopped.

    Examples:

      gradband play runs/two-point-softelim/policy.safetensors

      gradband play policy.safetensors --journal test-17.jsonl
    """
    from gradband.play.journal import Journal
    from gradband.play.player import Player
    from gradband.play.service import serve

    player = Player(file, seed, trust=trust)
    if journal is None:
        serve(player, None)
        return
    with Journal(journal, player) as kept:
        if kept.dropped:
            print(
                f"gradband: {journal}: dropped a last line that was not written to its end "
                f"({kept.dropped} bytes), and was never answered",
                file=sys.stderr,
            )
        if kept.events:
            events = "1 event" if kept.events == 1 else f"{kept.events} events"
            print(
                f"gradband: {journal}: goes on after {events}, with the seed {player.seed}", file=sys.stderr
            )
        player.record = kept.append
        serve(player, kept)
