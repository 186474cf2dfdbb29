"""Bounds on what any policy can reach, where the optimum itself cannot be computed.

The geometric horizon: for every prior, n rounds are worth at most as much as endless ones in which round t
is discounted by γᵗ, γ = 1 − 1/n. A policy that plays n rounds optimally, and then forever the arm with the
best posterior mean, loses Σ (1 − γᵗ) v_t in the n rounds and gains at least as much afterwards: the weights
have the same sum, and no v_t is greater than the value of that last arm. For independent arms the
discounted problem has an exact solution.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from gradband.core.errors import InputError, positive
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean
from gradband.exact import contexts, independent_arms
from gradband.exact.independent_arms import Arms, Upper
from gradband.exact.optimum import check_size, optimum
from gradband.exact.quadrature import best_mean, expected_best
from gradband.problems import GivenProblem, Problem, as_problem, priors, rewards
from gradband.solvers import full_feedback
from gradband.solvers.levels import LARGEST_STRENGTH

LARGEST_BATCH = 1000  # first batches whose outcomes are averaged
PATHS, LIST = 256, 1000  # rollouts with full feedback, and instances that they are drawn from
FEWEST_LISTS, MOST_LISTS = 8, 400
LEVELS = 64  # strata of a level, with two draws in each, if there is time


@dataclasses.dataclass(frozen=True)
class Bound(Result):
    """No policy has a Bayes regret below `regret`, or a reward above `reward`.

    `se` and `reward_se` are their standard errors: 0 unless the bound was found by sampling.
    """

    regret: float
    reward: float
    se: float
    reward_se: float
    method: str
    seconds: float

    def __repr__(self) -> str:
        return (
            f"Bound(regret ≥ {self.regret:.6g}{self._error}, reward ≤ {self.reward:.6g}, by {self.method})"
        )

    @property
    def _error(self) -> str:
        return f" ± {self.se:.2g}" if self.se else ""

    def as_dict(self) -> dict[str, Any]:
        """What `gradband optimum` writes of it."""
        return {"kind": "bound"} | vars(self)

    def records(self) -> list[dict[str, Any]]:
        """A single row."""
        return [self.as_dict()]

    def tables(self) -> list[TextTable]:
        drawn = "" if not self.se else " It was found by sampling, and has a standard error."
        notes = f"Method: {self.method}, {self.seconds:.2f} s.{drawn}"
        rows = [
            ["reward, at most", f"{self.reward:.6f}", f"{self.reward_se:.2g}"],
            ["regret, at least", f"{self.regret:.6f}", f"{self.se:.2g}"],
        ]
        return [TextTable("", ["", "every policy", "± se"], rows, notes)]


@dataclasses.dataclass(frozen=True)
class _Found:
    regret: float
    reward: float
    method: str
    se: float = 0.0
    reward_se: float = 0.0


def bound(problem: GivenProblem, *, seconds: float = 30) -> Bound:
    """A lower bound on every policy's Bayes regret and an upper one on its reward, or an error.

    Independent arms (beta means with Bernoulli or beta rewards, Gaussian arms) are bounded by the geometric
    horizon, after as many exact rounds of lookahead as time and memory allow, or by a price per round.
    Levels of hierarchical priors and the kinds of a mixture are revealed, and averaged over. Finite priors
    are solved. With any other prior and Bernoulli rewards, and with contexts if coefficients are normal,
    all arms show their rewards in every round. Late rewards and guardrails only rule out policies, so the
    bound without them still holds.

    Everything that is not exact errs on the safe side, so that reward comes out too high and regret too
    low: convex functions are interpolated by chords, means are revealed where a recursion ends, and what
    rounding may change is added.

    Args:
        problem: A `Problem`, a fit, a name or a TOML file.
        seconds: About how long it may take. More seconds give more rounds of lookahead.

    >>> found = bound("bernoulli-10", seconds=1)
    >>> found.regret > 14.2, found.se
    (True, 0.0)
    """
    problem = as_problem(problem)
    seconds = positive("seconds", seconds)
    find = _method_for(problem)
    began = time.perf_counter()
    found = find(problem, seconds)
    spent = time.perf_counter() - began
    return Bound(found.regret, found.reward, found.se, found.reward_se, found.method, spent)


def _method_for(problem: Problem) -> Callable[[Problem, float], _Found]:
    """The function that bounds a problem, or an error if there is none."""
    prior = problem.prior
    if not prior.knows_means:
        raise InputError("a bound needs the distribution of means, which a table of rewards lacks")
    if prior.contextual:
        return _in_contexts
    if prior.moves:
        raise InputError(f"a bound needs means that stay the same, but those of a {prior.kind} prior move")
    bernoulli = isinstance(prior.rewards, rewards.Bernoulli)
    normal = isinstance(prior.rewards, rewards.Gaussian)
    if bernoulli and isinstance(prior, priors.Beta):
        return _beta
    if isinstance(prior.rewards, rewards.Beta) and isinstance(prior, priors.Beta):
        return _beta_rewards
    if bernoulli and isinstance(prior, priors.Mixture):
        return _mixture
    if bernoulli and isinstance(prior, priors.Hierarchical):
        return _hierarchical
    if normal and isinstance(prior, priors.Gaussian | priors.HierarchicalGaussian):
        return _gaussian
    if bernoulli and isinstance(prior, priors.Finite) and _can_be_solved(problem):
        return _finite
    if bernoulli:
        return _full_feedback
    kinds = f"{prior.rewards.kind} rewards with a {prior.kind} prior"
    raise InputError(f"there is no bound for {kinds}: compare with other policies")


def _can_be_solved(problem: Problem) -> bool:
    try:
        check_size(_plain(problem))
    except InputError:
        return False
    return True


def _plain(problem: Problem) -> Problem:
    """The problem without batches, delay and guardrails: every policy of the one can play the other."""
    return problem.replace(pulls_per_round=1, delay=None, guardrails=None)


def _independent(a: np.ndarray, b: np.ndarray, problem: Problem, seconds: float) -> Upper:
    """The least upper bound on reward for beta means and Bernoulli rewards."""
    n, after, batch = problem.horizon, problem.afterwards, problem.pulls_per_round
    if batch == 1 or len(a) == 1:
        return independent_arms.bernoulli(a, b, n, after, seconds)
    found = [independent_arms.bernoulli(a, b, n, after, seconds / 2)]
    arms, left = Arms(a, b), n + after - batch
    first = batch * float((a / (a + b)).max())
    if left and batch <= LARGEST_BATCH:
        found.append(arms.after_a_batch(batch, left, seconds / 2))
    found.append(Upper(first + left * expected_best(a, b), f"a first batch of {batch}, then known means"))
    return min(found, key=lambda upper: upper.reward)


def _beta(problem: Problem, seconds: float) -> _Found:
    prior: Any = problem.prior
    upper = _independent(prior.a, prior.b, problem, seconds)
    return _Found(problem.pulls * best_mean(prior) - upper.reward, upper.reward, upper.method)


def _beta_rewards(problem: Problem, seconds: float) -> _Found:
    prior: Any = problem.prior
    upper = independent_arms.beta_rewards(prior.a, prior.b, float(prior.rewards.v), problem.pulls, seconds)
    return _Found(problem.pulls * best_mean(prior) - upper.reward, upper.reward, upper.method)


def _mixture(problem: Problem, seconds: float) -> _Found:
    prior: Any = problem.prior
    weights = prior.weights / prior.weights.sum()
    each = [
        _of_level(problem, float(a), float(b), seconds / len(weights))
        for a, b in zip(prior.a, prior.b, strict=True)
    ]
    regret, reward = (weights @ np.array([row[:2] for row in each])).tolist()
    said = each[int(weights.argmax())][2]
    return _Found(regret, reward, said if len(each) == 1 else f"{said}, with the kind revealed")


def _of_level(problem: Problem, a: float, b: float, seconds: float) -> tuple[float, float, str]:
    """Bounds on regret and reward if all arms are known to come from Beta(a, b), and the method."""
    shapes = np.full(problem.arms, a), np.full(problem.arms, b)
    upper = _independent(*shapes, problem, seconds)
    return problem.pulls * expected_best(*shapes) - upper.reward, upper.reward, upper.method


def _hierarchical(problem: Problem, seconds: float) -> _Found:
    """Averages over levels: two draws in each of several strata of equal probability."""
    from scipy.special import betaincinv  # takes a while to import

    prior: Any = problem.prior
    began = time.perf_counter()
    _of_level(problem, prior.strength * 0.5, prior.strength * 0.5, seconds / 8)
    each = max(time.perf_counter() - began, 1e-3)
    strata = int(np.clip(seconds / (2 * each), 4, LEVELS))
    draws = np.random.default_rng(0)
    uniform = (np.arange(strata)[:, None] + draws.random((strata, 2))) / strata
    level = np.clip(betaincinv(prior.a, prior.b, uniform), 1e-7, 1 - 1e-7)
    middle = prior.a / (prior.a + prior.b)
    noise = prior.spread * draws.standard_normal(level.shape) - prior.slope * np.log(level / middle)
    kappa = np.minimum(prior.strength * np.exp(noise), LARGEST_STRENGTH)
    found = np.array(
        [
            [
                _of_level(problem, k * x, k * (1 - x), seconds / (2 * strata))[:2]
                for k, x in zip(*pair, strict=True)
            ]
            for pair in zip(kappa, level, strict=True)
        ]
    )  # [strata, 2, 2]
    regret, reward = found.mean((0, 1)).tolist()
    errors = np.sqrt((np.diff(found, axis=1)[:, 0] ** 2 / 4).sum(0)) / strata
    method = "geometric horizon, with levels revealed"
    return _Found(regret, reward, method, float(errors[0]), float(errors[1]))


def _gaussian(problem: Problem, seconds: float) -> _Found:
    prior: Any = problem.prior
    sd = float(prior.sd if isinstance(prior, priors.Gaussian) else prior.within)
    upper = independent_arms.gaussian(prior.arms, sd, float(prior.rewards.sd), problem.pulls, seconds)
    regret = problem.pulls * sd * independent_arms.best_of_normal(prior.arms) - upper.reward
    revealed = not isinstance(prior, priors.Gaussian) and prior.between > 0
    method = f"{upper.method}, with levels revealed" if revealed else upper.method
    return _Found(regret, problem.pulls * float(prior.mean) + upper.reward, method)


def _full_feedback(problem: Problem, seconds: float) -> _Found:
    """Rewards of all arms seen in every round: in lists of instances, all of them or drawn from the prior.

    The value of a prior is convex in it, so that of a list drawn from it is no less on average.
    """
    prior: Any = problem.fresh().prior
    fixed = isinstance(prior, priors.Finite | priors.Drawn)
    began = time.perf_counter()
    rows: list[tuple[float, float]] = []
    while len(rows) < FEWEST_LISTS or (time.perf_counter() - began < seconds and len(rows) < MOST_LISTS):
        drawn = prior
        if not fixed:
            drawn = priors.Drawn.of(prior, LIST, jax.random.fold_in(jax.random.key(0), len(rows)))
        means = drawn.instances if isinstance(drawn, priors.Finite) else drawn.all_means
        weights = drawn.weights if isinstance(drawn, priors.Finite) else np.full(len(means), 1 / len(means))
        total = full_feedback.bernoulli(means, weights, problem.pulls, PATHS, [1, len(rows)])
        best = problem.pulls * float(weights @ means.max(1)) / float(weights.sum())
        rows.append((best - total.mean(), total.mean()))
    regret, reward = (Mean.of(np.array(column)) for column in zip(*rows, strict=True))
    return _Found(max(regret.mean, 0.0), reward.mean, "full feedback", regret.se, reward.se)


def _in_contexts(problem: Problem, seconds: float) -> _Found:
    try:
        best = optimum(_plain(problem), progress=False)
    except InputError:
        regret, reward = contexts.full_feedback(problem, seconds)
        return _Found(regret.mean, reward.mean, "full feedback", regret.se, reward.se)
    return _Found(best.regret - best.error, best.reward + best.error, best.method)


def _finite(problem: Problem, seconds: float) -> _Found:
    best = optimum(_plain(problem), progress=False)
    return _Found(best.regret - best.error, best.reward + best.error, best.method)
