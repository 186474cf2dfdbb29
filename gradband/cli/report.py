"""`gradband report`: who leads a test, and whether you can stop it. Needs only NumPy."""

import time
from collections.abc import Sequence
from pathlib import Path

from gradband.cli.play import Parser
from gradband.core.extras import extra_of, needs

SUMMARY = "Report on a test: who leads, by how much, and whether you can stop it."
DESCRIPTION = f"""{SUMMARY}

It reads the journal of a player (gradband play --journal), even while the
player is running, and prints a sentence (stop, go on, or can't tell, and why) and
one row per arm:

  naive         the mean of the arm's rewards; biased, because the policy chose
  estimate      the mean without that bias (AIPW), with an interval for one look
                at a time fixed in advance
  always valid  an interval that holds however often you look
  P(best)       the probability of being best, under a posterior
  loss          the expected cost per decision of staying with the arm

and the gain over an equal split, and checks that arms were chosen, and rewards
came, as often as logged.
"""
EXAMPLES = """Examples:

  gradband report test-17.jsonl
  gradband report test-17.jsonl --html report.html --csv arms.csv
  gradband report test-17.jsonl --json | jq .advice
  gradband report --db tests.db home
  gradband report test-17.jsonl --confidence 0.9 --tolerance 0.005
"""


def make_parser() -> Parser:
    parser = Parser("report", DESCRIPTION, EXAMPLES)
    what = "The journal of a player; with --db, the key of a test."
    parser.add_argument("journal", metavar="JOURNAL", type=Path, help=what)
    address = "The database of gradband serve: a SQLite file or postgresql://…."
    parser.add_argument("--db", metavar="DB", help=address)
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="Write one row per arm.")
    parser.add_argument("--html", metavar="FILE", type=Path, help="Write a page that needs nothing else.")
    level = "Confidence of all intervals and of the advice (default: 0.95)."
    parser.add_argument("--confidence", metavar="SHARE", type=float, default=0.95, help=level)
    enough = "Difference per decision that does not matter: stop once no arm can be better by more."
    parser.add_argument("--tolerance", metavar="REWARD", type=float, default=0.0, help=enough)
    clock = "Judge by the current time, not by the last event, which decisions got no reward in time."
    parser.add_argument("--now", action="store_true", help=clock)
    return parser


def report(words: Sequence[str]) -> None:
    """Reports on a test, with these words as the command line."""
    given = make_parser().parse_args(words)
    from gradband.core.files import to_json, write_text
    from gradband.play.reporting.journals import read_journal

    if given.db is None:
        ledger = read_journal(given.journal)
    else:
        try:
            from gradband.serve.reports import read_test
        except ModuleNotFoundError as error:
            if extra_of(error) is None:
                raise
            raise needs("gradband report --db", "serve") from None
        ledger = read_test(given.db, str(given.journal))
    found = ledger.report(time.time() if given.now else None, given.confidence, given.tolerance)
    if given.csv is not None:
        write_text(given.csv, found.to_csv())
    if given.html is not None:
        write_text(given.html, found.to_html())
    print(to_json(found.as_dict()) if given.json else found)
