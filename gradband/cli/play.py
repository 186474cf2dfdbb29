"""`gradband play`: the one command that is there without any extra, and so needs nothing but NumPy."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gradband.core.errors import InputError

SUMMARY = "Play a policy: requests come as lines of JSON, and so do answers."
DESCRIPTION = f"""{SUMMARY}

Each line asks for one thing, and has one line of answer:

  {{"op": "select", "id": "visitor-17"}}
  → {{"op": "select", "id": "visitor-17", "arm": 2, "propensity": 0.31}}
  {{"op": "update", "id": "visitor-17", "reward": 1}}
  → {{"op": "update", "id": "visitor-17"}}

  {{"op": "select", "id": "monday", "count": 200}}
  → {{…, "arms": [50, 63, 44, 43], "propensities": […]}}
  {{"op": "update", "id": "monday", "sums": [1, 0, 3, 2]}}

  {{"op": "probabilities"}}, {{"op": "add"}}, {{"op": "retire", "arm": 2}}
  {{"op": "recommend"}} (the arm to stay with if the test ended now)
  {{"op": "state"}}, {{"op": "restore", "state": …}} (without a journal)

Invalid requests return {{"error": …}} and change nothing.

An id may be left out of select; the answer has one. Rewards may come late
and in any order. Ask again after a failure: an id that waits for its
reward gives the same decision, and no reward counts twice.

With a journal, everything is on disk before it is answered, and a restart
resumes from there, whenever it stopped.
"""
EXAMPLES = """Examples:

  gradband play runs/two-point-softelim/policy.safetensors
  gradband play policy.safetensors --journal test-17.jsonl
"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are those of every command."""

    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def make_parser() -> Parser:
    parser = Parser(
        prog="gradband play",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="A policy file.")
    parser.add_argument(
        "--journal",
        metavar="FILE",
        type=Path,
        help="Keep every decision and reward in this file, and resume from what is in it.",
    )
    parser.add_argument(
        "--seed",
        type=int,
        help="Decides all draws. By default the journal's, or one from the system.",
    )
    parser.add_argument(
        "--trust",
        metavar="FILE.py",
        type=Path,
        action="append",
        help="A Python file of your own that has the policy's class. It is run; others are not.",
    )
    return parser


def play(words: Sequence[str]) -> None:
    """Plays a policy as these words of the command line say."""
    given = make_parser().parse_args(words)
    from gradband.play.journal import Journal
    from gradband.play.player import Player
    from gradband.play.service import serve

    player = Player(given.file, given.seed, trust=given.trust or None)
    if given.journal is None:
        serve(player, None)
        return
    with Journal(given.journal, player) as kept:
        if kept.dropped:
            print(
                f"gradband: {given.journal}: dropped a last line that was not written to its end "
                f"({kept.dropped} bytes), and was never answered",
                file=sys.stderr,
            )
        if kept.events:
            events = "1 event" if kept.events == 1 else f"{kept.events} events"
            print(
                f"gradband: {given.journal}: goes on after {events}, with the seed {player.seed}",
                file=sys.stderr,
            )
        player.record = kept.append
        serve(player, kept)
