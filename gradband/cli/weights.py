"""`gradband weights`: shares of the arms from counts, with NumPy alone."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from gradband.cli.play import Parser, add_guardrails, add_policy, find_policy
from gradband.core.errors import InputError

SUMMARY = "Compute each arm's share of the next pulls from counts, for a feature-flag system."
DESCRIPTION = f"""{SUMMARY}

The counts are a CSV file with one row per arm and the columns arm, pulls and
successes (the sum of rewards between 0 and 1; count every pull whose reward
did not come in time as a pull without success). Other columns are ignored.
"""
EXAMPLES = """Examples:

  gradband weights policy.safetensors counts.csv --floor 0.05
  gradband weights policy.safetensors counts.csv --format unleash --key colours
  gradband weights pretrained counts.csv --horizon 5000 --prior 1,30
"""


def make_parser() -> Parser:
    parser = Parser(
        prog="gradband weights",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_policy(parser)
    parser.add_argument("counts", metavar="COUNTS.csv", type=Path, help="Arms, pulls and successes.")
    add_guardrails(parser)
    parser.add_argument("--json", action="store_true", help="Print JSON: {arm: share}.")
    shape = "Print what this feature-flag system takes: growthbook, unleash or posthog."
    parser.add_argument("--format", metavar="SYSTEM", help=shape)
    parser.add_argument("--key", metavar="KEY", help="The flag's key, for --format.")
    trust = "Your own Python file with the policy's class. It will be run; no other file will."
    parser.add_argument("--trust", metavar="FILE.py", type=Path, action="append", help=trust)
    return parser


def weights(words: Sequence[str]) -> None:
    """Prints shares, with these words as the command line."""
    given = make_parser().parse_args(words)
    from gradband.play import flags
    from gradband.play.playable import as_playable
    from gradband.play.settings import GUARDRAILS, Settings
    from gradband.play.weights import weights as compute

    if (given.format is None) != (given.key is None):
        raise InputError("--format and --key belong together: a system, and the flag's key there")
    names, pulls, successes = flags.read_counts(given.counts)
    playable = as_playable(find_policy(given, len(names)), given.trust or None)
    rails = {name: getattr(given, name) for name in GUARDRAILS if getattr(given, name) is not None}
    settings = Settings(arms=names, **rails)
    if not rails:
        settings = settings.guarded_as_learned(playable.guardrails)
    shares = compute(playable, pulls, successes, settings)
    if given.format is not None:
        print(json.dumps(flags.payload(given.format, given.key, names, shares), indent=2))
    elif given.json:
        print(json.dumps(dict(zip(names, shares.tolist(), strict=True))))
    else:
        width = max(len("arm"), *map(len, names))
        print(f"{'arm':{width}}  share")
        for name, share in zip(names, shares, strict=True):
            print(f"{name:{width}}  {share:.4f}")
