"""Figures. Matplotlib is imported only when one is drawn."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core.files import write_atomically

if TYPE_CHECKING:
    from gradband.evaluation.explain import Explanation, Maps

BLANK = "0.93"  # grey of empty cells


def shortened(name: str, most: int = 40) -> str:
    """A name that leaves room in a picture: the end of a long path.

    >>> shortened("a/long/path/policy.safetensors", 12)
    '…safetensors'
    """
    return name if len(name) <= most else "…" + name[1 - most :]


def save(path: Path, figure: Any) -> None:
    write_atomically(path, lambda target: figure.savefig(target, dpi=150))


def comparison(path: Path, title: str, rows: list[dict[str, Any]], optimum: float | None) -> None:
    """Draws policies' regrets as bars, from their `name`, `regret`, `se` and `share` of the way from ts.

    The optimum is a line; no policy reaches the area to its left.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 1.3 + 0.38 * len(rows)), layout="constrained")
    axis: Any = figure.subplots()
    names, regrets, errors, shares = (
        [row[key] for row in rows] for key in ("name", "regret", "se", "share")
    )
    places = np.arange(len(rows))[::-1]
    axis.barh(places, regrets, xerr=errors, color="C0", height=0.62, error_kw={"linewidth": 1.2})
    axis.set_yticks(places, [shortened(name) for name in names])
    most = max([*regrets, 1e-9])
    for place, regret, error, share in zip(places, regrets, errors, shares, strict=True):
        words = f"{regret:.2f}" + ("" if share is None else f"  ({100 * share:.0f} %)")
        axis.text(regret + error + 0.012 * most, place, words, va="center", fontsize=9)
    if optimum is not None:
        axis.axvspan(0, optimum, color="C3", alpha=0.12, linewidth=0, zorder=0)
        axis.axvline(optimum, color="C3", linestyle="--", linewidth=1.2, label=f"optimum: {optimum:.2f}")
        axis.legend(frameon=False, loc="upper right")
    axis.set_xlim(0, 1.25 * most)
    shown = any(share is not None for share in shares)
    axis.set(xlabel="Bayes regret" + (" (way from ts to the optimum)" if shown else ""), title=title)
    axis.spines[["top", "right"]].set_visible(False)
    save(path, figure)


def training_curve(
    path: Path, title: str, history: dict[str, np.ndarray], names: list[str], lines: dict[str, float]
) -> None:
    """Draws regret over iterations with its standard error, and the parameters below it.

    `lines` are regrets to compare with, by name. `names` are those of the parameters, which are drawn if
    they are few.
    """
    from matplotlib.figure import Figure

    iterations = np.arange(len(history["regret"]))
    few = 0 < len(names) <= 3
    figure = Figure(figsize=(7, 5.6 if few else 3.8), layout="constrained")
    axes: Any = figure.subplots(1 + few, 1, sharex=True, squeeze=False)[:, 0]
    top, regret, se = axes[0], history["regret"], history["regret_se"]
    top.plot(iterations, regret, color="C0", label="while learning")
    top.fill_between(iterations, regret - se, regret + se, color="C0", alpha=0.25, linewidth=0)
    for i, (name, value) in enumerate(lines.items(), start=1):
        top.axhline(value, color=f"C{i}", linestyle="--", linewidth=1.2, label=f"{name}: {value:.2f}")
    top.set(ylabel="Bayes regret")
    top.set_ylim(bottom=0)
    top.legend(frameon=False, fontsize=9, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    figure.suptitle(title)
    if few:
        parameters(axes[1], iterations, history["params"], names)
    axes[-1].set_xlabel("iteration")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    save(path, figure)


def parameters(axis: Any, iterations: np.ndarray, values: np.ndarray, names: list[str]) -> None:
    """Draws a few parameters [L, P] over the iterations, on a logarithmic scale if all are positive."""
    from matplotlib import ticker

    words = ["θ" if name == "theta" else name for name in names]
    for column, word in enumerate(words):
        axis.plot(iterations, values[:, column], color=f"C{column}", label=word)
    axis.set_ylabel(words[0] if len(words) == 1 else "parameters")
    if len(words) > 1:
        axis.legend(frameon=False, fontsize=9, ncols=len(words), loc="best")
    if not (values > 0).all():
        return
    axis.set_yscale("log")
    decades = np.log10(values.max() / values.min())
    # Few enough ticks that their labels do not overlap, also within less than a decade.
    locator: Any = ticker.MaxNLocator(5)
    if decades > 0.7:
        locator = ticker.LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2.5 else (1.0,), numticks=9)
    axis.yaxis.set_major_locator(locator)
    axis.yaxis.set_minor_locator(ticker.NullLocator())
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def explanation(title: str, found: "Explanation") -> Any:
    """A figure of how likely a policy is to pull an arm, beside the optimal policy if it is known.

    Maps show the probability over what is known of an arm, in three windows of rounds. Strips below
    them show it for each arm, over all rounds.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    maps, strips, arms = found.maps, found.strips, found.problem.arms
    what = "pull" if found.problem.pulls_per_round > 1 else "round"
    rows = [(found.policy, maps.policy, strips.policy)]
    if maps.optimal is not None and strips.optimal is not None:
        rows.append(("optimal", maps.optimal, strips.optimal))
    heights = [2.3] * len(rows) + [float(np.clip(0.2 * arms, 0.6, 3))]
    figure = Figure(figsize=(9.5, 2.6 + sum(heights)), layout="constrained")
    figure.suptitle(textwrap.fill(title, 90), parse_math=False)
    grid = figure.add_gridspec(len(heights), 6, height_ratios=heights)
    # With many arms, a few per cent must look different from 0.
    colours = ScalarMappable(PowerNorm(1 if arms == 2 else 0.5, 0, 1), "viridis")
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
        axis.pcolormesh(strips.rounds + 0.5, np.arange(arms + 1) + 0.5, values, **shading)
        axis.set_title(f"{shortened(name, 44)}, each arm", fontsize=10, parse_math=False)
        axis.set(xlabel=what, ylabel="" if i else "arm")
        axis.invert_yaxis()
        axis.locator_params("y", nbins=10, integer=True)
        axis.tick_params(labelleft=i == 0)
        axes.append(axis)
    which = "arm 2 (maps), of each arm (strips)" if arms == 2 else "the arm"
    ticks = [0, 0.25, 0.5, 0.75, 1] if arms == 2 else [0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1]
    bar = figure.colorbar(colours, ax=axes, aspect=45, pad=0.02, ticks=ticks, format=_percent)
    bar.set_label(f"probability of pulling {which}")
    figure.supxlabel(textwrap.fill(_remarks(found), 125), fontsize=9, color="0.35", parse_math=False)
    return figure


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


def span(first: int, last: int) -> str:
    """A range of whole numbers, as short as possible."""
    return f"{first}" if first == last else f"{first}–{last}"
