"""Learns one policy for several problems: of other numbers of arms and features, or of other horizons."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import jax
import numpy as np

from gradband.core import prng
from gradband.core.errors import InputError, positive, whole
from gradband.core.statistics import Mean
from gradband.engine import blocks
from gradband.gradient.estimator import Controls, Estimator, compute, gradient_job
from gradband.learning.ascent import Steps
from gradband.learning.choice import Judge
from gradband.learning.plan import describe_run
from gradband.learning.recipes import clipped_adam
from gradband.policies import Params, Policy, binding, references
from gradband.policies.linear_policy import LinearPolicy
from gradband.policies.policy_file import Learned
from gradband.problems import Problem

USUAL = Estimator("leave-one-out", returns="expected")
JUDGED = 1000  # instances of each problem that regrets are compared on


@dataclasses.dataclass(frozen=True)
class Turns:
    """How `learn_over` ascends."""

    iterations: int = 300
    """steps, each on one problem"""
    instances: int = 256
    """fresh instances in each step"""
    rate: float = 0.003
    """the greatest size of a step of Adam"""
    estimator: Estimator = USUAL
    """of the gradients"""

    def check(self) -> None:
        whole("iterations", self.iterations)
        whole("instances", self.instances, least=2)
        positive("rate", self.rate)


USUAL_TURNS = Turns()


def suited(policy: Policy, problem: Problem) -> Policy:
    """The policy bound to the problem, with its prior if it believes in linear rewards.

    >>> from gradband.policies import BeliefIndex
    >>> from gradband.problems import named
    >>> suited(BeliefIndex(), named("rvr-linear")).dims
    5
    """
    if isinstance(policy, LinearPolicy) and references.has_theta(problem.prior):
        policy = dataclasses.replace(policy, **references.linear_numbers_of(policy.name, problem.prior))
    return binding.check(policy, problem)


def learn_over(
    policy: Policy,
    problems: Sequence[Problem],
    how: Turns = USUAL_TURNS,
    *,
    params: Params | None = None,
    seed: int = 0,
    devices: int | None = None,
    progress: Callable[[int, str, float], None] | None = None,
) -> Learned:
    """Learns parameters that serve all of these problems, by steps on each in turn.

    What is ascended is minus the mean of Σ_p regret_p / unit_p, where a problem's unit is its regret at the
    start. The policy's parameters must have the same shapes on all of them, as those of `belief-index`
    have for any K, d and n. The result is bound to the first problem; `suited` binds it to others. It is
    the better of the start and the end on instances of its own.

    Args:
        policy: The policy to learn; with linear beliefs, it gets each problem's prior.
        problems: The problems, in the order of their turns.
        how: The number and size of steps, instances and gradients.
        params: Parameters to start from; by default the policy's own.
        seed: Determines all randomness.
        devices: How many blocks of instances are computed at a time.
        progress: Called after each step with its number, the problem's name and the regret per unit.
    """
    how.check()
    bound = _bound(policy, problems, how.estimator)
    key, on = prng.root(seed), blocks.workers(devices=devices)
    start = bound[0].init(prng.stream(key, "init")) if params is None else bound[0].as_params(params)
    judges = [_judge(p, task, key, on) for p, task in zip(bound, problems, strict=True)]
    units = [judge.regret(start) for judge in judges]
    if not all(0 < unit < math.inf for unit in units):
        raise InputError("every problem must have a finite regret above 0 at the start")
    steps = Steps(bound[0].compiled(), clipped_adam(how.iterations, 1, rate=how.rate, warm=0.1), "log")
    found, state, ways = start, steps.first_state(start), prng.stream(key, "training")
    tasks = [jax.device_put(problem) for problem in problems]
    regrets = []
    for i in range(how.iterations):
        which = i % len(bound)
        job = gradient_job(
            bound[which], tasks[which], found, ways, i, how.instances, how.estimator, Controls()
        )
        seen = compute(job, on)
        if seen.fault:
            raise InputError(seen.fault)
        regrets.append(Mean.of(seen.regrets).mean / units[which])
        found, state = steps.take(found, state, seen.mean / units[which], np.float32(1))
        if progress:
            progress(i + 1, problems[which].name or f"problem {which + 1}", regrets[-1])
    after = [judge.regret(found) for judge in judges]
    ratios = [end / unit for end, unit in zip(after, units, strict=True)]
    kept = found if np.mean(ratios) < 1 else start
    about = describe_run(problems[0], {"iterations": how.iterations, "instances": how.instances}, seed)
    about["training"] |= {"problems": [each.describe() for each in problems], "ratios": ratios}
    return Learned(bound[0], kept, {"regret": np.asarray(regrets, np.float32)}, about)


def _bound(policy: Policy, problems: Sequence[Problem], estimator: Estimator) -> list[Policy]:
    """The policy for each problem, or an error if they cannot share parameters."""
    if not problems:
        raise InputError("give at least one problem to learn on")
    bound = [suited(policy, problem) for problem in problems]
    first = bound[0].shapes()
    for each, problem in zip(bound, problems, strict=True):
        estimator.check(each, problem)
        if {n: s.shape for n, s in each.shapes().items()} != {n: s.shape for n, s in first.items()}:
            raise InputError(f"{policy.name} needs parameters of other shapes on some of these problems")
    return bound


def _judge(policy: Policy, problem: Problem, key: jax.Array, on: blocks.Workers) -> Judge:
    return Judge(policy, jax.device_put(problem), prng.stream(key, "choice"), JUDGED, on)
