"""Rows that stand beside the paper: what it says, what we find, and how far apart they are."""

import dataclasses
import math
import re
from typing import Any

import numpy as np

from gradband.core.errors import InputError, shown, unknown
from gradband.paper.curves import Learning, middle
from gradband.paper.panels import GradientOverTheta, Level, Panel, RegretOverTheta, Results, Table, title
from gradband.paper.unit import command

AGREES, DISAGREES, OPEN = "agrees", "disagrees", "open"
FAR = 3.0  # standard errors beyond which numbers disagree


@dataclasses.dataclass(frozen=True)
class Row:
    """What the paper says, our number, and whether they agree.

    Without an error of the paper's, z is that of `samples` instances. A statement in words is read as a
    range, in `reads`, and `verdict` says whether our number lies in it; it is empty where the paper has a
    cross.
    """

    panel: str
    what: str
    paper: float | None
    paper_se: float | None
    says: str
    ours: float
    se: float
    z: float | None
    remark: str
    redo: str
    reads: str = ""
    verdict: str = ""

    def described(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def z_score(ours: float, se: float, paper: float, paper_se: float) -> float | None:
    """How many standard errors apart two numbers are, or None if both are exact."""
    error = math.hypot(se, paper_se)
    return (ours - paper) / error if error else None


def of_table(panel: Table, results: Results) -> list[Row]:
    """A row for each cell."""
    rows, units = [], panel.units()
    for problem, printed in panel.printed.items():
        for policy in panel.policies:
            label = f"{policy} on {problem}"
            ours, se = results[label]["regret"], results[label]["se"]
            paper, paper_se = printed.get(policy, (None, None))
            z = None if paper is None or paper_se is None else z_score(ours, se, paper, paper_se)
            remark = panel.remarks.get(problem, {}).get(policy, "")
            if paper is None:
                remark = "a cross in the paper: too costly then"
            what = f"{title(policy)} on {problem}"
            says = "×" if paper is None else f"{paper:.2f} ± {paper_se:.2f}"
            redo, found = command(units[label]), of_z(z)
            numbers = paper, paper_se, says, ours, se, z
            rows.append(Row(panel.name, what, *numbers, remark, redo, verdict=found))
    return rows


def of_file(given: dict[str, Any], panel: Panel, results: Results, profile: str) -> Row:
    """A row that an experiment's file asks for."""
    value = measure(panel, given["of"], results)
    paper, paper_se = (*given.get("printed", []), None, None)[:2]
    remarks, z = [given["remark"]] if "remark" in given else [], None
    if paper is not None and paper_se is not None:
        z = z_score(value.value, value.se, paper, paper_se)
    elif paper is not None and "samples" in given and isinstance(panel, Learning):
        assumed = results[f"{given['of']['curve']} {panel.seeds[0]}"]["sd"] / given["samples"] ** 0.5
        z = z_score(value.value, value.se, paper, assumed)
        remarks.append(f"no error is given: z with that of {given['samples']} instances, {assumed:.2f}")
    elif paper is not None:
        remarks.append("no error is given")
    says = given.get("says") or (f"{paper:.2f}" + (f" ± {paper_se:.2f}" if paper_se is not None else ""))
    reads = given.get("reads", says) if z is None else ""
    found = of_z(z)
    if reads:
        found, why = verdict(reads, value, len(panel.seeds) if isinstance(panel, Learning) else 0)
        remarks.insert(0, why if reads == says else f"read as {reads}: {why}")
    if isinstance(panel, Learning) and "curve" in given["of"]:
        remarks.append(panel.note)
    redo = f"gradband reproduce {panel.name} --profile {profile}"
    return Row(
        panel.name,
        given["what"],
        paper,
        paper_se,
        says,
        value.value,
        value.se,
        z,
        "; ".join(filter(None, remarks)),
        redo,
        reads if reads != says else "",
        found,
    )


def of_z(z: float | None) -> str:
    """Whether numbers agree that are so many standard errors apart."""
    return "" if z is None else AGREES if abs(z) <= FAR else DISAGREES


def bounds(reads: str) -> tuple[float, float]:
    """The range that a statement is read as.

    >>> bounds("> 31.6"), bounds("0.316 to 3.16")
    ((31.6, inf), (0.316, 3.16))
    """
    number = r"(-?[\d.]+)"
    if found := re.fullmatch(f"([<>]) {number}", reads):
        end = float(found[2])
        return (-math.inf, end) if found[1] == "<" else (end, math.inf)
    if found := re.fullmatch(f"{number} to {number}", reads):
        return float(found[1]), float(found[2])
    raise InputError(f"a statement is read as < number, > number or number to number, not {shown(reads)}")


def verdict(reads: str, value: Level, runs: int = 0) -> tuple[str, str]:
    """Whether our number lies in the range that a statement is read as, and how sure that is.

    By Student's t over runs, or else by the normal distribution, against the nearer end of the range.

    >>> verdict("< 25", Level("", 22.7, 0.1), 5)
    ('agrees', 'holds (p = 2e-05, 5 runs)')
    """
    low, high = bounds(reads)
    if runs == 1:
        return OPEN, "one run does not tell"
    room = min(value.value - low, high - value.value)
    t = abs(room) / max(value.se, 1e-12)
    p = student(t, runs - 1) if runs else math.erfc(t / math.sqrt(2))
    words = f"(p {f'= {p:.1g}' if p > 1e-9 else '< 1e-9'}{f', {runs} runs' if runs else ''})"
    if p > 0.05:
        return OPEN, f"not to be told {words}"
    return (AGREES, f"holds {words}") if room > 0 else (DISAGREES, f"does not hold {words}")


def student(t: float, freedom: int) -> float:
    """The probability that |T| > t for Student's T.

    >>> round(student(2.2622, 9), 4)
    0.05
    """
    from jax.scipy.special import betainc

    return float(betainc(freedom / 2, 0.5, freedom / (freedom + t * t)))


def check(given: dict[str, Any], panels: dict[str, Panel]) -> None:
    """Raises an error for a row about something that its experiment does not have."""
    of = given["of"]
    if of["panel"] not in panels:
        raise unknown("panel of a row", of["panel"], panels)
    if not ({"printed", "says"} & {*given}):
        raise InputError(f"the row {given['what']!r} needs a printed number, or what the paper says")
    panel = panels[of["panel"]]
    if len(given.get("printed", [])) < 2 and not ("samples" in given and isinstance(panel, Learning)):
        try:
            bounds(given.get("reads", given.get("says", "")))
        except InputError as error:
            raise InputError(f"the row {given['what']!r} needs reads: {error}") from None
    allowed: dict[str, Any] = {"panel": panels}
    if isinstance(panel, Learning):
        allowed |= {"line": panel.lines, "curve": panel.curves, "less": [*panel.curves, *panel.lines]}
        allowed |= {"after": [of.get("after")]}
    elif isinstance(panel, GradientOverTheta):
        allowed |= {"variance": panel.baselines, "over": panel.baselines, "at": panel.thetas}
    elif isinstance(panel, RegretOverTheta):
        allowed |= {"least": panel.policies, "less": panel.policies, "at": panel.thetas}
    else:
        raise InputError(f"a row can't be about a {panel.kind} panel")
    for key, value in of.items():
        if key not in allowed:
            raise unknown(f"key of the row {given['what']!r}", key, allowed)
        if value not in allowed[key]:
            raise unknown(f"{key} of the row {given['what']!r}", value, map(str, allowed[key]))


def measure(panel: Panel, of: dict[str, Any], results: Results) -> Level:
    """The number that a row is about, with its standard error."""
    if isinstance(panel, GradientOverTheta):
        top, bottom = (results[f"{of[key]} {of['at']:g}"] for key in ("variance", "over"))
        ratio = (top["spread"] / bottom["spread"]) ** 2
        return Level("", ratio, 2 * ratio * math.hypot(top["doubt"], bottom["doubt"]))
    if isinstance(panel, RegretOverTheta):
        ours = [results[f"{of['least']}:theta={theta:g}"] for theta in panel.thetas]
        least = min(ours, key=lambda row: row["regret"])
        other = results[f"{of['less']}:theta={of['at']:g}"]
        return Level("", least["regret"] - other["regret"], math.hypot(least["se"], other["se"]))
    if not isinstance(panel, Learning):
        raise InputError(f"a row can't be about a {panel.kind} panel")
    if "line" in of:
        return panel.level(of["line"], panel.problems()[0], results)
    curve = of["curve"]
    if "after" in of:
        x, each, errors = panel.each(curve, results)
        place = int(np.argmin(np.abs(np.array(x) - of["after"])))
        # Both points of a run are measured on the same instances.
        above = 100 * (each[:, [place]] / each[:, [-1]] - 1)
        mean, se = middle(above, 0 * errors[:, [-1]], median=False)
        return Level("", float(mean[0]), float(se[0]))
    end = panel.end(curve, results)
    if "less" not in of:
        return end
    other_end = (
        panel.end(of["less"], results)
        if of["less"] in panel.curves
        else panel.level(of["less"], panel.where(curve), results)
    )
    return Level("", end.value - other_end.value, math.hypot(end.se, other_end.se))
