"""A report as one self-contained HTML page."""

import math
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from gradband.play.reporting import charts, html_parts, table, words
from gradband.play.reporting.advice import CANT_TELL, GO_ON, MISMATCH, STOP

if TYPE_CHECKING:
    from gradband.play.reporting.report import Report

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
    here = Path(__file__).parent
    verdict, _, sentence = report.sentence.partition(":")
    when = charts.words_of(report.now)
    return Template((here / "page.html").read_text(encoding="utf-8")).substitute(
        style=(here / "page.css").read_text(encoding="utf-8"),
        title=html_parts.text(f"{verdict}: report on a test"),
        mood=MOODS[report.advice],
        verdict=html_parts.text(f"{verdict}:"),
        sentence=html_parts.text(sentence.strip()),
        summary=html_parts.text(table.summary(report) + (f" As of {when}." if when else "")),
        intervals=charts.intervals(report),
        shares=charts.shares_over_time(report),
        numbers=_numbers(report),
        value=_value(report),
        checks=_checks(report),
    )


def _signed(z: float) -> str:
    return "–" if math.isnan(z) else f"{z:+.1f}".replace("-", "−")


def _numbers(report: "Report") -> str:
    rows = [table.cells(arm, report.unit) for arm in report.arms]
    error = words.percent(1 - report.confidence)
    return html_parts.table("One row per arm", HEADS, rows) + (
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
        f"<p>The test had a reward of {html_parts.text(played)} per decision. An equal split of the same "
        "decisions over all arms would have had, estimated from the logged probabilities (± one standard "
        "error):</p>"
        + html_parts.table("Reward per decision", ("method", "equal split", "gain of the test"), rows)
    )


def _checks(report: "Report") -> str:
    lines = table.checks(report)
    found = [report.allocation, *([report.feedback] if report.feedback is not None else [])]
    told = "".join(
        f"<p{' class=bad' if check.p_value < MISMATCH else ''}>{html_parts.text(line)}</p>"
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
        told += html_parts.table("Decisions for each arm", ("arm", "observed", "expected", "z"), rows)
    notes = "".join(f"<li>{html_parts.text(note)}</li>" for note in report.notes)
    return f'{told}<ul class="notes">{notes}</ul>'
