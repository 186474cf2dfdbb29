"""Stages of learning: what is ascended one after the other."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from gradband.core.errors import number
from gradband.engine import blocks
from gradband.gradient import estimator, imitation
from gradband.gradient.critic import Critic
from gradband.gradient.estimator import Estimate, Estimator
from gradband.learning.recipes import Recipe
from gradband.policies import Params, Policy, binding
from gradband.policies.policy_file import Learned
from gradband.problems import Problem

Temperature = Callable[[int, int], float]


@dataclasses.dataclass(frozen=True)
class Stage:
    """What is ascended: an estimate of a gradient, for a policy at one horizon."""

    policy: Policy
    recipe: Recipe
    iterations: int
    instances: int
    job: Callable[..., blocks.BlockJob]
    compute: Callable[[blocks.BlockJob], Estimate]
    critic: Critic | None = None

    def controls(self, i: int, temperature: Temperature | None) -> dict[str, float | None]:
        """Temperature and weight of the entropy in iteration i."""
        entropy, length = self.recipe.entropy, self.iterations
        tau = None if temperature is None else number("temperature", temperature(i, length), 1e-6)
        beta = None if entropy is None else number("entropy", entropy(i, length, self.policy.horizon), 0)
        return {"temperature": tau, "entropy": beta}


def ascent(
    problem: Problem,
    policy: Policy,
    recipe: Recipe,
    iterations: int,
    how: Estimator,
    instances: int,
    on: blocks.Workers,
) -> Stage:
    """Ascent on the Bayes reward."""
    task = jax.device_put(problem)  # once: a reward table may be large
    blank = Critic.blank(how.baseline, problem.rounds)
    job = partial(estimator.gradient_job, policy, task, instances=instances, how=how, learned=blank)
    return Stage(policy, recipe, iterations, instances, job, partial(estimator.compute, on=on), blank)


def agreement(
    problem: Problem,
    policy: Policy,
    recipe: Recipe,
    imitate: Policy | Learned,
    iterations: int,
    instances: int,
    on: blocks.Workers,
) -> Stage:
    """Ascent on the agreement with a reference."""
    problem.one_by_one("imitation")
    reference = binding.check(imitate if isinstance(imitate, Policy) else imitate.policy, problem)
    given = reference.init(jax.random.key(0)) if isinstance(imitate, Policy) else imitate.params
    pair = reference, reference.as_params(given)
    task = jax.device_put(problem)

    def job(params: Params, key: Any, iteration: int, **others: Any) -> blocks.BlockJob:
        return imitation.agreement_job(policy, task, params, key, iteration, instances, pair)

    return Stage(policy, recipe, iterations, instances, job, partial(imitation.compute, on=on))
