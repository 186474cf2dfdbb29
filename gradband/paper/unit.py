"""A unit of work as data, and as a command."""

import json
from typing import Any

Unit = dict[str, Any]
"""`do`, the name of a function of `work`, and that function's settings"""


def where(problem: dict[str, Any]) -> str:
    """A problem on the command line."""
    return problem["name"] + _options({key: problem[key] for key in problem if key != "name"})


CURVE = ("evaluation", "every")  # settings of a curve's points, which a command does not draw
USUAL = (("baseline", "self"), ("scale", "log"))  # as in Algorithm 1
SAME = {key: key for key in ("policy", "recipe", "iterations", "seed")}
OPTIONS = SAME | {"batch": "instances", "final": "compare-on"}
"""options of `gradband learn` for settings of a unit; other settings have none"""


def command(unit: Unit) -> str:
    """The command that computes a unit's numbers.

    >>> command({"do": "optimum", "problem": {"name": "distractors", "arms": 5}})
    'gradband optimum distractors --arms 5'
    """
    given = dict(unit)
    do, problem = given.pop("do"), where(given.pop("problem"))
    if do == "evaluate":
        return f"gradband compare {problem} --policies {given.pop('policy')}{_options(given)}"
    if do == "gradient":
        policy, _, theta = given.pop("policy").partition(":theta=")
        rest = {"baselines": given.pop("baseline"), **given}
        return f"gradband gradient {problem} --policy {policy} --theta {theta}{_options(rest)}"
    rest = {key: given[key] for key in given if (key, given[key]) not in USUAL and key not in CURVE}
    if do == "learn" and rest.keys() <= OPTIONS.keys() and "--noise" not in problem:
        options = {OPTIONS[key]: value for key, value in rest.items()}
        return f"gradband learn {problem}{_options(options)}"
    if do == "bound":
        return f"gradband optimum {problem} --certify {given['seconds']}"
    if do == "optimum":
        return f"gradband optimum {problem}"
    return f"python -c 'from gradband.paper.work import carry_out as do; print(do({json.dumps(unit)}))'"


def _options(given: dict[str, Any]) -> str:
    return "".join(f" --{key.replace('_', '-')} {value}" for key, value in given.items())
