"""Rows that stand beside the paper: what it says, what we find, and how far apart they are."""

import dataclasses
import math
import re
from typing import Any

import numpy as np

from gradband.errors import InputError, unknown
from gradband.reproduction.curves import Learning, middle
from gradband.reproduction.panels import (
    GradientOverTheta,
    Level,
    Panel,
    RegretOverTheta,
    Results,
    Table,
    title,
)
from gradband.reproduction.unit import command


@dataclasses.dataclass(frozen=True)
class Row:
    """A number of the paper and ours. Without an error of the paper's, z is that of `samples` instances."""

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
            rows.append(
                Row(panel.name, what, paper, paper_se, says, ours, se, z, remark, command(units[label]))
            )
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
    if paper is None and not remarks:
        remarks.append(verdict(says, value, len(panel.seeds) if isinstance(panel, Learning) else 0))
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
    )


def verdict(says: str, value: Level, runs: int = 0) -> str:
    """Whether a bound that the paper states holds: by Student's t over runs, or else by the normal law.

    >>> verdict("< 25", Level("", 22.7, 0.1), 5)
    'holds (p = 2e-05, 5 runs)'
    """
    bound = re.fullmatch(r"([<>]) (-?[\d.]+)", says)
    if bound is None:
        return "the paper gives no number"
    if runs == 1:
        return "one run does not tell"
    room = (float(bound[2]) - value.value) * (1 if bound[1] == "<" else -1)
    t = abs(room) / max(value.se, 1e-12)
    p = student(t, runs - 1) if runs else math.erfc(t / math.sqrt(2))
    words = f"(p {f'= {p:.1g}' if p > 1e-9 else '< 1e-9'}{f', {runs} runs' if runs else ''})"
    return f"{'not to be told' if p > 0.05 else 'holds' if room > 0 else 'does not hold'} {words}"


def student(t: float, freedom: int) -> float:
    """The probability that |T| > t for Student's T.

    >>> round(student(2.2622, 9), 4)
    0.05
    """
    from jax.scipy.special import betainc

    return float(betainc(freedom / 2, 0.5, freedom / (freedom + t * t)))


def check(given: dict[str, Any], panels: dict[str, Panel]) -> None:
    """Refuses a row that is about something its experiment does not have."""
    of = given["of"]
    if of["panel"] not in panels:
        raise unknown("panel of a row", of["panel"], panels)
    if not ({"printed", "says"} & {*given}):
        raise InputError(f"the row {given['what']!r} needs what is printed, or what the paper says")
    panel = panels[of["panel"]]
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
        mean, se = middle(each[:, [place]] - each[:, [-1]], 0 * errors[:, [-1]], median=False)
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
