"""Pictures of a report as inline SVG. They stretch with the page, so words around them are HTML."""

import html
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from gradband.play.reporting import words
from gradband.play.reporting.html_parts import legend

if TYPE_CHECKING:
    from gradband.play.reporting.report import Arm, Report

COLOURS = 8
KEYS = {
    "estimate": '<line class="estimate" x1="50" x2="50" y1="5" y2="5"/>',
    "interval": '<line class="interval" x1="5" x2="95" y1="5" y2="5"/>',
    "always": '<line class="always" x1="5" x2="95" y1="5" y2="5"/>',
    "naive": '<line class="naive" x1="50" x2="50" y1="5" y2="5"/>'
    '<line class="naive-hole" x1="50" x2="50" y1="5" y2="5"/>',
}


def intervals(report: "Report") -> str:
    """A row per arm: the estimate, its interval, the always-valid interval and the naive mean."""
    marks = ticks(*_range(report))
    level = words.percent(report.confidence)
    told = {
        "estimate": "estimate",
        "interval": f"{level} interval, for one look",
        "always": f"{level} always-valid interval, for any number of looks",
        "naive": "naive mean (biased)",
    }
    keys = "".join(
        f'<li class="key"><svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{shape}'
        f"</svg>{told[name]}</li>"
        for name, shape in KEYS.items()
    )
    rows = "".join(_row(arm, report.unit, marks) for arm in report.arms)
    axis = "".join(f"<span>{_tick(tick, report.unit)}</span>" for tick in marks)
    return (
        f'<figure>{rows}<div class="row"><div class="axis plot">{axis}</div></div>'
        f'<ul class="legend soft">{keys}</ul></figure>'
    )


def _tick(value: float, unit: bool) -> str:
    return f"{100 * value:.10g} %" if unit else f"{value:.10g}".replace("-", "−")


def ticks(low: float, high: float) -> list[float]:
    """Round numbers, three to six of them, from below `low` to above `high`.

    >>> ticks(0.056, 0.2), ticks(-3.0, 14.0)
    ([0.05, 0.1, 0.15000000000000002, 0.2], [-5.0, 0.0, 5.0, 10.0, 15.0])
    """
    rough = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = unit * next(factor for factor in (1, 2, 5, 10) if factor * unit >= 0.99 * rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def _range(report: "Report") -> tuple[float, float]:
    """The values that the axis has room for: of arms with some pulls, if there are any."""
    known = [arm for arm in report.arms if arm.pulls >= 10] or [arm for arm in report.arms if arm.pulls]
    ends = [
        end for arm in known for end in (*arm.always_valid, *(arm.interval or ())) if math.isfinite(end)
    ]
    if not ends:
        return 0.0, 1.0
    low, high = min(ends), max(ends)
    room = 0.0 if high - low > 1e-9 * abs(high) else max(0.5, abs(high) / 2)
    return low - room, high + room


def _row(arm: "Arm", unit: bool, ticks: list[float]) -> str:
    low, high = ticks[0], ticks[-1]

    def at(value: float) -> str:
        return f"{min(max((value - low) / (high - low), 0), 1) * 100:.2f}"

    def line(kind: str, left: float, right: float) -> str:
        return f'<line class="{kind}" x1="{at(left)}" x2="{at(right)}" y1="5" y2="5"/>'

    shapes = "".join(
        f'<line class="grid" x1="{at(tick)}" x2="{at(tick)}" y1="0" y2="10"/>' for tick in ticks
    ) + line("always", *arm.always_valid)
    told = f"{arm.label}: always-valid interval {words.span(*arm.always_valid, unit)}"
    if arm.interval is not None:
        shapes += line("interval", *arm.interval)
        told += f", interval {words.span(*arm.interval, unit)}"
    if arm.naive is not None:
        shapes += line("naive", arm.naive, arm.naive) + line("naive-hole", arm.naive, arm.naive)
        told += f", naive mean {words.rate(arm.naive, unit)}"
    if arm.estimate is not None:
        shapes += line("estimate", arm.estimate.mean, arm.estimate.mean)
        told += f", estimate {words.rate(arm.estimate.mean, unit)}"
    retired = "" if arm.active else " retired"
    name = html.escape(arm.label) + ("" if arm.active else " (retired)")
    return (
        f'<div class="row"><span class="name{retired}">{name}</span>'
        f'<span class="figure">{words.rate(arm.shown, unit)}</span>'
        f'<div class="plot"><svg role="img" aria-label="{html.escape(told)}" viewBox="0 0 100 10" '
        f'preserveAspectRatio="none">{shapes}</svg></div></div>'
    )


def shares_over_time(report: "Report") -> str:
    """Areas on top of each other, one per arm; of many arms, those with small shares are drawn together."""
    series = report.series["shares"]
    shares = np.array(series["shares"], float)
    if len(shares) < 2:
        return "<p>There are too few decisions for a picture.</p>"
    times = [words_of(time) for time in (series["times"][0], report.now)]
    ends = times[0] or "first decision", times[1] or "latest decision"
    return stacked([arm.label for arm in report.arms], shares, "Shares of decisions over time", ends)


def stacked(labels: list[str], shares: np.ndarray, title: str, ends: tuple[str, str]) -> str:
    """Areas of shares [T, K] on top of each other, with a legend and what stands at both ends below."""
    names, columns = _grouped(labels, shares)
    edges = np.concatenate([np.zeros((len(columns), 1)), columns.cumsum(1)], axis=1)
    x = np.linspace(0, 100, len(columns))
    colours = [_colour(i, len(labels), len(names)) for i in range(len(names))]
    areas = "".join(_area(x, edges[:, i], edges[:, i + 1], colour) for i, colour in enumerate(colours))
    changes = ", ".join(
        f"{name} from {words.percent(first)} to {words.percent(last)}"
        for name, first, last in zip(names, columns[0], columns[-1], strict=True)
    )
    told = html.escape(f"{title}: {changes}")
    return (
        f'<figure><svg class="over-time" role="img" aria-label="{told}" viewBox="0 0 100 100" '
        f'preserveAspectRatio="none">{areas}</svg><div class="axis">'
        f"<span>{html.escape(ends[0])}</span><span>{html.escape(ends[1])}</span></div>"
        f"{legend(map(html.escape, names), colours)}</figure>"
    )


def _grouped(labels: list[str], shares: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The arms with the greatest shares, and all others together, if there are more than colours."""
    if len(labels) <= COLOURS:
        return labels, shares
    most = sorted(np.argsort(-shares.sum(0))[: COLOURS - 1].tolist())
    rest = shares.sum(1) - shares[:, most].sum(1)
    names = [labels[arm] for arm in most]
    return [*names, f"{len(labels) - len(most)} others"], np.column_stack([shares[:, most], rest])


def _colour(place: int, arms: int, drawn: int) -> str:
    return "var(--arm-rest)" if arms > COLOURS and place == drawn - 1 else f"var(--arm-{place})"


def _area(x: np.ndarray, below: np.ndarray, above: np.ndarray, colour: str) -> str:
    points = [*zip(x, above, strict=True), *zip(x[::-1], below[::-1], strict=True)]
    joined = " ".join(f"{across:.2f},{100 - 100 * up:.2f}" for across, up in points)
    return f'<polygon points="{joined}" fill="{colour}"/>'


def words_of(time: float | None) -> str:
    """A time since 1970, or nothing.

    >>> words_of(1_700_000_000.0)
    '2023-11-14 22:13 UTC'
    """
    if time is None or math.isnan(time) or not 0 <= time < 1e11:
        return ""
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M} UTC"
