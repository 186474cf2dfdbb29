"""Figures that commands write to files."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core import figures
from gradband.core.files import write_atomically

if TYPE_CHECKING:
    from gradband.evaluation.explain import Explanation
    from gradband.evaluation.standing import Standing


def save(path: Path, figure: Any) -> None:
    write_atomically(path, lambda target: figure.savefig(target, dpi=150))


def comparison(path: Path, title: str, found: "Standing") -> None:
    """Draws policies' regrets as bars."""
    from matplotlib.figure import Figure

    height = figures.height_of_bars(len(found.table.rows))
    figure = Figure(figsize=(7.5, height), layout="constrained")
    found.plot(figure.subplots()).set_title(title)
    save(path, figure)


def training_curve(
    path: Path, title: str, history: dict[str, np.ndarray], names: list[str], lines: dict[str, float]
) -> None:
    """Draws regret over iterations with its standard error, and the parameters below it.

    `lines` are regrets to compare with, by name. `names` are those of the parameters, which are drawn if
    they are few.
    """
    from matplotlib.figure import Figure

    few = 0 < len(names) <= 3
    figure = Figure(figsize=(7, 5.6 if few else 3.8), layout="constrained")
    axes: Any = figure.subplots(1 + few, 1, sharex=True, squeeze=False)[:, 0]
    figures.regret_curve(axes[0], history, lines)
    figure.suptitle(title)
    if few:
        axes[0].set_xlabel("")
        figures.parameters(axes[1], np.arange(len(history["regret"])), history["params"], names)
        axes[1].set_xlabel("iteration")
    save(path, figure)


def explanation(title: str, found: "Explanation") -> Any:
    """A figure of what a policy does, beside the optimal policy if it is known."""
    from matplotlib.figure import Figure

    from gradband.evaluation import explanation_figure

    figure = Figure(figsize=explanation_figure.figure_size(found), layout="constrained")
    explanation_figure.draw(figure, found, title)
    return figure
