"""Stages of learning, one after the other."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from gradband.core.errors import number
from gradband.engine import blocks
from gradband.gradient import estimator, imitation
from gradband.gradient.critic import Critic
from gradband.gradient.estimator import Controls, Estimate, Estimator, seen_by_rollout
from gradband.gradient.objective import Objective
from gradband.learning.recipes import Recipe
from gradband.policies import Params, Policy, binding
from gradband.policies.given import WithParams
from gradband.problems import Problem

Temperature = Callable[[int, int], float]


@dataclasses.dataclass(frozen=True)
class Stage:
    """Ascent along estimates of one gradient, for a policy at one horizon."""

    policy: Policy
    recipe: Recipe
    iterations: int
    instances: int
    job: Callable[..., blocks.BlockJob]
    compute: Callable[[blocks.BlockJob], Estimate]
    critic: Critic | None = None
    aim: Objective = Objective()

    def quantile(self, found: Estimate) -> float:
        """The regret at which the tail begins, among the rollouts of an estimate."""
        threshold = self.aim.threshold(seen_by_rollout(found))
        assert threshold is not None
        return threshold

    def controls(
        self,
        i: int,
        temperature: Temperature | None,
        critic: Critic | None,
        threshold: float | None = None,
    ) -> Controls:
        """Temperature, weight of the entropy, critic and threshold of a tail in iteration i."""
        entropy, length = self.recipe.entropy, self.iterations
        tau = None if temperature is None else number("temperature", temperature(i, length), 1e-6)
        beta = None if entropy is None else number("entropy", entropy(i, length, self.policy.horizon), 0)
        return Controls(tau, beta, critic, threshold)


def ascent(
    problem: Problem,
    policy: Policy,
    recipe: Recipe,
    how: Estimator,
    size: tuple[int, int],
    on: blocks.Workers,
) -> Stage:
    """Ascent on the Bayes reward at the policy's horizon; `size` is iterations and instances."""
    problem = problem.replace(horizon=policy.horizon)
    task = jax.device_put(problem)  # once: a reward table may be large
    made: list[blocks.BlockJob] = []

    def job(params: Params, key: Any, iteration: int, controls: Controls) -> blocks.BlockJob:
        if made:
            made[0] = estimator.repeat(made[0], params, key, iteration, controls)
        else:
            made.append(
                estimator.gradient_job(policy, task, params, key, iteration, size[1], how, controls)
            )
        return made[0]

    compute, blank = partial(estimator.compute, on=on), how.critic(problem.rounds)
    return Stage(policy, recipe, *size, job, compute, blank, how.aim)


def agreement(
    problem: Problem,
    policy: Policy,
    recipe: Recipe,
    imitate: Policy | WithParams,
    size: tuple[int, int],
    on: blocks.Workers,
) -> Stage:
    """Ascent on the agreement with a reference; `size` is iterations and instances."""
    problem.one_by_one("imitation")
    reference = binding.check(imitate if isinstance(imitate, Policy) else imitate.policy, problem)
    given = reference.init(jax.random.key(0)) if isinstance(imitate, Policy) else imitate.params
    pair = reference, reference.as_params(given)
    task = jax.device_put(problem)

    def job(params: Params, key: Any, iteration: int, controls: Controls) -> blocks.BlockJob:
        return imitation.agreement_job(policy, task, params, key, iteration, size[1], pair)

    return Stage(policy, recipe, *size, job, partial(imitation.compute, on=on))
