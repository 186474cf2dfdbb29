"""What several commands do alike."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradband.core.errors import InputError

if TYPE_CHECKING:
    from gradband.evaluation.evaluate import Comparison
    from gradband.policies.policy_file import Learned
    from gradband.problems import Problem


def label_of(problem: "Problem", source: str) -> str:
    """The problem's name, or its file's."""
    return problem.name or Path(source).stem


def describe(problem: "Problem", source: str) -> str:
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
    """Evaluates policies under a progress bar, as `gb.evaluate` does."""
    import gradband as gb
    from gradband.cli import terminal

    with terminal.progress("evaluating", 1) as update:
        return gb.evaluate(entries, problem, **how, progress=terminal.in_turn(update, entries))


def known_optimum(problem: "Problem") -> tuple[float | None, str]:
    """The regret of the optimum, computed under a progress bar, or None; and a sentence about it."""
    from gradband.cli import terminal
    from gradband.exact.optimum import known_regret

    try:
        with terminal.progress("optimum", 1) as update:
            regret = known_regret(problem, lambda done: update(done, "solving"))
    except InputError as error:
        return None, f"No optimum to compare with: {error}."
    return regret, f"The optimum has a regret of {regret:.4f}."


def optimal_policy(problem: "Problem") -> "Learned":
    """The policy of the problem's optimum, solved under a progress bar."""
    import gradband as gb
    from gradband.cli import terminal

    with terminal.progress("optimal policy", 1) as update:
        return gb.exact.optimum(problem, progress=lambda done: update(done, "solving")).policy


def player(text: str, problem: "Problem | None" = None, trust: list[Path] | None = None) -> Any:
    """The policy that a name, with or without settings, or a file stands for; `ts:prior` of a problem."""
    from gradband.policies import given

    return given.from_command_line(text, problem, trust)


def file_name(label: str) -> str:
    """A label as the name of a file or folder."""
    return re.sub(r"[^\w.-]", "-", label)


def make_folder(folder: Path) -> Path:
    """The folder for a command's files, made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"can't write to {folder}: {error.strerror}") from None
    return folder
