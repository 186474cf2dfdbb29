"""Entry point of the command line: chooses a command's parser, and reports errors in one sentence."""

import importlib
import os
import sys
import warnings

from gradband import __version__
from gradband.core import progress
from gradband.core.errors import InputError, OthersEndedError, StoppedError
from gradband.core.extras import extra_of, needs

EXTRAS = {"fit": "data", "replay": "data", "export": "onnx"}
"""the extra of each command that needs another one than `learn`"""
ALONE = ("play", "weights", "report", "serve")
"""commands with a parser of their own, which need neither Typer nor JAX"""
USAGE = f"""gradband {__version__}, as installed for production:

  gradband play FILE                plays a policy (see gradband play --help)
  gradband weights FILE COUNTS.csv  computes each arm's share from counts
  gradband report JOURNAL           who leads a test, and whether you can stop it
  gradband serve --db tests.db      serves many tests; needs pip install 'gradband[serve]'

Every other command needs pip install 'gradband[learn]'."""


def main() -> None:
    """Runs the command line. The exit code is 2 for bad input and 1 for a failure."""
    # A warning is one sentence, without the line of code that it comes from.
    warnings.formatwarning = lambda message, *_: f"gradband: {message}\n"
    try:
        sys.exit(run(sys.argv[1:]))
    except InputError as error:
        fail(str(error), 2)
    except OthersEndedError as error:
        print(f"gradband: {error}", file=sys.stderr, flush=True)
        os._exit(1)  # a normal exit would wait for the other processes
    except StoppedError as error:
        fail(str(error), error.status, alone=False)
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except BrokenPipeError:
        os._exit(1)  # nobody reads the output any more
    except Exception as error:
        if os.environ.get("GRADBAND_TRACEBACK"):
            leave(1)
            raise
        first = (str(error).splitlines() or [""])[0]
        fail(first if isinstance(error, RuntimeError) else f"{type(error).__name__}: {first}", 1)


def run(words: list[str]) -> int:
    """Runs a command and returns its exit code. If a package is missing, the error names the extra."""
    command = words[0] if words else "--help"
    if command in ALONE:
        getattr(importlib.import_module(f"gradband.cli.{command}"), command)(words[1:])
        return 0
    progress.silence()  # commands show their own
    try:
        from gradband.cli import app

        return app.run()
    except ModuleNotFoundError as error:
        extra = extra_of(error)
        if extra is None:
            raise
        if command.startswith("-"):
            print(__version__ if command == "--version" else USAGE)
            return 0
        raise needs(f"gradband {command}", EXTRAS.get(command, extra)) from None


def fail(message: str, status: int, alone: bool = True) -> None:
    """Exits with a message; without waiting for other processes if only this one fails (`alone`)."""
    if message:
        print(f"gradband: {message}", file=sys.stderr, flush=True)
    if alone:
        leave(status)
    sys.exit(status)


def leave(status: int) -> None:
    """Leaves a distributed run, if this process is part of one."""
    if processes := sys.modules.get("gradband.engine.processes"):  # if anything was computed
        processes.leave(status)
