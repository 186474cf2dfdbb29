"""What several commands do alike."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradband.cli import terminal
from gradband.core.errors import InputError

if TYPE_CHECKING:
    from gradband.evaluation.evaluate import Comparison
    from gradband.evaluation.standing import Standing
    from gradband.policies.policy_file import Learned
    from gradband.problems import Problem


def label_of(problem: "Problem", source: str) -> str:
    """The problem's name, or its file's."""
    return problem.name or Path(source).stem


def describe(problem: "Problem", source: str) -> str:
    """The problem's name and size."""
    return f"{label_of(problem, source)}: {size_of(problem)}"


def about(problem: "Problem", source: str) -> dict[str, Any]:
    """The problem as results have it."""
    return problem.describe() | {"name": label_of(problem, source)}


def size_of(problem: "Problem") -> str:
    """The number of arms, of rounds or pulls, and of pulls afterwards."""
    words = f"{problem.arms} arms, {problem.horizon} rounds"
    if problem.pulls_per_round > 1:
        words = f"{problem.arms} arms, {problem.horizon} pulls in batches of {problem.pulls_per_round}"
    return words + (f", {problem.afterwards} pulls afterwards" if problem.afterwards else "")


def measure(entries: dict[str, Any], problem: "Problem", **how: Any) -> "Comparison":
    """`gb.evaluate` under a progress bar."""
    import gradband as gb

    with terminal.progress("evaluating") as update:
        return gb.evaluate(entries, problem, **how, progress=terminal.in_turn(update, entries))


def show_standing(found: "Standing", title: str, notes: str, details: bool = False) -> None:
    """Prints policies' regrets, best first, and how far each is on the way from ts to the optimum.

    With `details`, also how far each is from the first, and the seconds it took.
    """
    from gradband.cli.figures import shortened

    shares, best = found.shares, found.table.rows[0].name
    rows = []
    for row in found.table.rows:
        cells = [shortened(row.name), *terminal.with_error(row.regret)]
        if details:
            above = found.table.difference(row.name, best)
            cells += ["", ""] if row.name == best else terminal.with_error(above)
        cells += [terminal.share_bar(shares[row.name])] if shares else []
        rows.append(cells + ([f"{row.seconds:.2f}"] if details else []))
    columns = ["policy", "Bayes regret", "± se", *(["above the first", "± se"] if details else [])]
    columns += ["from ts to the optimum"] if shares else []
    terminal.print_table(title, columns + (["seconds"] if details else []), rows, notes)


def known_optimum(problem: "Problem") -> tuple[float | None, str]:
    """The regret of the optimum, computed under a progress bar, or None; and a sentence about it."""
    from gradband.exact.optimum import known_regret

    try:
        with terminal.progress("optimum") as update:
            regret = known_regret(problem, lambda done: update(done, "solving"))
    except InputError as error:
        return None, f"No optimum to compare with: {error}."
    return regret, f"The optimum has a regret of {regret:.4f}."


def optimal_policy(problem: "Problem") -> "Learned":
    """The problem's optimal policy, computed under a progress bar."""
    import gradband as gb

    with terminal.progress("optimal policy") as update:
        return gb.exact.optimum(problem, progress=lambda done: update(done, "solving")).policy


def file_name(label: str) -> str:
    """A label as the name of a file or folder."""
    return re.sub(r"[^\w.-]", "-", label)


def make_folder(folder: Path) -> Path:
    """Creates the folder for a command's files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"can't write to {folder}: {error.strerror}") from None
    return folder
