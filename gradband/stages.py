"""Stages of learning: what is ascended one after the other."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from gradband import blocks, gradient, imitation, rollout
from gradband.critic import Critic
from gradband.errors import number
from gradband.gradient import Estimate, Estimator
from gradband.learned import Learned
from gradband.policies import Params, Policy
from gradband.problems import Problem
from gradband.recipes import Recipe

Temperature = Callable[[int, int], float]


@dataclasses.dataclass(frozen=True)
class Stage:
    """What is ascended: an estimate of a gradient, for a policy at one horizon."""

    policy: Policy
    recipe: Recipe
    iterations: int
    batch: int
    work: Callable[..., blocks.Work]
    compute: Callable[[blocks.Work], Estimate]
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
    batch: int,
    on: blocks.Workers,
) -> Stage:
    """Ascent on the Bayes reward."""
    task = jax.device_put(problem)  # once: a reward table may be large
    blank = Critic.blank(how.baseline, problem.rounds)
    work = partial(gradient.work, policy, task, instances=batch, how=how, learned=blank)
    return Stage(policy, recipe, iterations, batch, work, partial(gradient.compute, on=on), blank)


def agreement(
    problem: Problem,
    policy: Policy,
    recipe: Recipe,
    imitate: Policy | Learned,
    iterations: int,
    batch: int,
    on: blocks.Workers,
) -> Stage:
    """Ascent on the agreement with a reference."""
    problem.one_by_one("imitation")
    reference = rollout.check(imitate if isinstance(imitate, Policy) else imitate.policy, problem)
    given = reference.init(jax.random.key(0)) if isinstance(imitate, Policy) else imitate.params
    pair = reference, reference.as_params(given)
    task = jax.device_put(problem)
    instances = batch

    def work(params: Params, key: Any, batch: int, **others: Any) -> blocks.Work:
        return imitation.work(policy, task, params, key, batch, instances, pair)

    return Stage(policy, recipe, iterations, batch, work, partial(imitation.compute, on=on))
