"""What several commands do alike."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradband.evaluation import Comparison
    from gradband.problems import Problem


def label_of(problem: "Problem", source: str) -> str:
    """The problem's name, or its file's."""
    return problem.name or Path(source).stem


def describe(problem: "Problem", source: str) -> str:
    return f"{label_of(problem, source)}: {problem.arms} arms, {problem.horizon} rounds"


def measure(
    entries: dict[str, Any], problem: "Problem", instances: int, seed: int, devices: int | None
) -> "Comparison":
    """Evaluates policies under a progress bar."""
    import gradband as gb
    from gradband.report import terminal

    settings: dict[str, Any] = {"instances": instances, "seed": seed, "devices": devices}
    with terminal.progress("evaluating", 1) as update:
        return gb.evaluate(entries, problem, **settings, progress=lambda name, done: update(done, name))


def write_json(path: Path, result: dict[str, Any]) -> None:
    import json

    from gradband.files import finite, write_text

    write_text(path, json.dumps(finite(result), indent=2, allow_nan=False) + "\n")
