"""`gradband play`: the one command that works without extras, with NumPy alone."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gradband.core.errors import InputError

SUMMARY = "Play a policy: read requests and write answers, as lines of JSON."
DESCRIPTION = f"""{SUMMARY}

Each line is one request, and is answered by one line:

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

The id of a select is optional; the answer has one. Rewards may come late
and in any order. After a failure, repeat the request: an id that waits for
its reward gets the same decision, and no reward counts twice.

With a journal, everything is on disk before it is answered, and a restart
resumes from there, whenever the process stopped.
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
    keep = "Keep every decision and reward in this file, and resume from its contents."
    parser.add_argument("--journal", metavar="FILE", type=Path, help=keep)
    draws = "Fixes all draws (default: the journal's seed, or one from the system)."
    parser.add_argument("--seed", type=int, help=draws)
    trust = "Your own Python file with the policy's class. It will be run; no other file will."
    parser.add_argument("--trust", metavar="FILE.py", type=Path, action="append", help=trust)
    return parser


def play(words: Sequence[str]) -> None:
    """Plays a policy, with these words as the command line."""
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
            what = f"dropped an incomplete last line ({kept.dropped} bytes), which was never answered"
            print(f"gradband: {given.journal}: {what}", file=sys.stderr)
        if kept.events:
            events = "1 event" if kept.events == 1 else f"{kept.events} events"
            what = f"resumes after {events}, with the seed {player.seed}"
            print(f"gradband: {given.journal}: {what}", file=sys.stderr)
        player.record = kept.append
        serve(player, kept)
