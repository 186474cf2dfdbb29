"""`gradband reproduce`."""

import contextlib
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradband.cli.options import Json
from gradband.cli.shared import make_folder
from gradband.core.errors import InputError

if TYPE_CHECKING:
    from gradband.paper.experiment_files import Experiment
    from gradband.paper.reproduction import Reproduction
    from gradband.paper.rows import Row
    from gradband.paper.store import Store
    from gradband.paper.unit import Unit


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            show_default=False,
            help="fig1, fig2, fig3, table1, findings, a panel such as fig2b, several with commas between, "
            "or all.",
        ),
    ] = "all",
    profile: Annotated[
        str,
        typer.Option(
            help="quick (a quarter of an hour on 2 cores) or paper (the paper's settings: hours)."
        ),
    ] = "quick",
    only: Annotated[
        str, typer.Option(help="The same as WHAT: panels or figures, with commas between.")
    ] = "",
    seeds: Annotated[
        str, typer.Option(help="Seeds of the runs in Figures 2 and 3, e.g. 0-4, in place of the profile's.")
    ] = "",
    jobs: Annotated[
        int | None, typer.Option(help="Processes at work, which share the cores (one a core).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for files (runs/reproduce-PROFILE).")] = None,
    folder_of_experiments: Annotated[
        Path | None,
        typer.Option("--experiments", help="Folder of other experiments' TOML files (the paper's)."),
    ] = None,
    listing: Annotated[
        bool,
        typer.Option("--list", help="Say what there is, how long it takes and what is done; do nothing."),
    ] = False,
    json: Json = False,
) -> None:
    """Redo the paper's figures and table, and show where the paper and we agree.

    Every finished run is stored at once. If this is interrupted, the same
    command goes on where it was, also in the middle of a long run.
    The report shows everything that is finished in the folder.

    Examples:

      gradband reproduce

      gradband reproduce fig3 --profile paper --out runs/paper

      gradband reproduce --only fig2b --seeds 0-4

      gradband reproduce --list
    """
    from gradband.cli import terminal
    from gradband.paper import experiment_files, reproduction, workers
    from gradband.paper.store import Store

    began = time.perf_counter()
    if only and what != "all":
        raise InputError("give the panels as WHAT or as --only, not both")
    words = [word.strip() for word in (only or what).split(",") if word.strip()]
    if not words:
        raise InputError("there is nothing to reproduce: name a figure, a table, a panel, or all")
    other_seeds, at_once = parse_seeds(seeds), workers.check_jobs(jobs)
    wanted = experiment_files.wanted(words, profile, other_seeds, folder_of_experiments)
    folder = out or Path("runs") / f"reproduce-{profile}"
    store = Store(folder / "results")
    if listing:
        show_list(wanted, store, profile, json)
        return
    make_folder(folder)
    asked = {panel.name: panel for experiment in wanted for panel in experiment.panels}
    with alone(folder):
        store.sweep()
        to_do, done = reproduction.pending(wanted, store)
        try:
            failed = work_off(to_do, store, at_once)
        finally:
            everything = experiment_files.wanted(["all"], profile, folder=folder_of_experiments)
            found = reproduction.gather(experiment_files.exchanged(everything, asked), store, profile)
            left = len(reproduction.pending(wanted, store)[0])
            spent = f"{len(to_do) - left} units in {(time.perf_counter() - began) / 60:.1f} minutes"
            redo = f"gradband reproduce {','.join(words)} --profile {profile}"
            files = write_report(
                found, folder, made(spent), f"{redo}{f' --seeds {seeds}' if seeds else ''}"
            )
            if left:
                work = f"{left} of {done + len(to_do)} units of work are left"
                print(f"gradband: {work}; the same command goes on", file=sys.stderr)
    rows = [row for row in found.rows if row.panel in asked]
    result = {
        "profile": profile,
        "panels": sorted(asked),
        "rows": [row.described() for row in rows],
        "units": {"done": len(to_do) - left, "found": done},
        "seconds": time.perf_counter() - began,
        "files": files,
    }
    title = f"{', '.join(words)}, {profile} profile"
    terminal.emit(result, json, lambda: show_rows(title, rows, files), files["result"])
    if failed:
        unit, reason = failed[0]
        raise RuntimeError(f"{len(failed)} units failed, the first of them {in_words(unit)}: {reason}")


