"""A report as one self-contained HTML page."""

import html
import math
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from gradband.reporting import charts, table, words
from gradband.reporting.advice import CANT_TELL, GO_ON, MISMATCH, STOP

if TYPE_CHECKING:
    from gradband.reporting.report import Report

MOODS = {STOP: "good", GO_ON: "wait", CANT_TELL: "bad"}
HEADS = (
    "arm",
    "pulls",
    "share now",
    "naive mean",
    "estimate",
    "interval, one look",
    "always-valid interval",
    "P(best)",
    "expected loss",
)


def page(report: "Report") -> str:
    """The page as text."""
    here = Path(__file__).parent
    verdict, _, sentence = report.sentence.partition(":")
    when = charts.words_of(report.now)
    return Template((here / "page.html").read_text(encoding="utf-8")).substitute(
        style=(here / "page.css").read_text(encoding="utf-8"),
        title=_text(f"{verdict}: report on a test"),
        mood=MOODS[report.advice],
        verdict=_text(f"{verdict}:"),
        sentence=_text(sentence.strip()),
        summary=_text(table.summary(report) + (f" As of {when}." if when else "")),
        intervals=charts.intervals(report),
        shares=charts.shares_over_time(report),
        numbers=_numbers(report),
        value=_value(report),
        checks=_checks(report),
    )


def _text(given: object) -> str:
    return html.escape(str(given))


def _signed(z: float) -> str:
    return "–" if math.isnan(z) else f"{z:+.1f}".replace("-", "−")


def _rows(rows: Iterable[Iterable[str]]) -> str:
    body = ""
    for first, *cells in rows:
        inner = "".join(f"<td>{_text(cell)}</td>" for cell in cells)
        body += f'<tr><th scope="row">{_text(first)}</th>{inner}</tr>'
    return body


def _table(caption: str, heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table that scrolls if it is too wide."""
    columns = "".join(f'<th scope="col">{_text(head)}</th>' for head in heads)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{_text(caption)}"><table>'
        f"<caption>{_text(caption)}</caption><thead><tr>{columns}</tr></thead>"
        f"<tbody>{_rows(rows)}</tbody></table></div>"
    )


def _numbers(report: "Report") -> str:
    rows = [table.cells(arm, report.unit) for arm in report.arms]
    error = words.percent(1 - report.confidence)
    return _table("One row per arm", HEADS, rows) + (
        f"<p>The interval for one look misses the truth in {error} of tests if you look once, at a time "
        f"fixed in advance. The always-valid one ever misses it in at most {error}, however often "
        "you look. P(best), and the expected loss per decision of staying with an arm, are under "
        "a posterior.</p>"
    )


def _value(report: "Report") -> str:
    value, unit = report.value, report.unit
    if value is None:
        return "<p>There are too few decisions in which every arm had a chance.</p>"
    rows = [
        (
            method,
            words.with_error(value.split[name].mean, value.split[name].se, unit),
            words.with_error(value.gain[name].mean, value.gain[name].se, unit),
        )
        for name, method in table.METHODS.items()
    ]
    played = words.with_error(value.played.mean, value.played.se, unit)
    return (
        f"<p>The test had a reward of {_text(played)} per decision. An equal split of the same decisions "
        "over all arms would have had, estimated from the logged probabilities (± one standard error):</p>"
        + _table("Reward per decision", ("method", "equal split", "gain of the test"), rows)
    )


def _checks(report: "Report") -> str:
    lines = table.checks(report)
    found = [report.allocation, *([report.feedback] if report.feedback is not None else [])]
    told = "".join(
        f"<p{' class=bad' if check.p_value < MISMATCH else ''}>{_text(line)}</p>"
        for line, check in zip(lines, found, strict=True)
    )
    if report.allocation.expected.sum() > 0:
        check = report.allocation
        rows = [
            (
                arm.label,
                words.grouped(seen),
                words.grouped(wanted),
                _signed(z),
            )
            for arm, seen, wanted, z in zip(
                report.arms, check.observed.tolist(), check.expected.tolist(), check.z.tolist(), strict=True
            )
        ]
        told += _table("Decisions for each arm", ("arm", "observed", "expected", "z"), rows)
    notes = "".join(f"<li>{_text(note)}</li>" for note in report.notes)
    return f'{told}<ul class="notes">{notes}</ul>'
