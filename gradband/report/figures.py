"""Figures. Matplotlib is imported only when one is drawn."""

from pathlib import Path
from typing import Any

import numpy as np

from gradband.files import write_atomically


def comparison(path: Path, title: str, rows: list[dict[str, Any]], optimum: float | None) -> None:
    """Draws policies' regrets as bars, from their `name`, `regret`, `se` and `share` of the way from ts.

    The optimum is a line, and what lies left of it can't be reached.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7.5, 1.3 + 0.38 * len(rows)), layout="constrained")
    names, regrets, errors, shares = (
        [row[key] for row in rows] for key in ("name", "regret", "se", "share")
    )
    places = np.arange(len(rows))[::-1]
    axis.barh(places, regrets, xerr=errors, color="C0", height=0.62, error_kw={"linewidth": 1.2})
    axis.set_yticks(places, names)
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
    write_atomically(path, lambda target: figure.savefig(target, dpi=150))
    plt.close(figure)


def training_curve(
    path: Path,
    title: str,
    history: dict[str, np.ndarray],
    names: list[str],
    lines: dict[str, float],
) -> None:
    """Draws regret over iterations with its standard error, and the parameters below it.

    `lines` are regrets to compare with, by name; `names` are the parameters', drawn if there are
    only a few.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    iterations = np.arange(len(history["regret"]))
    few = 0 < len(names) <= 3
    figure, axes = plt.subplots(
        1 + few, 1, figsize=(7, 5.6 if few else 3.8), sharex=True, squeeze=False, layout="constrained"
    )
    top: Any = axes[0, 0]
    regret, se = history["regret"], history["regret_se"]
    top.plot(iterations, regret, color="C0", label="while learning")
    top.fill_between(iterations, regret - se, regret + se, color="C0", alpha=0.25, linewidth=0)
    for i, (name, value) in enumerate(lines.items(), start=1):
        top.axhline(value, color=f"C{i}", linestyle="--", linewidth=1.2, label=f"{name}: {value:.2f}")
    top.set(ylabel="Bayes regret")
    top.set_ylim(bottom=0)
    top.legend(frameon=False, fontsize=9, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    figure.suptitle(title)
    if few:
        below: Any = axes[1, 0]
        for column, name in enumerate(names):
            below.plot(iterations, history["params"][:, column], color=f"C{column}", label=name)
        below.set(ylabel="θ" if names == ["theta"] else ", ".join(names))
        if (history["params"] > 0).all():
            below.set_yscale("log")
            for axis_formatter in (below.yaxis.set_major_formatter, below.yaxis.set_minor_formatter):
                axis_formatter(lambda value, _: f"{value:g}")
    axes[-1, 0].set_xlabel("iteration")
    for axis in axes[:, 0]:
        axis.spines[["top", "right"]].set_visible(False)
    write_atomically(path, lambda target: figure.savefig(target, dpi=150))
    plt.close(figure)
