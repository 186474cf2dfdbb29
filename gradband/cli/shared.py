"""What several commands do alike."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradband.cli import terminal
from gradband.core.errors import InputError

if TYPE_CHECKING:
    from gradband.evaluation.evaluate import Comparison
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
    """The number of arms, of rounds or pulls, of pulls afterwards, and what else is special."""
    words = f"{problem.arms} arms, {problem.horizon} rounds"
    if problem.pulls_per_round > 1:
        words = f"{problem.arms} arms, {problem.horizon} pulls in batches of {problem.pulls_per_round}"
    words += f", {problem.afterwards} pulls afterwards" if problem.afterwards else ""
    words += ", within guardrails" if problem.guardrails is not None else ""
    return words + (", with late rewards" if problem.delay is not None else "")


def measure(entries: dict[str, Any], problem: "Problem", **how: Any) -> "Comparison":
    """`gb.evaluate` under a progress bar."""
    import gradband as gb

    with terminal.progress("evaluating") as update:
        return gb.evaluate(entries, problem, **how, progress=terminal.in_turn(update, entries))


def known_optimum(problem: "Problem") -> tuple[float | None, str]:
    """The regret of the optimum, computed under a progress bar, or None; and a sentence about it."""
    from gradband.evaluation.standing import known_optimum

    with terminal.progress("optimum") as update:
        return known_optimum(problem, lambda done: update(done, "solving"))


def optimal_policy(problem: "Problem") -> "Learned":
    """The problem's optimal policy, computed under a progress bar."""
    import gradband as gb

    with terminal.progress("optimal policy") as update:
        return gb.exact.optimum(problem, progress=lambda done: update(done, "solving")).playable()


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
