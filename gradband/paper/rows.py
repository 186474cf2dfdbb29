"""Rows that compare with the paper: what it says, what we find, and how far apart they are."""

import math
import re
from typing import Any, NamedTuple

from gradband.core.errors import InputError, shown, unknown
from gradband.paper.curves import Learning
from gradband.paper.panels import Level, Panel, Results, Table, title
from gradband.paper.unit import command

AGREES, DISAGREES, OPEN = "agrees", "disagrees", "open"
FAR = 3.0  # standard errors beyond which numbers disagree


class Row(NamedTuple):
    """What the paper says, our number, and whether they agree.

    If the paper gives no error, z uses that of `samples` instances. A statement in words is read as a range
    (`reads`), and `verdict` says whether our number lies in it. It is empty where the paper has a cross.
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


def z_score(ours: float, se: float, paper: float, paper_se: float) -> float | None:
    """How many standard errors apart two numbers are, or None if both are exact."""
    error = math.hypot(se, paper_se)
    return (ours - paper) / error if error else None


def of_table(panel: Table, results: Results) -> list[Row]:
    """One row per cell."""
    rows, units = [], panel.units()
    for problem, printed in panel.printed.items():
        for policy in panel.policies:
            label = f"{policy} on {problem}"
            ours, se = results[label]["regret"], results[label]["se"]
            paper, paper_se, says, z = None, None, "×", None
            remark = "a cross in the paper: too costly then"
            if policy in printed:
                paper, paper_se = printed[policy]
                says, z = f"{paper:.2f} ± {paper_se:.2f}", z_score(ours, se, paper, paper_se)
                remark = panel.remarks.get(problem, {}).get(policy, "")
            what, redo = f"{title(policy)} on {problem}", command(units[label])
            numbers = paper, paper_se, says, ours, se, z
            rows.append(Row(panel.name, what, *numbers, remark, redo, verdict=of_z(z)))
    return rows


def of_file(given: dict[str, Any], panel: Panel, results: Results, profile: str) -> Row:
    """A row that an experiment's file asks for."""
    value = panel.measure(given["of"], results)
    paper, paper_se = (*given.get("printed", []), None, None)[:2]
    remarks, z = [given.get("remark", "")], None
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
    remark, redo = "; ".join(filter(None, remarks)), f"gradband reproduce {panel.name} --profile {profile}"
    numbers = paper, paper_se, says, value.value, value.se, z
    read_as = reads if reads != says else ""
    return Row(panel.name, given["what"], *numbers, remark, redo, read_as, found)


def of_z(z: float | None) -> str:
    """Whether numbers agree that are this many standard errors apart."""
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

    It tests against the nearer end of the range, by Student's t over runs, or by the normal distribution.

    >>> verdict("< 25", Level("", 22.7, 0.1), 5)
    ('agrees', 'holds (p = 2e-05, 5 runs)')
    """
    from scipy.special import stdtr  # takes a while to import

    low, high = bounds(reads)
    if runs == 1:
        return OPEN, "one run is not enough to tell"
    room = min(value.value - low, high - value.value)
    t = abs(room) / max(value.se, 1e-12)
    p = 2 * float(stdtr(runs - 1, -t)) if runs else math.erfc(t / math.sqrt(2))
    words = f"(p {f'= {p:.1g}' if p > 1e-9 else '< 1e-9'}{f', {runs} runs' if runs else ''})"
    if p > 0.05:
        return OPEN, f"undecided {words}"
    return (AGREES, f"holds {words}") if room > 0 else (DISAGREES, f"does not hold {words}")


def check(given: dict[str, Any], panels: dict[str, Panel]) -> None:
    """Raises an error for a row about something that its experiment does not have."""
    of, what = given["of"], given["what"]
    if of["panel"] not in panels:
        raise unknown("panel of a row", of["panel"], panels)
    if not ({"printed", "says"} & {*given}):
        raise InputError(f"the row {what!r} needs a printed number, or what the paper says")
    panel = panels[of["panel"]]
    if len(given.get("printed", [])) < 2 and not ("samples" in given and isinstance(panel, Learning)):
        try:
            bounds(given.get("reads", given.get("says", "")))
        except InputError as error:
            raise InputError(f"the row {what!r} needs reads: {error}") from None
    allowed = {"panel": panels, **panel.row_keys(of)}
    for key, value in of.items():
        if key not in allowed:
            raise unknown(f"key of the row {what!r}", key, allowed)
        if value not in allowed[key]:
            raise unknown(f"{key} of the row {what!r}", value, map(str, allowed[key]))
