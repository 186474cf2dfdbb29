"""A problem from rows of features with labels."""

from pathlib import Path
from typing import Any

from gradband.problems import labelled_rows
from gradband.problems.priors import Classification
from gradband.problems.problem import Problem


def classification(
    data: Any,
    label: Any = "label",
    *,
    horizon: int | None = None,
    features: Any = (),
    held_out: float = 0.2,
    intercept: bool = True,
    name: str = "",
) -> Problem:
    """A problem that presents one row after another: the reward is 1 for its class, and 0 for any other.

    Args:
        data: A data frame (pandas, Polars, PyArrow, DuckDB or another that narwhals knows), a structured
            array, a dictionary of columns, the path of a CSV or Parquet file, or an array [N, d].
        label: The column with the class; with an array [N, d], the labels [N] or a column's number.
        horizon: Rounds, by default as many as there are rows to learn on.
        features: The columns with features, all numbers; by default all but the label.
        held_out: Share of the rows that learning never sees, on which policies are evaluated.
        intercept: Whether a feature that is always 1 comes first.
        name: The problem's name, by default the file's.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> problem = classification(x, x[:, 0] > x[:, 1])
    >>> problem.arms, problem.prior.dims, problem.horizon
    (2, 3, 40)
    """
    rows = labelled_rows.read(data, label, features)
    prior = Classification.of(rows, held_out=held_out, intercept=intercept)
    found = name or (Path(data).stem if isinstance(data, str | Path) else "")
    return Problem(prior, len(prior.table) if horizon is None else horizon, name=found)
