"""Typer's commands. Those with a parser of their own are only listed."""

import sys
from typing import Annotated

import typer
from typer import Option

from gradband import __version__
from gradband.cli import play, report, serve, weights
from gradband.cli.bench import bench
from gradband.cli.compare import compare
from gradband.cli.explain import explain
from gradband.cli.export import export
from gradband.cli.fit import fit
from gradband.cli.gradient import gradient
from gradband.cli.learn import learn
from gradband.cli.old_options import update_words
from gradband.cli.optimum import optimum
from gradband.cli.plan import plan
from gradband.cli.replay import replay
from gradband.cli.reproduce import reproduce
from gradband.core.errors import InputError

app = typer.Typer(
    name="gradband",
    help="Learns exploration policies for bandits by gradient ascent on the Bayes reward.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
    verbose: Annotated[
        bool, Option("--verbose", help="Say which engine computes what, on stderr.")
    ] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit()
    if verbose:
        import logging

        logging.basicConfig(format="gradband: %(message)s")
        logging.getLogger("gradband").setLevel(logging.INFO)


app.command()(fit)
app.command()(learn)
app.command()(plan)
app.command()(replay)
app.command("play", help=play.SUMMARY)(lambda: play.play(sys.argv[2:]))  # with a parser of its own
app.command("weights", help=weights.SUMMARY)(lambda: weights.weights(sys.argv[2:]))
app.command("report", help=report.SUMMARY)(lambda: report.report(sys.argv[2:]))
app.command("serve", help=serve.SUMMARY)(lambda: serve.serve(sys.argv[2:]))
for command in (export, compare, explain, optimum, gradient, reproduce, bench):
    app.command()(command)


def run() -> int:
    """Runs the command of `sys.argv` and returns its exit code."""
    try:
        status = app(update_words(sys.argv[1:]), standalone_mode=False)
    except typer.TyperException as error:
        raise InputError(error.format_message()) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    if status == 130:  # what Typer makes of Ctrl-C
        raise KeyboardInterrupt
    return status if isinstance(status, int) else 0
