"""A report as text for a terminal."""

from typing import TYPE_CHECKING

from gradband.play.reporting import words
from gradband.play.reporting.advice import MISMATCH

if TYPE_CHECKING:
    from gradband.play.reporting.report import Arm, Report
    from gradband.play.reporting.value import Value

COLUMNS = ("arm", "pulls", "share now", "naive", "estimate", "interval", "always valid", "P(best)", "loss")
METHODS = {"dr": "doubly robust", "snips": "self-normalised IPS", "ips": "IPS"}


def as_text(report: "Report") -> str:
    """The advice, a row per arm, the value of the test, checks and notes."""
    unit = report.unit
    parts = [
        report.sentence,
        "",
        summary(report),
        "",
        _table([COLUMNS, *(cells(a, unit) for a in report.arms)]),
    ]
    level = words.percent(report.confidence)
    parts += [
        f"interval: {level}, for one look at a time fixed in advance; always valid: {level}, however often",
        "you look; loss: expected cost per decision of staying with the arm from now on.",
        "",
    ]
    if report.value is not None:
        parts += [*value_lines(report.value, unit), ""]
    parts += [*checks(report), "", *(f"Note: {note}" for note in report.notes)]
    return "\n".join(parts)


def summary(report: "Report") -> str:
    """How many decisions there are, and how many count."""
    told = f"{words.count(report.decisions, 'decision')}, of which {words.grouped(report.counted)} count"
    if report.counted == 1 and report.decisions == 1:
        told = "1 decision, which counts"
    if report.waiting:
        told += f"; {words.grouped(report.waiting)} open"
    if report.defaults:
        told += f"; {words.grouped(report.defaults)} with the default reward"
    return f"{told}. Rewards: {report.rewards}."


def cells(arm: "Arm", unit: bool) -> tuple[str, ...]:
    low, high = arm.interval or (None, None)
    return (
        arm.label if arm.active else f"{arm.label} (retired)",
        words.grouped(arm.pulls),
        words.percent(arm.share),
        words.rate(arm.naive, unit),
        words.rate(None if arm.estimate is None else arm.estimate.mean, unit),
        words.span(low, high, unit),
        words.span(*arm.always_valid, unit),
        words.percent(arm.best),
        words.loss(arm.loss, unit),
    )


def value_lines(value: "Value", unit: bool) -> list[str]:
    """The gain over an equal split, by three methods."""
    told = f"Reward per decision {words.rate(value.played.mean, unit)}; gain over an equal split:"
    return [told] + [
        f"  {words.with_error(value.gain[name].mean, value.gain[name].se, unit)} ({method})"
        for name, method in METHODS.items()
    ]


def checks(report: "Report") -> list[str]:
    """Whether arms were pulled, and rewards came, as often as probabilities say."""
    found = [("chosen", report.allocation)]
    if report.feedback is not None:
        found.append(("rewarded", report.feedback))
    lines = []
    for what, check in found:
        if check.expected.sum() == 0:
            lines.append(f"Were arms {what} as often as logged? Unknown: not all probabilities are logged.")
            continue
        worst = max((abs(z) for z in check.z.tolist() if z == z), default=0.0)
        lines.append(
            f"Were arms {what} as often as logged? {'Yes' if check.p_value >= MISMATCH else 'NO'} "
            f"({words.p_value(check.p_value)}, greatest |z| {worst:.1f})."
        )
    return lines


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "─" * len(lines[0]), *lines[1:]])
