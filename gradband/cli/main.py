"""The command line: its commands, and what becomes of their errors."""

import os
import sys
import warnings
from typing import Annotated

import typer

from gradband._version import __version__
from gradband.cli.bench import bench
from gradband.cli.compare import compare
from gradband.cli.explain import explain
from gradband.cli.export import export
from gradband.cli.fit import fit
from gradband.cli.gradient import gradient
from gradband.cli.learn import learn
from gradband.cli.optimum import optimum
from gradband.cli.play import play
from gradband.cli.reproduce import reproduce
from gradband.core import resources
from gradband.core.errors import InputError, OthersEndedError, StoppedError

app = typer.Typer(
    name="gradband",
    help="Learns exploration policies for bandits by gradient ascent on the Bayes reward.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit()


for command in (fit, learn, play, export, compare, explain, optimum, gradient, reproduce, bench):
    app.command()(command)


def use_cache() -> None:
    """Keeps compiled code in the user's cache folder, so that the second run starts at once.

    Set by environment variables, before JAX is imported; a choice of the user's own stays.
    """
    folder = resources.cache_folder("compiled")
    if folder is None:
        return
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")


def main() -> None:
    """Runs the command line: exit code 2 for bad input, 1 for a failure, one sentence each."""
    use_cache()
    warnings.formatwarning = in_a_sentence
    try:
        status = app(standalone_mode=False)
        if status == 130:  # what typer makes of Ctrl-C
            raise KeyboardInterrupt
        sys.exit(status if isinstance(status, int) else 0)
    except (InputError, typer.TyperException) as error:
        message = error.format_message() if isinstance(error, typer.TyperException) else str(error)
        fail(message, 2)
    except OthersEndedError as error:
        print(f"gradband: {error}", file=sys.stderr, flush=True)
        os._exit(1)  # an orderly end would wait for the others
    except StoppedError as error:
        fail(str(error), error.status, alone=False)
    except (KeyboardInterrupt, typer.Abort):
        fail("interrupted", 130)
    except BrokenPipeError:
        os._exit(1)  # whoever read the output has gone
    except Exception as error:
        if os.environ.get("GRADBAND_TRACEBACK"):
            leave(1)
            raise
        first = (str(error).splitlines() or [""])[0]
        fail(first if isinstance(error, RuntimeError) else f"{type(error).__name__}: {first}", 1)


def in_a_sentence(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning without the line of code that it comes from."""
    return f"gradband: {message}\n"


def fail(message: str, status: int, alone: bool = True) -> None:
    """Ends with a sentence; if other processes may know nothing of it, without waiting long for them."""
    if message:
        print(f"gradband: {message}", file=sys.stderr, flush=True)
    if alone:
        leave(status)
    sys.exit(status)


def leave(status: int) -> None:
    if processes := sys.modules.get("gradband.engine.processes"):  # if anything was computed
        processes.leave(status)
