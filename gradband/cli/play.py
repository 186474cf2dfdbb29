"""`gradband play`: the one command that works without extras, with NumPy alone."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

from gradband.cli import pretrained
from gradband.core.errors import InputError

if TYPE_CHECKING:
    from gradband.play.settings import Options
    from gradband.policies import Policy

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

  {{"op": "select", "unit": "user-17"}} (again: the same decision)
  {{"op": "select", "context": [[0.5, 1], [0, 1]]}} (features of each arm, for a
  policy with contexts; also {{"red": […], …}}, or […] of the visitor)
  {{"op": "probabilities"}}, {{"op": "weights"}}, {{"op": "expire"}}
  {{"op": "add"}}, {{"op": "add", "arm": "green"}}, {{"op": "retire", "arm": 2}}
  {{"op": "recommend"}} (the arm to stay with if the test ended now)
  {{"op": "state"}}, {{"op": "restore", "state": …}} (without a journal)

Invalid requests return {{"error": …}} and change nothing.

The id of a select is optional; the answer has one. Rewards may come late
and in any order. After a failure, repeat the request: an id that waits for
its reward gets the same decision, and no reward counts twice.

Every decision needs a reward, and most are zeros. With --wait, a decision
without a reward for that long gets the default, 0: then report successes
alone, and each of them within that time. A reward that comes later corrects
the default if the policy remembers counts or linear beliefs (as all but the
LSTM, the optimal policies, explore-then-commit and split do), and is refused
otherwise. Without --wait, send a reward for every decision, the zeros too: a
policy that only observes ones takes all arms for equally good.

With a journal, everything is on disk before it is answered, and a restart
resumes from there, whenever the process stopped.
"""
EXAMPLES = """Examples:

  gradband play runs/two-point-softelim/policy.safetensors
  gradband play policy.safetensors --journal test-17.jsonl --wait 24h
  gradband play policy.safetensors --arms red,blue --control red --control-share 0.2
  gradband play pretrained --arms red,blue,green --horizon 5000 --prior 1,30
  gradband play pretrained-linear --arms red,blue --dims 3 --horizon 5000
"""


class Parser(argparse.ArgumentParser):
    """A parser of a command, with the same errors as every other command."""

    def __init__(self, command: str, description: str, examples: str = "") -> None:
        super().__init__(
            prog=f"gradband {command}",
            description=description,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def add_policy(parser: argparse.ArgumentParser) -> None:
    """The policy: a file, or a pretrained one with options for what it plays."""
    parser.add_argument("file", metavar="FILE", type=Path, help=pretrained.FILE)
    parser.add_argument("--horizon", metavar="N", type=int, help=pretrained.HORIZON)
    parser.add_argument("--dims", metavar="D", type=int, help=pretrained.DIMS)
    parser.add_argument("--prior", metavar="A,B", help=pretrained.PRIOR)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """The option for files with policies of the user's own."""
    trust = "Your own Python file with the policy's class. It will be run; no other file will."
    parser.add_argument("--trust", metavar="FILE.py", type=Path, action="append", help=trust)


def find_policy(given: argparse.Namespace, arms: int) -> "Path | Policy":
    """The file, or the policy that comes with gradband, for so many arms."""
    if pretrained.is_pretrained(text := str(given.file)):
        return pretrained.pretrained(text, arms, given.horizon, given.dims, given.prior)
    pretrained.refuse({"--horizon": given.horizon, "--dims": given.dims, "--prior": given.prior})
    return given.file


def add_guardrails(parser: argparse.ArgumentParser) -> None:
    """Options for what each arm gets at least and at most."""
    learned = "as the policy was learned"
    floor = f"Every arm's least probability (default: {learned}, or 0)."
    parser.add_argument("--floor", metavar="P", type=float, help=floor)
    parser.add_argument("--control", metavar="ARM", help="The name of the control.")
    share = f"The control's least probability (default: {learned}, or 0)."
    parser.add_argument("--control-share", metavar="P", type=float, help=share)
    cap = f"Every arm's greatest probability (default: {learned}, or 1)."
    parser.add_argument("--cap", metavar="P", type=float, help=cap)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Options for the settings of a test. With an older journal they must be the same, or left out."""
    parser.add_argument("--arms", metavar="A,B,…", help="The arms' names, in order.")
    wait = "How long a decision waits for its reward: 90s, 30m, 24h, 7d (default: without end)."
    parser.add_argument("--wait", metavar="TIME", help=wait)
    default = "The reward of a decision that has waited that long (default: %(default)s)."
    parser.add_argument("--default", metavar="R", type=float, default=0.0, help=default)
    add_guardrails(parser)
    window = "How many finished decisions and units are remembered (default: %(default)s)."
    parser.add_argument("--window", metavar="N", type=int, default=100_000, help=window)
    every = "Start a new file of the journal after so many events, with a snapshot (default: %(default)s)."
    parser.add_argument("--compact-every", metavar="N", type=int, default=100_000, help=every)
    keep = "Keep only so many older files of the journal (default: all)."
    parser.add_argument("--keep-segments", metavar="N", type=int, help=keep)
    size = "Keep only so many bytes of older files (default: all)."
    parser.add_argument("--keep-bytes", metavar="N", type=int, help=size)


def make_parser() -> Parser:
    parser = Parser("play", DESCRIPTION, EXAMPLES)
    add_policy(parser)
    keep = "Keep every decision and reward in this file, and resume from its contents."
    parser.add_argument("--journal", metavar="FILE", type=Path, help=keep)
    draws = "Determines all draws (default: the journal's seed, or one from the system)."
    parser.add_argument("--seed", type=int, help=draws)
    add_trust(parser)
    add_settings(parser)
    return parser


def read_settings(given: argparse.Namespace) -> "Options":
    """The settings that differ from their defaults."""
    parser = argparse.ArgumentParser()
    add_settings(parser)
    usual = vars(parser.parse_args([]))
    found = {name: getattr(given, name) for name in usual if getattr(given, name) != usual[name]}
    if "arms" in found:
        found["arms"] = found["arms"].split(",")
    return cast("Options", found)


def play(words: Sequence[str]) -> None:
    """Plays a policy, with these words as the command line."""
    given = make_parser().parse_args(words)
    from gradband.play.journal import Journal
    from gradband.play.player import Player
    from gradband.play.service import serve

    settings = read_settings(given)
    policy = find_policy(given, len(settings.get("arms") or ()))
    player = Player(policy, given.seed, trust=given.trust or None, **settings)
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
