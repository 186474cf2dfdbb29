"""Problems: a prior and a horizon. The paper's by name, others from a TOML file (docs/problems.md)."""

from gradband.problems.paper_problems import NAMED, named
from gradband.problems.problem import Problem
from gradband.problems.problem_file import as_problem, fit_of, load, parse

__all__ = ["NAMED", "Problem", "as_problem", "fit_of", "load", "named", "parse"]
