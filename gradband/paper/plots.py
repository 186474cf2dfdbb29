"""Panels of the paper's figures. Matplotlib is imported only when one is drawn.

The colours can be told apart by colour-blind people, on light and dark pages.
"""

import io
import itertools
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gradband.core.files import write_atomically
from gradband.paper.curves import Learning
from gradband.paper.panels import GradientOverTheta, Level, Panel, Results, Series

COLOURS = ("#0b7bc1", "#d55e00", "#069a70", "#c2629a", "#8a7000", "#6a6ad0")
GREY = "#7d7d7d"
WIDTH, HEIGHT = 5.2, 3.7  # inches


def drawable(panel: Panel) -> bool:
    """Whether a panel is a picture; the others are tables."""
    return type(panel).series is not Panel.series


def figure(folder: Path, name: str, title: str, panels: list[tuple[Panel, Results]]) -> list[Path]:
    """Draws panels side by side as PDF and PNG, for papers and talks."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(WIDTH * len(panels), HEIGHT + 0.3), layout="constrained")
    axes: Any = drawn.subplots(1, len(panels), squeeze=False)[0]
    for axis, (panel, results) in zip(axes, panels, strict=True):
        draw(axis, panel, results)
    drawn.suptitle(title)
    # Without its date, the same numbers give the same file.
    metadata: dict[str, Any] = {"pdf": {"CreationDate": None}, "png": None}
    paths = {suffix: folder / f"{name}.{suffix}" for suffix in metadata}
    for suffix, path in paths.items():
        write_atomically(path, partial(drawn.savefig, dpi=200, metadata=metadata[suffix]))
    return list(paths.values())


def svg(panel: Panel, results: Results) -> str:
    """A panel as an SVG element for a page, which sets the colour of its text and lines."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # The salt makes its identifiers differ from those of the page's other pictures.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": panel.name}):
        drawn = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axis: Any = drawn.subplots()
        draw(axis, panel, results)
        drawn.patch.set_alpha(0)
        axis.patch.set_alpha(0)
        file = io.StringIO()
        drawn.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()[file.getvalue().index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*">', "<g>", text)  # names that every picture has and nothing uses
    return text.replace("#000000", "currentColor")


def draw(axis: Any, panel: Panel, results: Results) -> None:
    """Draws a panel's curves, bands and lines."""
    curves, levels = panel.series(results), panel.levels(results)
    gradients = isinstance(panel, GradientOverTheta)
    learning = isinstance(panel, Learning)
    for colour, curve in zip(itertools.cycle(COLOURS), curves, strict=False):
        _curve(axis, curve, colour, dotted=gradients)
        if not learning and curve.se is not None:
            bars: dict[str, Any] = {"fmt": "none", "capsize": 2.5, "elinewidth": 1.0, "zorder": 4}
            axis.errorbar(curve.x, curve.y, yerr=curve.se, ecolor=colour, **bars)
    if gradients:
        axis.set_yscale("symlog", linthresh=10)
        axis.axhline(0, color=GREY, linewidth=0.8)
    else:
        _levels(axis, curves, levels)
    axis.set_xlabel("iteration" if learning else "θ")
    axis.set_ylabel("reward gradient" if gradients else "Bayes regret")
    axis.set_title(f"({panel.name[-1]}) {panel.title}", fontsize=11)
    axis.margins(x=0.01)
    if gradients:  # the curves fill the panel: their names are in a row above them
        axis.margins(y=0.14)
    axis.legend(frameon=False, fontsize=8, loc="best", ncols=len(curves) if gradients else 1)
    axis.spines[["top", "right"]].set_visible(False)


def _curve(axis: Any, curve: Series, colour: str, dotted: bool) -> None:
    x, y, band = (np.asarray(values, float) for values in (curve.x, curve.y, curve.band or 0.0))
    exact = curve.se is None
    style: dict[str, Any] = {"color": "#000000", "linestyle": "--"} if exact else {"color": colour}
    axis.plot(x, y, linewidth=1.6, label=curve.name, zorder=3, **style)
    for run in curve.runs:
        axis.plot(x, run, color=colour, linewidth=0.6, alpha=0.35)
    if exact:
        return
    if dotted:
        for edge in (y - band, y + band):
            axis.plot(x, edge, color=colour, linestyle=":", linewidth=1.1)
    else:
        axis.fill_between(x, y - band, y + band, color=colour, alpha=0.22, linewidth=0)


def _levels(axis: Any, curves: list[Series], levels: list[Level]) -> None:
    """Draws levels as lines with their names at the right, or only the names if they are far above."""
    values, reach = [level.value for level in levels], max(max(curve.y) for curve in curves)
    top = 1.08 * max([reach, *(value for value in values if value <= 1.3 * reach)])
    axis.set_ylim(0, top)
    # Those above keep their order: the highest comes last.
    highest = [min(value, top * (1 + 1e-3 * value / max(values))) for value in values]
    for level, place in zip(levels, spread(highest, 0.052 * top, top), strict=True):
        words = f"↑ {level.name} {level.value:.1f}"
        if level.value <= 1.3 * reach:
            axis.axhline(level.value, color=GREY, linestyle="--", linewidth=0.9, zorder=1)
            words = f"{level.name} {level.value:.2f}"
        axis.annotate(words, (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=8)


def spread(values: list[float], gap: float, most: float = np.inf) -> list[float]:
    """Places near these values, at least `gap` apart and at most `most`.

    >>> spread([1.0, 1.1, 5.0], 0.5, 4.0)
    [0.8, 1.3, 4.0]
    """
    order = np.argsort(values, kind="stable")
    groups: list[list[float]] = []  # centre and size of each
    for value in np.asarray(values, float)[order]:
        groups.append([float(value), 1.0])
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < gap * (groups[-1][1] + groups[-2][1]) / 2:
            (one, first), (other, second) = groups[-2:]
            groups[-2:] = [[(one * first + other * second) / (first + second), first + second]]
    places = [c + gap * (i - (count - 1) / 2) for c, count in groups for i in range(int(count))]
    for i in range(len(places) - 1, -1, -1):
        places[i] = min(places[i], most)
        most = places[i] - gap
    found = np.empty(len(values))
    found[order] = places
    return [round(float(place), 6) for place in found]


def describe(panel: Panel, results: Results) -> str:
    """What a picture shows, for people who cannot see it."""
    words = [f"{panel.title}."]
    for curve in panel.series(results):
        low = int(np.argmin(curve.y))
        what = "gradient" if isinstance(panel, GradientOverTheta) else "regret"
        words.append(
            f"{curve.name}: {what} {curve.y[0]:.3g} at {curve.x[0]:g}, {curve.y[-1]:.3g} at "
            f"{curve.x[-1]:g}, least {curve.y[low]:.3g} at {curve.x[low]:g}."
        )
    levels = [f"{level.name} {level.value:.2f}" for level in panel.levels(results)]
    if levels:
        words.append(f"Lines: {', '.join(levels)}.")
    return " ".join(words)
