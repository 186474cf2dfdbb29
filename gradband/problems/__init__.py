"""Problems: a prior and a horizon. The paper's by name, others from a TOML file (docs/problems.md)."""

from gradband.problems.classifying import classification
from gradband.problems.delay import Delay, GeometricDelay, MeasuredDelay
from gradband.problems.guardrails import Guardrails
from gradband.problems.paper_problems import NAMED, named
from gradband.problems.problem import Problem
from gradband.problems.problem_file import GivenProblem, as_problem, fit_of, load, parse

__all__ = [
    "NAMED",
    "GivenProblem",
    "Guardrails",
    "Delay",
    "GeometricDelay",
    "MeasuredDelay",
    "Problem",
    "as_problem",
    "classification",
    "fit_of",
    "load",
    "named",
    "parse",
]
