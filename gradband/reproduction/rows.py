"""Rows that stand beside the paper: what it says, what we find, and how far apart they are."""

import dataclasses
import math
import re
from typing import Any

from gradband.errors import InputError, unknown
from gradband.reproduction.panels import (
    NAMES,
    GradientOverTheta,
    Learning,
    Level,
    Panel,
    RegretOverTheta,
    Results,
    Table,
)
from gradband.reproduction.unit import Unit, command


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
            what = f"{NAMES[policy]} on {problem}"
            says = "×" if paper is None else f"{paper:.2f} ± {paper_se:.2f}"
            rows.append(
                Row(panel.name, what, paper, paper_se, says, ours, se, z, remark, command(units[label]))
            )
    return rows


def of_file(given: dict[str, Any], panels: dict[str, Panel], results: dict[str, Results]) -> Row | None:
    """A row that an experiment's file asks for, or None if its panel was not."""
    of = given["of"]
    panel = panels.get(of["panel"])
    if panel is None:
        return None
    found = results[of["panel"]]
    value, unit = measure(panel, of, found)
    printed = given.get("printed", [])
    paper = printed[0] if printed else None
    paper_se = printed[1] if len(printed) > 1 else None
    remark, z = given.get("remark", ""), None
    if paper is not None and paper_se is not None:
        z = z_score(value.value, value.se, paper, paper_se)
    elif paper is not None and "samples" in given and isinstance(panel, Learning):
        first = found[f"{of['curve']} {panel.seeds[0]}"]
        assumed = first["sd"] / given["samples"] ** 0.5
        z = z_score(value.value, value.se, paper, assumed)
        remark = f"the paper gives no error: z with that of its {given['samples']} instances, {assumed:.2f}"
    says = given.get("says") or (f"{paper:.2f}" + (f" ± {paper_se:.2f}" if paper_se is not None else ""))
    if paper is None and not remark:
        remark = verdict(says, value)
    if isinstance(panel, Learning) and panel.note:
        remark += f" ({panel.note})"
    return Row(
        panel.name, given["what"], paper, paper_se, says, value.value, value.se, z, remark, command(unit)
    )


def verdict(says: str, value: Level) -> str:
    """Whether a bound that the paper states holds.

    >>> verdict("< 25", Level("", 22.7, 0.1))
    'holds, by 23.0 standard errors'
    """
    bound = re.fullmatch(r"([<>]) (-?[\d.]+)", says)
    if bound is None:
        return "the paper gives no number"
    room = (float(bound[2]) - value.value) * (1 if bound[1] == "<" else -1) / value.se
    if abs(room) < 2:
        return "not to be told: it is within two standard errors"
    return f"holds, by {room:.1f} standard errors" if room > 0 else f"does not hold, by {-room:.1f}"


def measure(panel: Panel, of: dict[str, Any], results: Results) -> tuple[Level, Unit]:
    """The number that a row is about, with its standard error, and the first unit it rests on."""
    units = panel.units()
    if isinstance(panel, Learning):
        return _of_learning(panel, of, results, units)
    if isinstance(panel, GradientOverTheta):
        names = [f"{of[key]} {of['at']:g}" for key in ("variance", "over")]
        top, bottom = (results[name]["spread"] ** 2 for name in names)
        # Of a normal sample, the logarithm of a variance has a standard error of √(2/m).
        ratio = top / bottom
        return Level("", ratio, ratio * math.sqrt(4 / panel.instances)), units[names[0]]
    if isinstance(panel, RegretOverTheta):
        here = [f"{of['least']}:theta={theta:g}" for theta in panel.thetas]
        least = min(here, key=lambda name: results[name]["regret"])
        other = f"{of['less']}:theta={of['at']:g}"
        value = results[least]["regret"] - results[other]["regret"]
        return Level("", value, math.hypot(results[least]["se"], results[other]["se"])), units[least]
    raise InputError(f"a row can't be about a {panel.kind} panel")


def _of_learning(
    panel: Learning, of: dict[str, Any], results: Results, units: dict[str, Unit]
) -> tuple[Level, Unit]:
    if "line" in of:
        problem = panel.problems()[0]
        labels = list(panel.line(of["line"], problem))
        return panel.level(of["line"], problem, results), units[labels[0]]
    curve = of["curve"]
    if curve not in panel.curves:
        raise unknown(f"curve of {panel.name}", curve, panel.curves)
    end, unit = panel.end(curve, results), units[f"{curve} {panel.seeds[0]}"]
    if "after" in of:
        series = panel.curve(curve, results)
        place = series.x.index(min(series.x, key=lambda x: abs(x - of["after"])))
        differences = [
            results[f"{curve} {seed}"]["points"][place][1] - results[f"{curve} {seed}"]["points"][-1][1]
            for seed in panel.seeds
        ]
        mean = sum(differences) / len(differences)
        spread = sum((d - mean) ** 2 for d in differences) / max(1, len(differences) - 1)
        return Level("", mean, math.sqrt(spread / len(differences))), unit
    if "less" in of:
        other = (
            panel.end(of["less"], results)
            if of["less"] in panel.curves
            else panel.level(of["less"], panel.where(curve), results)
        )
        end = Level("", end.value - other.value, math.hypot(end.se, other.se))
    return end, unit
