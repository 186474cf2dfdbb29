"""The optimum of problems with contexts, where it is known, and a bound on it elsewhere.

| problem | how |
|---|---|
| two arms with opposite features, new in each round | a closed form: both arms show the same |
| groups in turn | one bandit per group |
| finitely many instances and contexts | a dynamic programme over posteriors |
| the wheel | an interval for δ; the optimum to a few parts in 10⁴ |
| normal coefficients, gaussian rewards | a bound: all arms show their rewards in every round |
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gradband.core import prng
from gradband.core.errors import InputError
from gradband.core.statistics import Mean
from gradband.exact.quadrature import expected_best
from gradband.problems import Problem, priors, rewards
from gradband.solvers import finite_contexts, gaussian_feedback, groups, signs, wheel

FIRST_INSTANCES, MOST_INSTANCES = 64, 40_000  # instances with full feedback: to time it, and in all
LARGEST = 512  # coefficients of all arms together
CLEAR = 0.1  # standard deviation of the wheel's rewards, in units of what the right arm gains
VISITS = 100_000  # rounds whose best mean is averaged


class Known(NamedTuple):
    """The optimal regret lies in [regret − error, regret]; `reward` belongs to `regret`."""

    reward: float
    regret: float
    method: str
    error: float = 0.0


def optimum(problem: Problem, reward_of: Callable[[Problem], float]) -> Known:
    """The optimum of a problem with contexts, or an error that says why there is none.

    `reward_of` is the optimal reward of a problem without contexts, or an error if it is too large.
    """
    problem.unguarded("the optimum")
    problem.one_by_one("the optimum")
    prior: Any = problem.prior
    if isinstance(prior, priors.Groups) and isinstance(prior.rewards, rewards.Bernoulli):
        return _groups(prior, problem, reward_of)
    if isinstance(prior, priors.FiniteContexts) and isinstance(prior.rewards, rewards.Bernoulli):
        found = finite_contexts.solve(prior.instances, prior.weights, prior.contexts, problem.horizon)
        return Known(found.reward, found.regret, "dynamic programme over posteriors")
    if isinstance(prior, priors.Wheel):
        return _wheel(prior, problem.horizon)
    if isinstance(prior, priors.Linear) and _has_opposite_arms(prior):
        sd = float(prior.within * prior.scale)
        cost = signs.regrets(prior.dims, problem.horizon, sd, float(vars(prior.rewards)["sd"]))
        optimal = float(cost.optimal)
        return Known(float(cost.uniform) - optimal, optimal, "closed form: both arms show the same")
    raise InputError(
        f"the optimum of a {prior.kind} prior with contexts is not known: it can be computed for opposite "
        "features that change, groups, finite contexts and the wheel"
    )


def _has_opposite_arms(prior: Any) -> bool:
    """Whether it is the problem of `solvers.signs`."""
    drawn = prior.features == "opposite" and prior.changing and not np.size(prior.pool)
    alike = np.ndim(prior.within) == 0 and not np.any(prior.mean) and prior.own is None
    return drawn and alike and prior.theta == "normal" and isinstance(prior.rewards, rewards.Gaussian)


def _groups(prior: Any, problem: Problem, reward_of: Callable[[Problem], float]) -> Known:
    alone = priors.Beta(prior.arms, prior.a, prior.b)

    def value(rounds: int) -> float:
        return reward_of(Problem(alone, rounds))

    reward = groups.total(value, prior.groups, problem.horizon)
    best = problem.horizon * expected_best(alone.a, alone.b)
    return Known(reward, best - reward, "one bandit per group")


def _wheel(prior: Any, horizon: int) -> Known:
    gain, cost = wheel.USUAL
    if prior.delta is not None:
        outside = 1 - float(prior.delta) ** 2
        return Known(horizon * (priors.wheel.SAFE + gain * outside), 0.0, "δ is known")
    if float(prior.rewards.sd) > CLEAR * gain:
        raise InputError(
            f"the optimum of the wheel needs rewards that reveal δ: sd must be at most {CLEAR * gain:g}"
        )
    found = wheel.regrets(horizon)
    best = horizon * (priors.wheel.SAFE + gain * 2 / 3)
    assert found.least is not None
    return Known(best - found.greedy, found.greedy, "interval of δ", found.greedy - found.least)


def full_feedback(problem: Problem, seconds: float) -> tuple[Mean, Mean]:
    """A lower bound on every policy's regret and an upper one on its reward, with standard errors.

    The coefficients must be normal and the rewards gaussian: then posteriors are known.
    """
    prior: Any = problem.prior
    linear = isinstance(prior, priors.Linear | priors.LinearByArm)
    if getattr(prior, "own", None) is not None:
        raise InputError("there is no bound where arms differ beyond their features (own)")
    if linear and prior.theta != "normal":
        raise InputError(f"there is no bound if coefficients are {prior.theta}: they must be normal")
    if not (linear and isinstance(prior.rewards, rewards.Gaussian)):
        kinds = f"a {prior.kind} prior with contexts and {prior.rewards.kind} rewards"
        raise InputError(f"there is no bound for {kinds}: coefficients must be normal, rewards gaussian")
    blocks = prior.arms if isinstance(prior, priors.LinearByArm) else 1
    if blocks * prior.dims > LARGEST:
        raise InputError(f"a bound takes at most {LARGEST} coefficients, not {blocks * prior.dims}")
    mean = np.tile(np.ones(prior.dims) * prior.mean, blocks)
    own, level = (np.diag(np.ones(prior.dims) * each) ** 2 for each in (prior.within, _level(prior)))
    covariance = np.kron(np.eye(blocks), own) + np.kron(np.ones((blocks, blocks)), level)
    changing = blocks > 1 or prior.changing
    find = partial(
        gaussian_feedback.linear, mean, covariance, _drawer(prior, blocks), float(prior.rewards.sd)
    )
    began = time.perf_counter()
    first = find(problem.horizon, FIRST_INSTANCES, changing)
    each = (time.perf_counter() - began) / FIRST_INSTANCES
    count = int(np.clip(seconds / each - FIRST_INSTANCES, 0, MOST_INSTANCES))
    regret = find(problem.horizon, count, changing, seed=1) if count > FIRST_INSTANCES else first
    best = _best_means(problem)
    se = float(np.hypot(problem.horizon * best.se, regret.se))
    return regret, Mean(problem.horizon * best.mean - regret.mean, se)


def _level(prior: Any) -> Any:
    """How far the mean of arms' θ differs from instance to instance, a number or [d]."""
    return prior.between if isinstance(prior, priors.LinearByArm) else 0.0


def _drawer(prior: Any, blocks: int) -> gaussian_feedback.Draw:
    """What draws features [m, K, blocks · d]; of by-arm coefficients, an arm's are in its own block."""

    def one(key: Any) -> Any:
        x = prior.context(prng.fold_in(key, 1), prior.sample(prng.fold_in(key, 0)), jnp.uint32(0))
        return jnp.kron(jnp.eye(blocks), x[None]) if blocks > 1 else jnp.atleast_2d(x)

    many = jax.jit(jax.vmap(one))

    def draw(draws: np.random.Generator, count: int) -> np.ndarray:
        key = prng.root(int(draws.integers(2**31)))
        return np.asarray(many(jax.random.split(key, count)), np.float64)

    return draw


def _best_means(problem: Problem) -> Mean:
    """The best arm's mean in a round."""
    prior = problem.prior

    def one(key: Any) -> Any:
        instance = prior.sample(prng.fold_in(key, 0))
        return prior.means_at(prior.visit(prng.fold_in(key, 1), instance, jnp.uint32(0)), 0).max()

    keys = jax.random.split(prng.root(0), VISITS)
    return Mean.of(np.asarray(jax.jit(jax.vmap(one))(keys), np.float64))
