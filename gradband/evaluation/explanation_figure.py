"""The figure of an explanation: maps of what a policy does, and strips for its arms."""

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core.figures import shortened, span

if TYPE_CHECKING:
    from gradband.evaluation.explain import Explanation
    from gradband.evaluation.histories import Maps

BLANK = "0.93"  # grey of empty cells


def figure_size(found: "Explanation") -> tuple[float, float]:
    """Width and height in inches."""
    return 9.5, 2.6 + sum(_heights(found))


def _heights(found: "Explanation") -> list[float]:
    """Heights of the rows of maps, and of the strips."""
    rows = 1 if found.maps.optimal is None else 2
    return [2.3] * rows + [float(np.clip(0.2 * found.problem.arms, 0.6, 3))]


def _colours(arms: int) -> Any:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm

    # With many arms, a few per cent must look different from 0.
    return ScalarMappable(PowerNorm(1 if arms == 2 else 0.5, 0, 1), "viridis")


def draw_strip(axis: Any, found: "Explanation") -> None:
    """Draws how likely the policy is to pull each arm, over all rounds."""
    colours = _colours(found.problem.arms)
    _strip(axis, found, found.strips.policy, {"cmap": colours.cmap, "norm": colours.norm})
    axis.set_title(f"{shortened(found.policy, 44)}, each arm", fontsize=10, parse_math=False)
    bar = axis.get_figure().colorbar(colours, ax=axis, format=_percent)
    bar.set_label("probability of pulling the arm")


def _strip(axis: Any, found: "Explanation", values: np.ndarray, shading: dict[str, Any]) -> None:
    arms = found.problem.arms
    axis.pcolormesh(found.strips.rounds + 0.5, np.arange(arms + 1) + 0.5, values, **shading)
    axis.set(xlabel="pull" if found.problem.pulls_per_round > 1 else "round", ylabel="arm")
    axis.invert_yaxis()
    axis.locator_params("y", nbins=10, integer=True)


def draw(figure: Any, found: "Explanation", title: str) -> list[Any]:
    """Draws how likely a policy is to pull an arm, beside the optimal policy if it is known.

    Maps show the probability over what is known of an arm, in three windows of rounds. Strips below
    them show it for each arm, over all rounds. Returns the Axes of both.
    """
    maps, strips, arms = found.maps, found.strips, found.problem.arms
    what = "pull" if found.problem.pulls_per_round > 1 else "round"
    rows = [(found.policy, maps.policy, strips.policy)]
    if maps.optimal is not None and strips.optimal is not None:
        rows.append(("optimal", maps.optimal, strips.optimal))
    heights = _heights(found)
    figure.suptitle(textwrap.fill(title, 90), parse_math=False)
    grid = figure.add_gridspec(len(heights), 6, height_ratios=heights)
    colours = _colours(arms)
    shading: dict[str, Any] = {"cmap": colours.cmap, "norm": colours.norm}
    axes: list[Any] = []
    for i, (name, probabilities, _) in enumerate(rows):
        for j, (window, values) in enumerate(zip(found.windows, probabilities, strict=True)):
            axis = figure.add_subplot(grid[i, 2 * j : 2 * j + 2])
            _map(axis, maps, values, shading)
            rounds = span(window.first, window.last)
            words = f"{window.name}: {what}{'' if window.first == window.last else 's'} {rounds}"
            axis.set_title(f"{shortened(name, 30)}\n{words}", fontsize=10, parse_math=False)
            axis.tick_params(labelleft=j == 0, labelbottom=i == len(rows) - 1)
            axes.append(axis)
        axes[-3].set_ylabel("share of arm 2 in the pulls" if arms == 2 else "pulls of the arm")
    other = "arm 2 so far − that of arm 1" if arms == 2 else "the arm so far − that of the best other arm"
    axes[-2].set_xlabel(f"mean reward of {other}")
    for i, (name, _, values) in enumerate(rows):
        axis = figure.add_subplot(grid[-1, 6 * i // len(rows) : 6 * (i + 1) // len(rows)])
        _strip(axis, found, values, shading)
        axis.set_title(f"{shortened(name, 44)}, each arm", fontsize=10, parse_math=False)
        axis.set_ylabel("" if i else "arm")
        axis.tick_params(labelleft=i == 0)
        axes.append(axis)
    which = "arm 2 (maps), of each arm (strips)" if arms == 2 else "the arm"
    ticks = [0, 0.25, 0.5, 0.75, 1] if arms == 2 else [0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1]
    bar = figure.colorbar(colours, ax=axes, aspect=45, pad=0.02, ticks=ticks, format=_percent)
    bar.set_label(f"probability of pulling {which}")
    figure.supxlabel(textwrap.fill(_remarks(found), 125), fontsize=9, color="0.35", parse_math=False)
    return axes


def _remarks(found: "Explanation") -> str:
    """The text below the figure."""
    words = [
        f"Means over the histories that {found.policy} comes to on {found.instances} fresh instances"
        + ("; grey: none." if found.problem.arms == 2 else ", of all arms together; grey: none.")
    ]
    if found.problem.unit and found.maps.leads[-1] < 1:
        words.append("Outer columns contain everything farther out.")
    if found.maps.optimal is not None:
        words.append("The optimal policy is shown after the same histories.")
    elif found.note:
        words.append(f"There is no optimal policy to show. {found.note}")
    return " ".join(words)


def _map(axis: Any, maps: "Maps", values: np.ndarray, shading: dict[str, Any]) -> None:
    """Draws one map of probabilities [Y, X], with the same limits for all maps."""
    seen = maps.histories.sum(0) > 0
    columns, rows = (np.flatnonzero(seen.any(other)) for other in (0, 1))
    reach = max(-maps.leads[columns[0]], maps.leads[columns[-1] + 1])
    shares = maps.rows[-1] == 1
    heights = maps.rows if shares else np.arange(len(maps.rows))
    axis.pcolormesh(maps.leads, heights, values, **shading)
    axis.axvline(0, color="0.3", linewidth=0.8, linestyle=":")
    axis.set_facecolor(BLANK)
    axis.set_xlim(-reach, reach)
    # Ticks stay away from the edges, where those of the next map are.
    tick = float(f"{0.7 * reach:.1g}")
    axis.set_xticks([-tick, 0, tick])
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "−"))
    if shares:
        axis.yaxis.set_major_formatter(_percent)
        return
    # Rows for several numbers of pulls are as high as those for one.
    first, last = maps.rows[:-1].astype(int), maps.rows[1:].astype(int) - 1
    words = [span(a, b) for a, b in zip(first, last, strict=True)]
    low, high = int(rows[0]), int(rows[-1]) + 1
    axis.set_yticks(np.arange(low, high, 2) + 0.5, words[low:high:2])
    axis.set_ylim(low, high)


def _percent(value: float, _: int) -> str:
    return f"{100 * value:.0f} %"
