"""The price of guardrails: what a policy would earn without them, paired by instance."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from gradband.core.errors import InputError
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean
from gradband.engine.blocks import Where
from gradband.evaluation.evaluate import evaluate
from gradband.policies.given import Given
from gradband.problems import Problem, as_problem


@dataclasses.dataclass(frozen=True)
class Price(Result):
    """What guardrails cost on a problem."""

    guardrails: dict[str, Any]
    """those of the problem"""
    pulls: int
    """of a test"""
    within: np.ndarray
    """rewards of the instances, within guardrails [m]"""
    without: np.ndarray
    """the same without them [m]"""
    learned_without: bool
    """whether the policy without guardrails was learned without them, or is the same"""

    @property
    def per_thousand(self) -> Mean:
        """Reward lost per thousand pulls, paired by instance."""
        return Mean.of(1000 / self.pulls * (self.without - self.within))

    @property
    def percent(self) -> Mean:
        """The same in percent of the reward without guardrails."""
        base = max(abs(float(self.without.mean())), 1e-30)
        lost = float((self.without - self.within).mean()) / base
        return Mean(100 * lost, Mean.of(100 / base * ((1 - lost) * self.without - self.within)).se)

    def in_words(self) -> str:
        rails = ", ".join(f"{name} {value:g}" for name, value in self.guardrails.items())
        price, percent = self.per_thousand, self.percent
        other = "learned and played" if self.learned_without else "played"
        return (
            f"The guardrails ({rails}) cost {price.mean:.3f} ± {price.se:.3f} of the reward per thousand "
            f"pulls ({percent.mean:.2f} ± {percent.se:.2f} %), compared with the same policy {other} "
            "without them."
        )

    def records(self) -> list[dict[str, Any]]:
        means = {"per_thousand": self.per_thousand, "percent": self.percent}
        row: dict[str, Any] = dict(self.guardrails)
        for what, value in means.items():
            row |= {what: value.mean, f"{what}_se": value.se}
        return [row]

    def tables(self) -> list[TextTable]:
        numbers = [f"{x:.3f}" for mean in (self.per_thousand, self.percent) for x in (mean.mean, mean.se)]
        rails = ", ".join(f"{name} {value:g}" for name, value in self.guardrails.items())
        columns = ["guardrails", "cost per thousand pulls", "± se", "percent", "± se"]
        return [TextTable("Price of guardrails", columns, [[rails, *numbers]], self.in_words())]

    def __repr__(self) -> str:
        price, percent = self.per_thousand, self.percent
        return f"Price({price} per thousand pulls, {percent} %)"

    def as_dict(self) -> dict[str, Any]:
        """The price, ready for JSON."""
        return {
            "guardrails": self.guardrails,
            "per_thousand": vars(self.per_thousand),
            "percent": vars(self.percent),
            "learned_without": self.learned_without,
            "instances": len(self.within),
        }


def price_of_guardrails(
    policy: Given,
    problem: "Problem | str | Path",
    without: Given | None = None,
    *,
    instances: int = 10_000,
    seed: int = 0,
    progress: Callable[[str, float], None] | bool | None = None,
    **where: Unpack[Where],
) -> Price:
    """What the guardrails of a problem cost a policy that was learned within them.

    Args:
        policy: A learned policy, a `Policy`, a name or a policy file.
        problem: A `Problem`, a name or a TOML file, with guardrails.
        without: The same policy, learned without guardrails; by default the same plays without them.
        instances: Fresh instances to play, the same within guardrails and without.
        seed: Determines the instances and all draws.
        progress: Called with what is played and the share of it that is done; by default a bar in
            terminals and notebooks, with False nothing.
        **where: The `devices`, the `memory` and the `engine`: see `Where`.
    """
    problem = as_problem(problem)
    if problem.guardrails is None:
        raise InputError("this problem has no guardrails, so they have no price")
    given: dict[str, Any] = {"instances": instances, "seed": seed, "progress": progress, **where}
    within = evaluate({"within guardrails": policy}, problem, **given).rows[0]
    free = problem.replace(guardrails=None)
    other = evaluate({"without guardrails": policy if without is None else without}, free, **given).rows[0]
    rails = problem.guardrails.describe()
    return Price(rails, problem.pulls, within.rewards, other.rewards, without is not None)
