"""Panels of the paper's figures. Matplotlib is imported only when one is drawn.

Colours are told apart by people who don't see all of them, and on light and dark pages alike.
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
    """Whether it is a picture: others are tables."""
    return type(panel).series is not Panel.series


def figure(folder: Path, name: str, title: str, panels: list[tuple[Panel, Results]]) -> list[Path]:
    """Draws panels side by side as PDF and PNG, for papers and talks."""
    plt = _pyplot()
    drawn, axes = plt.subplots(
        1, len(panels), figsize=(WIDTH * len(panels), HEIGHT + 0.3), squeeze=False, layout="constrained"
    )
    for axis, (panel, results) in zip(axes[0], panels, strict=True):
        draw(axis, panel, results)
    drawn.suptitle(title)
    paths = []
    for suffix in ("pdf", "png"):
        path = folder / f"{name}.{suffix}"
        # Without its date, the same numbers give the same file.
        about: Any = {"CreationDate": None} if suffix == "pdf" else None
        write_atomically(path, partial(drawn.savefig, dpi=200, metadata=about))
        paths.append(path)
    plt.close(drawn)
    return paths


def svg(panel: Panel, results: Results) -> str:
    """A panel as an SVG element for a page, which takes its colour of text and lines from there."""
    plt = _pyplot()
    # Identifiers that differ from those of the page's other pictures.
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": panel.name}):
        drawn, axis = plt.subplots(figsize=(WIDTH, HEIGHT), layout="constrained")
        draw(axis, panel, results)
        drawn.patch.set_alpha(0)
        axis.patch.set_alpha(0)
        file = io.StringIO()
        drawn.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(drawn)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*">', "<g>", text)  # names that every picture has, and nothing uses
    return text.replace("#000000", "currentColor")


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


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
    if gradients:  # curves fill the panel: names stand in a row above them
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
    """Draws levels as lines with their names at the right; of those far above only the names."""
    reach = max(max(curve.y) for curve in curves)
    seen = [level.value <= 1.3 * reach for level in levels]
    values = [level.value for level in levels]
    top = 1.08 * max([reach, *(value for value, near in zip(values, seen, strict=True) if near)])
    axis.set_ylim(0, top)
    # Those above keep their order: the highest comes last.
    highest = [min(value, top * (1 + 1e-3 * value / max(values))) for value in values]
    for level, near, place in zip(levels, seen, spread(highest, 0.052 * top, top), strict=True):
        if near:
            axis.axhline(level.value, color=GREY, linestyle="--", linewidth=0.9, zorder=1)
        words = f"{level.name} {level.value:.2f}" if near else f"↑ {level.name} {level.value:.1f}"
        where = ("axes fraction", "data")
        axis.annotate(words, (1.01, place), xycoords=where, va="center", fontsize=8)


def spread(values: list[float], gap: float, most: float = np.inf) -> list[float]:
    """Places near these values that are at least a gap apart, and at most so high.

    >>> spread([1.0, 1.1, 5.0], 0.5, 4.0)
    [0.8, 1.3, 4.0]
    """
    order = np.argsort(values, kind="stable")
    groups: list[list[float]] = []  # centre and how many
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


def described(panel: Panel, results: Results) -> str:
    """What a picture shows, for those who don't see it."""
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
