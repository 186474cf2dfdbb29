"""The outcome of learning: a policy beside its start, references and the optimum, and a verdict."""

import dataclasses
from typing import Any

from gradband.core.statistics import Mean
from gradband.evaluation.compare_with_defaults import Situation
from gradband.evaluation.evaluate import TAIL, Row, quantiles_by_name
from gradband.evaluation.price import Price
from gradband.evaluation.standing import Standing
from gradband.evaluation.verdict import Verdict
from gradband.gradient.estimator import FEW
from gradband.policies import references
from gradband.policies.policy_file import Learned, size_of
from gradband.problems import Problem

MOST_INSTANCES, FEWEST_INSTANCES = 10_000, 2_000  # of the comparison, by default
CHEAP = 2_000  # up to this n K, a comparison on the most instances takes a second or two


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A learned policy, and how it compares."""

    learned: Learned
    problem: Problem
    standing: Standing
    situations: tuple[Situation, ...] = ()  # its gains, if a prior was fitted to past experiments
    price: Price | None = None  # of guardrails, if the problem has them

    @property
    def name(self) -> str:
        return self.learned.policy.name

    @property
    def regret(self) -> Mean:
        return self.standing.table[f"{self.name}, learned"].regret

    @property
    def regret_before(self) -> Mean:
        return self.standing.table[f"{self.name}, before"].regret

    @property
    def benchmarks(self) -> list[Row]:
        """The references."""
        return [row for row in self.standing.table.rows if not row.name.startswith(f"{self.name}, ")]

    @property
    def verdict(self) -> Verdict:
        return Verdict.of(self.standing.table, self.name, f"{self.name}, learned", f"{self.name}, before")

    def levels(self) -> dict[str, float]:
        """Regrets to draw beside the training curve."""
        found = {"learned": self.regret.mean, **{row.name: row.regret.mean for row in self.benchmarks}}
        if self.standing.bound is not None:
            return found | {"bound": self.standing.bound.regret}
        return found if self.standing.optimum is None else found | {"optimum": self.standing.optimum}

    def evaluation(self) -> dict[str, Any]:
        """The evaluation in a policy file."""
        return {
            "instances": self.standing.instances,
            "regret": vars(self.regret),
            "regret_before": vars(self.regret_before),
        }

    def as_dict(self) -> dict[str, Any]:
        """The result as `gradband learn` writes it."""
        share = self.standing.shares.get(f"{self.name}, learned")
        verdict, rows = self.verdict, self.benchmarks
        return {
            "policy": self.name,
            "params": describe_params(self.learned.params),
            "regret": vars(self.regret),
            "regret_before": vars(self.regret_before),
            "optimum": self.standing.optimum,
            "share": share and vars(share),
            "bound": self.standing.bound and self.standing.bound.as_dict(),
            "share_between": self.standing.between.get(f"{self.name}, learned"),
            "benchmarks": [{"name": r.name, "regret": r.regret.mean, "se": r.regret.se} for r in rows],
            "quantiles": {r.name: quantiles_by_name(r, TAIL) for r in self.standing.table.rows},
            "instances": self.standing.instances,
            "verdict": {"words": verdict.in_words(self.problem), "against": verdict.in_numbers()},
            "gain": [situation.as_dict() for situation in self.situations] or None,
            "price_of_guardrails": self.price and self.price.as_dict(),
            "auto": self.learned.about.get("auto"),
            "stopped": self.learned.stopped or None,
        }


def entries_to_compare(learned: Learned, problem: Problem) -> dict[str, Any]:
    """A learned policy, its start, and the references to compare it with."""
    name = learned.policy.name
    own = {f"{name}, learned": learned, f"{name}, before": learned.policy}
    return own | references.fair(problem)


def instances_to_compare_on(learned: Learned, problem: Problem) -> int:
    """Instances to compare on. An instance may cost a reference 25 times as much as learning."""
    if problem.horizon * problem.arms <= CHEAP or size_of(learned.params) > FEW:
        return MOST_INSTANCES
    training = learned.about["training"]
    return min(MOST_INSTANCES, max(FEWEST_INSTANCES, training["iterations"] * training["instances"] // 25))


def describe_params(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters by name; for a network only their shapes, since its file has the weights."""
    if size_of(params) <= FEW:
        return params
    return {name: {"shape": list(leaf.shape)} for name, leaf in params.items()}
