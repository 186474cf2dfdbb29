"""The speed table as a picture: how many times faster, and how time grows.

    python benchmarks/draw.py rows.json docs/speed.svg

draws again what `gradband bench --json` printed.
"""

import json
import sys
import textwrap
from pathlib import Path

from timing import Row

OURS, LIMIT = "#2a6fbb", "#8a8a8a"


def draw(rows: list[Row], path: Path) -> None:
    """Bars of the ratios, with the range over turns, and times over sizes."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "gradband"
    from matplotlib import pyplot as plt

    growth = [row for row in rows if "sizes" in row]
    ratios = sorted((row for row in rows if "sizes" not in row), key=lambda row: row["ratio"])
    heights = [0.25 * len(ratios) or 0.1, 3.2 if growth else 0.1]
    figure, (bars, lines) = plt.subplots(
        2, 1, figsize=(10, 1 + sum(heights)), height_ratios=heights, layout="constrained"
    )
    names = [textwrap.shorten(str(row["what"]), 90) for row in ratios]
    values = [row["ratio"] for row in ratios]
    spread = [
        [max(0, row["ratio"] - row["low"]) for row in ratios],
        [max(0, row["high"] - row["ratio"]) for row in ratios],
    ]
    colours = [OURS if value >= 1 else LIMIT for value in values]
    bars.barh(names, [value - 1 for value in values], left=1, color=colours, height=0.6)
    bars.errorbar(values, names, xerr=spread, fmt="none", ecolor="black", elinewidth=0.8, capsize=2)
    for name, row in zip(names, ratios, strict=True):
        text = f"{row['ratio']:.0f}" if row["ratio"] >= 100 else f"{row['ratio']:.3g}"
        place = (max(row["high"], 1), name)
        bars.annotate(text, place, xytext=(5, -2.5), textcoords="offset points", fontsize=7)
    bars.set_xscale("log")
    bars.margins(x=0.09, y=0.01)
    bars.axvline(1, color="black", linewidth=0.8)
    bars.set_xlabel("peer / ours (times, bytes or regrets): right of 1 gradband has less of it")
    bars.tick_params(axis="y", labelsize=7)
    for row in growth:
        label = f"{str(row['what']).split(', ')[0]}: {row['ratio']:.2f}"
        lines.loglog(row["sizes"], row["seconds"], marker="o", markersize=3, label=label)
    if growth:
        lines.set_xlabel("size")
        lines.set_ylabel("seconds")
        lines.legend(fontsize=7, loc="upper left", bbox_to_anchor=(-0.62, 1))
    else:
        lines.set_axis_off()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text())["rows"], Path(sys.argv[2]))
