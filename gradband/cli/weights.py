"""`gradband weights`: shares of the arms from counts, with NumPy alone."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from gradband.cli import pretrained
from gradband.cli.play import Parser, add_guardrails, add_policy, add_trust, find_policy
from gradband.core.errors import InputError

SUMMARY = "Compute each arm's share of the next pulls from counts, for a feature-flag system."
DESCRIPTION = f"""{SUMMARY}

The counts are a CSV file with one row per arm and the columns arm, pulls and
successes (the sum of rewards between 0 and 1; count every pull whose reward
did not come in time as a pull without success). Other columns are ignored.

A policy with contexts has shares for each segment of visitors. They are computed
from the journal or the state of a player, and a JSON file with the segments'
contexts: {{"phone": {{"red": [0.5, 1], "blue": [0, 1]}}, "desktop": …}}, with the
features of each arm, in lists or by name, or with those of the visitors.
"""
EXAMPLES = """Examples:

  gradband weights policy.safetensors counts.csv --floor 0.05
  gradband weights policy.safetensors counts.csv --format unleash --key colours
  gradband weights pretrained counts.csv --horizon 5000 --prior 1,30
  gradband weights policy.safetensors --segments segments.json --journal test-17.jsonl
"""


def make_parser() -> Parser:
    parser = Parser("weights", DESCRIPTION, EXAMPLES)
    add_policy(parser)
    counts = "Arms, pulls and successes."
    parser.add_argument("counts", metavar="COUNTS.csv", type=Path, nargs="?", help=counts)
    segments = "A JSON file with the context of each segment, in place of counts."
    parser.add_argument("--segments", metavar="FILE.json", type=Path, help=segments)
    journal = "For --segments: the journal of a player. It may be in use."
    parser.add_argument("--journal", metavar="FILE", type=Path, help=journal)
    state = "For --segments: a JSON file with the state of a player, in place of its journal."
    parser.add_argument("--state", metavar="FILE.json", type=Path, help=state)
    add_guardrails(parser)
    parser.add_argument("--json", action="store_true", help="Print JSON: {arm: share}, by segment if any.")
    shape = "Print the shares in the format of growthbook, unleash or posthog."
    parser.add_argument("--format", metavar="SYSTEM", help=shape)
    parser.add_argument("--key", metavar="KEY", help="The flag's key, for --format.")
    add_trust(parser)
    return parser


def weights(words: Sequence[str]) -> None:
    """Prints shares, with these words as the command line."""
    given = make_parser().parse_args(words)
    if (given.format is None) != (given.key is None):
        raise InputError(
            "give --format and --key together: the feature-flag system, and the flag's key there"
        )
    if (given.counts is None) == (given.segments is None):
        raise InputError("weights needs either COUNTS.csv or --segments")
    if given.segments is not None:
        show_by_segment(given)
    elif given.journal is not None or given.state is not None:
        raise InputError("--journal and --state are for --segments")
    else:
        show_weights(given)


def show_by_segment(given: argparse.Namespace) -> None:
    """Prints shares that follow from a player's journal or state, for each segment."""
    import numpy as np  # here: help takes no time to import it

    from gradband.play import flags
    from gradband.play.by_segment import read_json, segment_weights
    from gradband.play.settings import GUARDRAILS

    if any(getattr(given, name) is not None for name in GUARDRAILS):
        raise InputError("with --segments, guardrails are those of the player")
    if pretrained.is_pretrained(str(given.file)):
        how = "gradband export … --to safetensors writes one"
        raise InputError(f"--segments needs a policy file, not {given.file}: {how}")
    segments = read_json(given.segments, "the contexts of segments by their names")
    state = None if given.state is None else read_json(given.state, "the state of a player")
    shares = segment_weights(
        find_policy(given, 0), segments, given.journal, state, trust=given.trust or None
    )
    if given.format is not None:
        made = {
            segment: flags.payload(given.format, given.key, list(found), np.array(list(found.values())))
            for segment, found in shares.items()
        }
        print(json.dumps(made, indent=2))
    elif given.json:
        print(json.dumps(shares))
    else:
        first = max(len("segment"), *map(len, shares))
        second = max(len("arm"), *(len(arm) for found in shares.values() for arm in found))
        print(f"{'segment':{first}}  {'arm':{second}}  share")
        for segment, found in shares.items():
            for arm, share in found.items():
                print(f"{segment:{first}}  {arm:{second}}  {share:.4f}")


def show_weights(given: argparse.Namespace) -> None:
    """Prints shares that follow from counts."""
    from gradband.play import flags
    from gradband.play.playable import as_playable
    from gradband.play.settings import GUARDRAILS, Settings
    from gradband.play.weights import weights as compute

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
