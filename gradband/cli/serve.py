"""`gradband serve`: many tests over HTTP. It needs the extra `serve`, and no JAX."""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from gradband.cli.play import Parser
from gradband.core.errors import InputError
from gradband.core.extras import extra_of, needs

SUMMARY = "Serve many tests over HTTP, with durable state."
DESCRIPTION = f"""{SUMMARY}

  gradband serve --db tests.db                     starts the service
  gradband serve token --db tests.db --role admin  prints a new token, once
  gradband serve tokens --db tests.db              lists the tokens
  gradband serve revoke --db tests.db ID           revokes a token
  gradband serve backup --db tests.db --to copy.db copies a SQLite database in use

A database is a SQLite file, which is created, or postgresql://… for any number of
workers on any number of machines. GRADBAND_DB replaces --db, so that a password
does not appear in the list of processes.

Every request needs a token, as in Authorization: Bearer gbt_…. The role decide
may request decisions and report rewards, read may see tests and reports, and
admin may do everything.
"""
COMMANDS = ("token", "tokens", "revoke", "backup")


def make_parser(command: str = "") -> Parser:
    """The parser of the service, or of one of its commands."""
    parser = Parser(f"serve {command}".strip(), DESCRIPTION)
    address = "A SQLite file or postgresql://… (default: GRADBAND_DB)."
    parser.add_argument("--db", metavar="DB", default=os.environ.get("GRADBAND_DB"), help=address)
    if command == "token":
        parser.add_argument("--role", required=True, help="decide, read or admin.")
        parser.add_argument("--name", default="", help="Who has the token; shown in the history of tests.")
    elif command == "revoke":
        parser.add_argument("id", metavar="ID", help="The token's id, as in gbt_ID_….")
    elif command == "backup":
        parser.add_argument("--to", metavar="FILE", type=Path, required=True, help="A new file.")
    elif not command:
        parser.add_argument("--host", default="127.0.0.1", help="The address to listen on (127.0.0.1).")
        parser.add_argument("--port", type=int, default=8000, help="The port (8000).")
        parser.add_argument("--workers", type=int, default=1, help="Processes, with PostgreSQL (1).")
        rate = "Requests per second that each token may make, per worker (10000)."
        parser.add_argument("--rate", type=float, default=10_000.0, help=rate)
        grace = "Seconds that running requests have left when the service stops (20)."
        parser.add_argument("--grace", type=int, default=20, help=grace)
    return parser


def serve(words: Sequence[str]) -> None:
    """Runs the service or one of its commands, with these words as the command line."""
    command = words[0] if words and words[0] in COMMANDS else ""
    given = make_parser(command).parse_args(words[1:] if command else words)
    if not given.db:
        raise InputError("gradband serve needs --db: a SQLite file or postgresql://…")
    try:
        if command:
            administer(command, given)
        else:
            from gradband.serve.options import Options
            from gradband.serve.server import run

            run(Options(given.db, given.host, given.port, given.workers, given.rate, given.grace))
    except ModuleNotFoundError as error:
        if extra_of(error) is None:
            raise
        raise needs("gradband serve", "serve") from None


def administer(command: str, given: argparse.Namespace) -> None:
    """Runs a command that needs only the database."""
    from gradband.serve.sqlite import Sqlite
    from gradband.serve.store import StoreError, open_store
    from gradband.serve.tokens import create_token, read_tokens, revoke_token

    try:
        store = open_store(given.db, create=command == "token")
        store.migrate()
        if command == "token":
            print(create_token(store, given.role, given.name))
            print("gradband: keep this token: it cannot be shown again", file=sys.stderr)
        elif command == "tokens":
            for token in read_tokens(store).values():
                made = datetime.fromtimestamp(token.created, UTC).isoformat(timespec="seconds")
                state = "valid" if token.revoked is None else "revoked"
                print(f"{token.id}  {token.role:6}  {state:7}  {made}  {token.name}")
        elif command == "revoke":
            revoke_token(store, given.id)
        elif isinstance(store, Sqlite):
            store.backup(given.to)
        else:
            raise InputError("PostgreSQL has its own tools: use pg_dump")
        store.close()
    except StoreError as error:
        raise RuntimeError(str(error)) from None