def work_off(to_do: "list[tuple[Unit, float]]", store: "Store", jobs: int) -> "list[tuple[Unit, str]]":
    """Does the work under bars that show how far it is; what failed comes back."""
    from gradband.cli import terminal
    from gradband.paper import workers

    minutes = {str(store.path(unit)): spent for unit, spent in to_do}
    with terminal.board("reproducing", sum(minutes.values())) as board:
        return workers.do_all(
            [unit for unit, _ in to_do],
            store.folder,
            jobs,
            done=lambda unit: board.done(str(store.path(unit)), minutes[str(store.path(unit))]),
            note=lambda unit, share, note: board.step(
                str(store.path(unit)), f"{in_words(unit)}  {note}", share
            ),
        )


def show_rows(title: str, rows: "list[Row]", files: dict[str, str]) -> None:
    """The paper's numbers and ours, and where the report is."""
    from gradband.cli import terminal

    terminal.print_table(
        title,
        ["what", "paper", "ours", "± se", "z", "verdict"],
        [
            [
                row.what,
                row.says,
                f"{row.ours:.2f}",
                f"{row.se:.2f}",
                "" if row.z is None else f"{row.z:+.1f}",
                row.verdict,
            ]
            for row in rows
        ],
        f"Report: {files['report']}\nNumbers: {files['numbers']}\nFigures: {files['figures']}",
        texts=2,
    )


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from `first-last`, or the one that is given; none for nothing."""
    if not text:
        return ()
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
        raise InputError(f"seeds must be first-last, e.g. 0-4, not {text!r}")
    if int(last or first) - int(first) >= 1000:
        raise InputError("seeds must be at most 1000")
    return tuple(range(int(first), int(last or first) + 1))


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds the folder for this process: the lock ends with it, however it ends."""
    path = folder / ".lock"
    try:
        import fcntl
    except ImportError:  # no such locks on Windows
        yield
        return
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another gradband reproduce is at work in {folder}") from None
        yield


def in_words(unit: dict[str, Any]) -> str:
    """A few words for a unit of work."""
    where = unit["problem"]["name"]
    size = f" K={unit['problem']['arms']}" if "arms" in unit["problem"] else ""
    seed = f" seed {unit['seed']}" if unit["do"] == "learn" else ""
    return f"{unit['do']} {unit.get('policy', '')} on {where}{size}{seed}".replace("  ", " ")


def show_list(wanted: "list[Experiment]", store: "Store", profile: str, json: bool) -> None:
    """What there is, how long it takes on two cores, and how much of it is done."""
    from gradband.cli import terminal
    from gradband.paper.reproduction import pending

    rows: list[dict[str, Any]] = []
    for experiment in wanted:
        for panel in experiment.panels:
            units = panel.units().values()
            done = sum(store.find(unit) is not None for unit in units)
            rows.append(
                {
                    "experiment": experiment.name,
                    "panel": panel.name,
                    "title": panel.title,
                    "minutes": panel.minutes,
                    "units": len(units),
                    "done": done,
                }
            )
    left = sum(minutes for _, minutes in pending(wanted, store)[0])  # what panels share is done once

    def show() -> None:
        terminal.print_table(
            f"{profile} profile",
            ["panel", "title", "minutes on 2 cores", "units of work", "done"],
            [
                [row["panel"], row["title"], f"{row['minutes']:g}", str(row["units"]), str(row["done"])]
                for row in rows
            ],
            f"About {max(1, left):.0f} minutes are left: what panels share is done once."
            if left
            else "All of it is done.",
            texts=2,
        )

    terminal.emit({"profile": profile, "minutes_left": left, "panels": rows}, json, show)


def made(spent: str) -> dict[str, str]:
    """How a report was made: versions and machine."""
    from gradband.core import resources
    from gradband.paper.store import versions

    memory = resources.free_memory()
    return {
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {resources.cores()} cores"
        + (f", {resources.in_bytes(memory)} free" if memory else ""),
        "seeds": "0 for benchmarks and gradients; those of runs stand with their panels",
        "this time": f"{spent}; others were there already",
        "date": time.strftime("%Y-%m-%d"),
    }


def write_report(found: "Reproduction", folder: Path, about: dict[str, str], redo: str) -> dict[str, str]:
    """The page, the figures, and the numbers."""
    from gradband.core.files import write_text
    from gradband.paper import page, plots

    files = {
        "report": "report.html",
        "numbers": "numbers.csv",
        "figures": "figures",
        "result": "result.json",
    }
    paths = {what: folder / name for what, name in files.items()}
    write_text(paths["report"], page.page(found, about, redo))
    write_text(paths["numbers"], found.csv())
    make_folder(paths["figures"])
    for experiment in found.experiments:
        pictures = [(p, found.results[p.name]) for p in experiment.panels if plots.drawable(p)]
        if pictures:
            drawn = plots.figure(paths["figures"], experiment.name, experiment.title, pictures)
            paths |= {path.name: path for path in drawn}
    return {what: str(path) for what, path in paths.items()}
