"""What may be true of the tests to come: instances of priors, and of experiments that were held out."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from gradband.core import prng
from gradband.core.errors import InputError
from gradband.problems import (
    Problem,
    context_check,
    context_draws,
    context_fit,
    past_experiments,
    priors,
    shrinkage,
    thinning,
)
from gradband.problems import rewards as laws
from gradband.problems.context_rows import ContextRows
from gradband.problems.priors.past_contexts import PastContexts
from gradband.problems.thinning import Check

HELD_OUT = "held-out experiments"
AS_FITTED = "as fitted"
SHIFTS = {"rates 50 % lower": 0.5, "rates 50 % higher": 1.5}
SHIFTS_OF_REVENUE = {"rewards 50 % lower": 0.5, "rewards 50 % higher": 1.5}

TRUE_IF = {
    context_fit.LINEAR: "arms that differ by their features alone",
    context_fit.BEYOND: "arms that differ beyond their features",
    context_fit.WITHOUT: "features that say nothing",
}
"""what is true if a linear prior is right that was not chosen"""


@dataclasses.dataclass(frozen=True)
class Truth:
    """Tests that may be those to come: means, arms as rewards describe them, or tests with features."""

    tests: Any
    owner: np.ndarray | None = None
    check: tuple[Check, ...] = ()
    twins: bool = False
    """whether each test is there twice in a row, so that what differs between tests is known from luck"""

    def __len__(self) -> int:
        return len(self.tests)


def joined(found: Iterable[Truth], rewards: laws.Reward) -> priors.Prior:
    """All tests as one prior, in their order."""
    tests = [truth.tests for truth in found]
    if isinstance(tests[0], PastContexts):
        return tests[0].followed_by(tests[1:])
    return priors.Drawn(np.concatenate(tests), 0, rewards)


def truths(
    problem: Problem,
    others: list[priors.Prior],
    held_out: past_experiments.Experiments,
    instances: int,
    seed: int,
) -> dict[str, Truth]:
    """Priors that may be the true one by name, the held-out experiments first.

    Those have all `instances`, the others a fifth as many.
    """
    if isinstance(held_out, ContextRows):
        return _with_contexts(problem, others, held_out, instances, seed)
    usable = [prior for prior in (problem.prior, *others) if shrinkage.shrinks(prior)]
    if not usable:
        raise InputError("none of the fitted priors has a posterior to draw experiments from")
    best = shrinkage.likeliest(usable, held_out)
    means, owner = shrinkage.draw(best, held_out, problem.arms, instances, seed)
    found = {HELD_OUT: Truth(means, owner, thinning.check(best, held_out, problem.arms, seed=seed))}
    few = max(2, instances // 5)
    key = prng.stream(prng.root(seed), "prior")
    checked = thinning.check(problem.prior, held_out, problem.arms, given=False, seed=seed)
    drawn = priors.Drawn.of(problem.prior, few, key).instances
    found[AS_FITTED] = Truth(drawn, check=checked)
    for prior in others:
        found[f"a {prior.label} prior"] = Truth(priors.Drawn.of(prior, few, key).instances)
    for name, factor in (SHIFTS if problem.unit else SHIFTS_OF_REVENUE).items():
        found[name] = Truth(np.asarray(priors.Scaled(problem.prior, factor).scale(drawn)))
    return found


def _with_contexts(
    problem: Problem, others: list[priors.Prior], held_out: ContextRows, instances: int, seed: int
) -> dict[str, Truth]:
    """The same where arms or visitors have features."""
    source = context_draws.Source(problem.prior, held_out, seed)
    best = context_draws.likeliest([problem.prior, *others], held_out)
    checks = context_check.check(best, held_out, problem.arms, seed=seed)
    found = {HELD_OUT: Truth(*source.given_results(best, instances), checks)}
    few = max(4, instances // 5)  # two draws, each twice, have a spread
    checks = context_check.check(problem.prior, held_out, problem.arms, given=False, seed=seed)
    drawn = source.of_prior(problem.prior, few)
    found[AS_FITTED] = Truth(drawn.first(-(-few // 2)).twice(), check=checks, twins=True)
    for prior in others:
        found[TRUE_IF[context_fit.name_of(prior)]] = Truth(source.of_prior(prior, few))
    for name, factor in (SHIFTS if problem.unit else SHIFTS_OF_REVENUE).items():
        found[name] = Truth(drawn.scaled(factor))
    return found
