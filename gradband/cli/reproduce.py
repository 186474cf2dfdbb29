"""`gradband reproduce`."""

import contextlib
import platform
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from gradband.cli import options, shared, terminal
from gradband.core.errors import InputError
from gradband.core.results import TextTable

if TYPE_CHECKING:
    from gradband.paper.experiment_files import Experiment
    from gradband.paper.reproduction import Reproduction
    from gradband.paper.rows import Row
    from gradband.paper.store import Store
    from gradband.paper.unit import Unit


def reproduce(
    what: Annotated[
        str,
        Argument(
            metavar="WHAT",
            show_default=False,
            help="fig1, fig2, fig3, table1, findings, a panel such as fig2b, several separated by commas, "
            "or all.",
        ),
    ] = "all",
    profile: Annotated[
        str, Option(help="quick (15 minutes on 2 cores) or paper (the paper's settings: hours).")
    ] = "quick",
    only: Annotated[str, Option(help="The same as WHAT.")] = "",
    seeds: Annotated[
        str, Option(help="Seeds of the runs in Figures 2 and 3, such as 0-4 (default: the profile's).")
    ] = "",
    jobs: Annotated[
        int | None, Option(help="Worker processes, which share the cores (default: one per core).")
    ] = None,
    out: Annotated[Path | None, Option(help="Folder for files (default: runs/reproduce-PROFILE).")] = None,
    folder_of_experiments: Annotated[
        Path | None,
        Option("--experiments", help="Folder with TOML files of experiments (default: the paper's)."),
    ] = None,
    listing: Annotated[
        bool, Option("--list", help="List the panels, how long they take and what is done; run nothing.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Repeat the paper's figures and table, and show where we agree with the paper.

    Every finished unit of work is stored at once. After an interruption, the
    same command resumes, even in the middle of a long run. The report shows
    everything that is finished in the folder.

    Examples:

      gradband reproduce

      gradband reproduce fig3 --profile paper --out runs/paper

      gradband reproduce --only fig2b --seeds 0-4

      gradband reproduce --list
    """
    from gradband.paper import experiment_files, reproduction, workers
    from gradband.paper.store import Store

    began = time.perf_counter()
    if only and what != "all":
        raise InputError("give the panels as WHAT or as --only, not both")
    words = [word.strip() for word in (only or what).split(",") if word.strip()]
    if not words:
        raise InputError("nothing to reproduce: give a figure, a table, a panel, or all")
    other_seeds, at_once = parse_seeds(seeds), workers.check_jobs(jobs)
    wanted = experiment_files.wanted(words, profile, other_seeds, folder_of_experiments)
    folder = out or Path("runs") / f"reproduce-{profile}"
    store = Store(folder / "results")
    if listing:
        show_list(wanted, store, profile, json)
        return
    shared.make_folder(folder)
    asked = experiment_files.panels_of(wanted)
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
            redo += f" --seeds {seeds}" if seeds else ""
            files = write_report(found, folder, provenance(spent), redo)
            if left:
                work = f"{left} of {done + len(to_do)} units of work are left"
                print(f"gradband: {work}; the same command resumes", file=sys.stderr)
    rows = [row for row in found.rows if row.panel in asked]
    result = {
        "profile": profile,
        "panels": sorted(asked),
        "rows": [row._asdict() for row in rows],
        "units": {"done": len(to_do) - left, "found": done},
        "seconds": time.perf_counter() - began,
        "files": files,
    }
    title = f"{', '.join(words)}, {profile} profile"
    terminal.emit(result, json, lambda: show_rows(title, rows, files), files["result"])
    if failed:
        unit, reason = failed[0]
        raise RuntimeError(f"{len(failed)} units failed, first {in_words(unit)}: {reason}")


def work_off(to_do: "list[tuple[Unit, float]]", store: "Store", jobs: int) -> "list[tuple[Unit, str]]":
    """Does the work under progress bars, and returns what failed."""
    from gradband.paper import workers

    def note(unit: "Unit", share: float, words: str) -> None:
        board.step(store.path(unit).name, f"{in_words(unit)}  {words}", share)

    minutes = {store.path(unit).name: spent for unit, spent in to_do}
    with terminal.board("reproducing", minutes) as board:
        units = [unit for unit, _ in to_do]
        return workers.do_all(
            units, store.folder, jobs, lambda unit: board.done(store.path(unit).name), note
        )


def show_rows(title: str, rows: "list[Row]", files: dict[str, str]) -> None:
    """Prints the paper's numbers and ours, and where the report is."""
    cells = []
    for row in rows:
        z = "" if row.z is None else f"{row.z:+.1f}"
        cells.append([row.what, row.says, f"{row.ours:.2f}", f"{row.se:.2f}", z, row.verdict])
    notes = f"Report: {files['report']}\nNumbers: {files['numbers']}\nFigures: {files['figures']}"
    columns = ["what", "paper", "ours", "± se", "z", "verdict"]
    terminal.show(TextTable(title, columns, cells, notes, texts=2))


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds of `first-last`, or a single one, or none."""
    if not text:
        return ()
    found = re.fullmatch(r"(\d+)(?:-(\d*))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if last < first:
        raise InputError(f"seeds must be first-last, such as 0-4, not {text!r}")
    if last - first >= 1000:
        raise InputError("there can be at most 1000 seeds")
    return tuple(range(first, last + 1))


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Locks the folder for this process; the lock ends with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        yield
        return
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another gradband reproduce is running in {folder}") from None
        yield


def in_words(unit: dict[str, Any]) -> str:
    """A unit of work in a few words."""
    where = unit["problem"]["name"]
    size = f" K={unit['problem']['arms']}" if "arms" in unit["problem"] else ""
    seed = f" seed {unit['seed']}" if unit["do"] == "learn" else ""
    return f"{unit['do']} {unit.get('policy', '')} on {where}{size}{seed}".replace("  ", " ")


def show_list(wanted: "list[Experiment]", store: "Store", profile: str, json: bool) -> None:
    """Prints the panels, how long they take on two cores, and how much of them is done."""
    from gradband.paper.reproduction import pending

    rows: list[dict[str, Any]] = []
    for experiment in wanted:
        for panel in experiment.panels:
            units = panel.units().values()
            done = sum(store.find(unit) is not None for unit in units)
            about = {"experiment": experiment.name, "panel": panel.name, "title": panel.title}
            rows.append(about | {"minutes": panel.minutes, "units": len(units), "done": done})
    left = sum(minutes for _, minutes in pending(wanted, store)[0])
    notes = f"About {max(1, left):.0f} minutes are left: what panels share is done once."
    columns = ["panel", "title", "minutes on 2 cores", "units of work", "done"]
    keys = ("panel", "title", "minutes", "units", "done")

    def show() -> None:
        cells = [[f"{row[key]:g}" if key == "minutes" else str(row[key]) for key in keys] for row in rows]
        terminal.show(
            TextTable(f"{profile} profile", columns, cells, notes if left else "All done.", texts=2)
        )

    terminal.emit({"profile": profile, "minutes_left": left, "panels": rows}, json, show)


def provenance(spent: str) -> dict[str, str]:
    """How a report was made: versions, machine and date."""
    from gradband.core import resources
    from gradband.paper.store import versions

    memory = resources.free_memory()
    return {
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {resources.cores()} cores"
        + (f", {resources.in_bytes(memory)} free" if memory else ""),
        "seeds": "0 for benchmarks and gradients; each panel lists those of its runs",
        "this time": f"{spent}; the others were done before",
        "date": time.strftime("%Y-%m-%d"),
    }


def write_report(found: "Reproduction", folder: Path, about: dict[str, str], redo: str) -> dict[str, str]:
    """Writes the page, the figures and the numbers."""
    from gradband.core.files import write_text
    from gradband.paper import page, plots

    names = ("report.html", "numbers.csv", "figures", "result.json")
    paths = {Path(name).stem: folder / name for name in names}
    write_text(paths["report"], page.page(found, about, redo))
    write_text(paths["numbers"], found.csv())
    shared.make_folder(paths["figures"])
    for experiment in found.experiments:
        pictures = [(p, found.results[p.name]) for p in experiment.panels if plots.drawable(p)]
        if pictures:
            drawn = plots.figure(paths["figures"], experiment.name, experiment.title, pictures)
            paths |= {path.name: path for path in drawn}
    return {what: str(path) for what, path in paths.items()}
