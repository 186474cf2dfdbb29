"""Pictures of gains as inline SVG: intervals in rows, a curve over lengths, and bars."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gradband.play.reporting import words
from gradband.play.reporting.charts import ticks
from gradband.play.reporting.html_parts import legend, text

if TYPE_CHECKING:
    from gradband.core.statistics import Mean

HALF = 1.96  # standard errors in half of a 95 % interval
BINS = 24


def ends(value: "Mean") -> tuple[float, float]:
    """The 95 % interval of a mean; the mean itself if its error is unknown."""
    reach = HALF * value.se if math.isfinite(value.se) else 0.0
    return value.mean - reach, value.mean + reach


def signed(value: float, scale: str = "%") -> str:
    """A number with its sign, in percent or in another scale.

    >>> signed(1.234), signed(-0.04), signed(1234.5678, "€ per thousand")
    ('+1.2 %', '−0.0 %', '+1235')
    """
    return (f"{value:+.1f} %" if scale == "%" else f"{value:+.4g}").replace("-", "−")


def interval(value: "Mean", scale: str = "%") -> str:
    """A gain with its 95 % interval."""
    if not math.isfinite(value.se):
        return f"{signed(value.mean, scale)} (too few tests for an interval)"
    low, high = (signed(end, scale).removesuffix(" %") for end in ends(value))
    return f"{signed(value.mean, scale)} ({low} to {high})"


def rows(gains: Sequence[tuple[str, "Mean"]], scale: str = "%") -> str:
    """A row for each gain: its name, its interval beside zero, and the number."""
    limits = [end for _, value in gains for end in ends(value)]
    marks = _marks(min([0.0, *limits]), max([0.0, *limits]))

    def at(value: float) -> str:
        return f"{100 * (value - marks[0]) / (marks[-1] - marks[0]):.2f}"

    drawn = ""
    for name, value in gains:
        low, high = ends(value)
        grid = "".join(
            f'<line class="{_kind(mark)}" x1="{at(mark)}" x2="{at(mark)}" y1="0" y2="10"/>'
            for mark in marks
        )
        colour = "gain" if low > 0 else "loss" if high < 0 else "unclear"
        bar = f'<line class="interval {colour}" x1="{at(low)}" x2="{at(high)}" y1="5" y2="5"/>'
        dot = f'<line class="estimate" x1="{at(value.mean)}" x2="{at(value.mean)}" y1="5" y2="5"/>'
        drawn += (
            f'<div class="row gains"><span class="name">{text(name)}</span>'
            f'<span class="figure">{signed(value.mean, scale)}</span><div class="plot">'
            f'<svg role="img" aria-label="{text(f"{name}: {interval(value, scale)}")}" '
            f'viewBox="0 0 100 10" preserveAspectRatio="none">{grid}{bar}{dot}</svg></div></div>'
        )
    axis = "".join(f"<span>{_mark(mark, scale)}</span>" for mark in marks)
    return f'<figure>{drawn}<div class="row gains"><div class="axis plot">{axis}</div></div></figure>'


def _kind(mark: float) -> str:
    return "zero" if abs(mark) < 1e-9 else "grid"


def _marks(low: float, high: float) -> list[float]:
    return ticks(low, high if high > low else low + 1)


def _mark(value: float, scale: str) -> str:
    return f"{round(value, 10):.10g}{' %' if scale == '%' else ''}".replace("-", "−")


def curve(
    title: str,
    across_words: str,
    lengths: Sequence[int],
    series: Mapping[str, Sequence["Mean"]],
    scale: str = "%",
) -> str:
    """Gains over lengths, which are drawn at equal distances: one line for each series."""
    limits = [end for line in series.values() for value in line for end in ends(value)]
    marks = _marks(min([0.0, *limits]), max([0.0, *limits]))

    def up(value: float) -> float:
        return 100 - 100 * (value - marks[0]) / (marks[-1] - marks[0])

    across = [100 * (place + 0.5) / len(lengths) for place in range(len(lengths))]
    shapes = "".join(
        f'<line class="{_kind(mark)}" x1="0" x2="100" y1="{up(mark):.2f}" y2="{up(mark):.2f}"/>'
        for mark in marks
    )
    for place, line in enumerate(series.values()):
        shapes += _line(line, [x + 1.2 * (place - (len(series) - 1) / 2) for x in across], up, place)
    told = "; ".join(
        f"{name}: "
        + ", ".join(f"{interval(value, scale)} at {n}" for n, value in zip(lengths, line, strict=True))
        for name, line in series.items()
    )
    labels = "".join(f'<span style="top:{up(mark):.2f}%">{_mark(mark, scale)}</span>' for mark in marks)
    below = "".join(f"<span>{text(words.grouped(n))}</span>" for n in lengths)
    return (
        f'<figure class="curve"><div class="levels" aria-hidden="true">{labels}</div>'
        f'<svg role="img" aria-label="{text(f"{title}. {told}")}" viewBox="0 0 100 100" '
        f'preserveAspectRatio="none">{shapes}</svg><div class="lengths">{below}</div>'
        f'<p class="soft across">{text(across_words)}</p>'
        f"{legend(map(text, series), [f'var(--arm-{place})' for place in range(len(series))])}</figure>"
    )


def _line(line: Sequence["Mean"], across: list[float], up: Callable[[float], float], place: int) -> str:
    colour = f'stroke="var(--arm-{place})"'
    points = " ".join(f"{x:.2f},{up(value.mean):.2f}" for x, value in zip(across, line, strict=True))
    drawn = f'<polyline class="path" {colour} points="{points}"/>'
    for x, value in zip(across, line, strict=True):
        low, high = ends(value)
        y = f"{up(value.mean):.2f}"
        at = f'{colour} x1="{x:.2f}" x2="{x:.2f}"'
        drawn += f'<line class="error" {at} y1="{up(low):.2f}" y2="{up(high):.2f}"/>'
        drawn += f'<line class="point" {at} y1="{y}" y2="{y}"/>'
    return drawn


def bars(title: str, heights: Sequence[float], labels: Sequence[str], marked: int | None = None) -> str:
    """Bars from the left to the right, one of them `marked`, with a label for each, or for both ends."""
    most = max([*heights, 1e-300])
    width = 100 / len(heights)
    shapes = "".join(
        f'<rect class="bar{" marked" if place == marked else ""}" x="{(place + 0.08) * width:.2f}" '
        f'width="{0.84 * width:.2f}" y="{100 - tall:.2f}" height="{tall:.2f}"/>'
        for place, tall in enumerate(100 * height / most for height in heights)
    )
    below = "".join(f"<span>{text(label)}</span>" for label in labels)
    return (
        f'<figure class="bars"><figcaption>{text(title)}</figcaption><svg role="img" '
        f'aria-label="{text(title)}" viewBox="0 0 100 100" preserveAspectRatio="none">{shapes}</svg>'
        f'<div class="below{"" if len(labels) == len(heights) else " ends"}">{below}</div></figure>'
    )


def histogram(values: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Counts in bins of equal width, and where the first begins and the last ends.

    The last bin has what lies beyond 99 % of the values.
    """
    low, high = float(values.min()), float(np.quantile(values, 0.99))
    if not high > low:
        high = low + max(abs(low), 1e-9)
    counts, _ = np.histogram(np.minimum(values, high), BINS, (low, high))
    return counts, low, high
