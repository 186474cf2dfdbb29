"""Plots that several results share. Matplotlib is imported when the first one is drawn."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def axes_for(ax: "Axes | None", size: tuple[float, float]) -> "Axes":
    """The given Axes, or new ones from pyplot with the user's backend."""
    return new_figure(size).subplots() if ax is None else ax


def new_figure(size: tuple[float, float]) -> "Figure":
    """A pyplot figure with the user's backend, so that a notebook shows it."""
    from matplotlib import pyplot

    return pyplot.figure(figsize=size, layout="constrained")


def shortened(name: str, most: int = 40) -> str:
    """A name that is short enough for a plot: the end of a path, or the beginning of another name.

    >>> shortened("a/long/path/policy.safetensors", 12), shortened("ts:a=2.07+b=129.9", 12)
    ('…safetensors', 'ts:a=2.07+b…')
    """
    if len(name) <= most:
        return name
    return "…" + name[1 - most :] if "/" in name or "\\" in name else name[: most - 1] + "…"


def span(first: int, last: int) -> str:
    """A range of whole numbers, as short as possible."""
    return f"{first}" if first == last else f"{first}–{last}"


def height_of_bars(count: int) -> float:
    """The height in inches of a figure with this many bars."""
    return 1.3 + 0.38 * count


def bars(
    axis: Any, rows: list[dict[str, Any]], optimum: float | None = None, bound: float | None = None
) -> None:
    """Draws policies' regrets as bars, from their `name`, `regret`, `se` and `share` of the way from TS.

    The optimum, or a bound on every policy's regret, is a line; no policy can reach the area to its left.
    """
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
    least, word = (bound, "bound") if optimum is None else (optimum, "optimum")
    if least is not None:
        axis.axvspan(0, least, color="C3", alpha=0.12, linewidth=0, zorder=0)
        axis.axvline(least, color="C3", linestyle="--", linewidth=1.2, label=f"{word}: {least:.2f}")
        axis.legend(frameon=False, loc="upper right")
    axis.set_xlim(0, 1.25 * most)
    shown = any(share is not None for share in shares)
    axis.set_xlabel("Bayes regret" + (" (way from Thompson sampling to the optimum)" if shown else ""))
    axis.spines[["top", "right"]].set_visible(False)


def regret_curve(axis: Any, history: dict[str, np.ndarray], lines: dict[str, float]) -> None:
    """Draws regret over iterations with its standard error, and `lines` of other regrets, by name."""
    iterations = np.arange(len(history["regret"]))
    regret, se = history["regret"], history["regret_se"]
    axis.plot(iterations, regret, color="C0", label="while learning")
    axis.fill_between(iterations, regret - se, regret + se, color="C0", alpha=0.25, linewidth=0)
    for i, (name, value) in enumerate(lines.items(), start=1):
        axis.axhline(value, color=f"C{i}", linestyle="--", linewidth=1.2, label=f"{name}: {value:.2f}")
    axis.set(ylabel="Bayes regret", xlabel="iteration")
    axis.set_ylim(bottom=0)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend(frameon=False, fontsize=9, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axis.spines[["top", "right"]].set_visible(False)


def parameters(axis: Any, iterations: np.ndarray, values: np.ndarray, names: list[str]) -> None:
    """Draws a few parameters [L, P] over the iterations, on a logarithmic scale if all are positive."""
    from matplotlib import ticker

    words = ["θ" if name == "theta" else name for name in names]
    for column, word in enumerate(words):
        axis.plot(iterations, values[:, column], color=f"C{column}", label=word)
    axis.set_ylabel(words[0] if len(words) == 1 else "parameters")
    axis.spines[["top", "right"]].set_visible(False)
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


def points(axis: Any, names: list[str], means: list[float], errors: list[float], **style: Any) -> None:
    """Draws means with their standard errors, one below the other."""
    places = np.arange(len(names))[::-1]
    finite = [error if np.isfinite(error) else 0.0 for error in errors]
    axis.errorbar(means, places, xerr=finite, fmt="o", markersize=5, linewidth=1.4, capsize=2, **style)
    axis.set_yticks(places, [shortened(name) for name in names])
    axis.set_ylim(-0.6, len(names) - 0.4)
    axis.spines[["top", "right"]].set_visible(False)
