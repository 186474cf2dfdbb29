"""A problem from past experiments with features: a fitted linear prior, and the design of tests."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gradband.core.errors import InputError, number_of_arms
from gradband.problems import context_fit
from gradband.problems.context_rows import ContextRows, names_of, read
from gradband.problems.fitted import Design, FittedProblem, warnings
from gradband.problems.likelihood import per_experiment
from gradband.problems.past_experiments import Columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True, repr=False)
class FittedContexts(FittedProblem):
    """A linear prior fitted to past experiments with features, and the design of future tests."""

    def as_dict(self) -> dict[str, Any]:
        """The output of `gradband fit --json`."""
        found = super().as_dict()
        prior = {name: value for name, value in found["prior"].items() if name != "pool"}
        return {**found, "prior": prior, "context": list(self.columns)}

    def in_words(self) -> str:
        """Which prior was fitted, for which tests."""
        kind = "visitors" if self.problem.prior.shares_context else "arms"
        return f"{super().in_words()} Features of {kind}, in this order: {', '.join(self.columns)}."

    def features(self, given: Mapping[str, Any]) -> list[float]:
        """The features of an arm or of a visitor in their order, as a player takes them.

        Args:
            given: Values by the names of the fitted columns, such as {"age": 31, "device": "web"}.
        """
        names = self.names
        assert names is not None
        return names.encode(given)

    def plot(self, ax: "Axes | None" = None, what: str = "gaps") -> "Axes":
        """There is no picture of a fit with features."""
        raise InputError("a fit with features has no picture: see its table, or records()")


def fit(
    data: Any,
    columns: Columns,
    context: Any,
    test: Design,
    held_out: float,
    seed: int,
    last: bool,
) -> FittedContexts:
    """Fits a linear prior to experiments whose rows have features.

    Args:
        data: What `gb.fit` takes.
        columns: The other columns.
        context: The columns with features.
        test: The design of future tests.
        held_out: Share of the experiments to hold out.
        seed: Determines which these are.
        last: Hold out the last ones instead.
    """
    found = read(data, columns, names_of(context))
    parts: tuple[ContextRows, ContextRows] = found.split(held_out, seed, last)
    test = _design(found, test)
    assert test.arms is not None
    fits = context_fit.fit(*parts, test.arms)
    notes = (*found.notes, *warnings(len(found), len(parts[1])))
    fitted = FittedContexts(*parts, test, tuple(fits), fits[0], notes, columns=found.columns)
    _ = fitted.problem  # or an error, if there is no test of this design
    return fitted


def _design(found: ContextRows, test: Design) -> Design:
    """The design with the usual number of arms, and as many pulls per arm as in the median experiment."""
    arms = int(np.bincount(found.arms).argmax()) if test.arms is None else number_of_arms(test.arms, 2)
    per_arm = float(np.median(per_experiment(found.pulls, found) / found.arms))
    size = test.pulls_per_round
    usual = max(1, round(max(2 * arms, per_arm * arms) / size)) * size
    return dataclasses.replace(test, arms=arms, horizon=test.horizon or usual)
