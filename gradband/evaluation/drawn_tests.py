"""Tests of any length, drawn from what experiments that were held out say."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self, cast

import numpy as np

from gradband.evaluation.compare_with_defaults import HELD_OUT, Situation
from gradband.evaluation.evaluate import evaluate
from gradband.evaluation.past_tests import Past
from gradband.policies.given import Given
from gradband.problems import Problem, context_draws, priors, shrinkage
from gradband.problems.context_rows import ContextRows
from gradband.problems.past_experiments import Experiments
from gradband.problems.priors.past_contexts import PastContexts


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Instances of held-out experiments in tests of a problem's length, and their experiments [N].

    They are means [N, K], arms as the rewards describe them [N, parts, K], or tests with features.
    """

    problem: Problem
    tests: np.ndarray | PastContexts
    owner: np.ndarray

    @classmethod
    def of_held_out(
        cls, problem: Problem, past: Past, arms: int, found: Experiments, count: int, seed: int
    ) -> Self:
        """Posterior draws of some held-out experiments, under the prior likeliest on all of them."""
        best = past.best_prior()
        if isinstance(found, ContextRows):
            own = dataclasses.replace(cast(Any, problem.prior), arms=arms)
            return cls(problem, *context_draws.Source(own, found, seed).given_results(best, count))
        return cls(problem, *shrinkage.draw(best, found, arms, count, seed))

    @property
    def arms(self) -> int:
        return self.prior.arms

    @property
    def prior(self) -> priors.Prior:
        if isinstance(self.tests, PastContexts):
            return self.tests
        return priors.Drawn(self.tests, 0, self.problem.prior.rewards)

    @property
    def fixed(self) -> Problem:
        """The problem with these tests."""
        return self.problem.replace(prior=self.prior)

    def with_another_arm(self) -> priors.Prior:
        """The tests with one more arm."""
        if isinstance(self.tests, PastContexts):
            return dataclasses.replace(self.tests, arms=self.arms + 1)
        more = np.concatenate([self.tests, self.tests[..., :1]], axis=-1)
        return priors.Drawn(more, 0, self.problem.prior.rewards)

    def with_horizon(self, horizon: int) -> Self:
        return dataclasses.replace(self, problem=self.problem.replace(horizon=horizon))

    def gain(self, policies: Mapping[str, Given], seed: int, **how: Any) -> Situation:
        """The gain of the learned one of some policies over the others."""
        table = evaluate(policies, self.fixed, instances=len(self.tests), seed=seed, **how)
        return Situation(HELD_OUT, self.fixed.pulls, table, self.owner)
