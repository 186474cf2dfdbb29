"""Exact evaluation by counts, against enumeration, closed forms, simulation and the estimators."""

import dataclasses
import itertools
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z
from scipy import integrate, stats

from gradband import policies, problems
from gradband.core.errors import InputError
from gradband.evaluation.evaluate import evaluate
from gradband.exact import by_counts, by_enumeration, softelim_regret_bound
from gradband.exact.counts import _Thompson
from gradband.exact.quadrature import expected_best
from gradband.gradient.estimator import Estimator, estimate
from gradband.policies import Counting, SoftElim, ThompsonSampling
from gradband.problems import Problem, priors, rewards

pytestmark = pytest.mark.brief

UNEVEN = Problem(priors.Finite([[0.9, 0.0], [0.2, 1.0], [0.5, 0.4]], [0.2, 0.3, 0.5]), 5)
SMALL = {
    "two-point": problems.named("two-point", horizon=5),
    "uniform-2": problems.named("uniform-2", horizon=5),
    "uneven": UNEVEN,
    "beta": Problem(priors.Beta(2, a=[1, 2], b=[3, 0.5]), 5),
}


@pytest.mark.parametrize("problem", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize("name", ["softelim", "epsilon-greedy", "boltzmann"])
def test_it_agrees_with_enumeration(name, problem):
    ours, truth = (exact(policies.named(name), problem) for exact in (by_counts, by_enumeration))
    np.testing.assert_allclose(ours.reward, truth.reward, rtol=1e-12)
    np.testing.assert_allclose(ours.regret, truth.regret, atol=1e-12)
    np.testing.assert_allclose(ours.gradient["theta"], truth.gradient["theta"], atol=1e-12)


def log_beta(x, y):
    return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)


def wins(a, b, c, d):
    """P(X > Y) for X ~ Beta(a, b) and Y ~ Beta(c, d), c and d whole numbers, by summing over Y's binomials.

    Y ≤ x exactly if at least c of c + d − 1 uniforms are at most x.
    """
    n = c + d - 1
    return sum(
        math.comb(n, j) * math.exp(log_beta(a + j, b + n - j) - log_beta(a, b)) for j in range(c, n + 1)
    )


def test_thompson_sampling_wins_as_often_as_the_closed_form_says():
    table = _Thompson(ThompsonSampling(a=1.0, b=2.0), 12)
    for t in (1, 4, 11):
        (first,) = table.layer(t)
        truth = [
            wins(1 + s0, 2 + pulls - s0, 1 + s1, 2 + t - pulls - s1)
            for pulls in range(t + 1)
            for s0, s1 in itertools.product(range(pulls + 1), range(t - pulls + 1))
        ]
        np.testing.assert_allclose(first, truth, rtol=1e-10)


@pytest.mark.parametrize(
    "name",
    [
        "ts",
        "greedy",
        "ucb1",
        "ucb-v",
        "kl-ucb",
        "gittins",
        pytest.param("bayes-ucb", marks=pytest.mark.slow),
    ],
)
def test_it_agrees_with_simulation(name):
    """Also for policies that can't be differentiated."""
    policy, problem = policies.named(name), problems.named("uniform-2", horizon=20)
    params = policy.bind(2, 20).init(jax.random.key(3))
    exact = by_counts(policy, problem, params)
    played = evaluate([Played(policy.bind(2, 20), params)], problem, instances=5000, seed=5).rows[0]
    assert_z(played.regret.mean, played.regret.se, exact.regret)
    assert exact.gradient == {}


@dataclasses.dataclass(frozen=True)
class Played:
    policy: object
    params: dict


OTHERS = ("none", "optimal", "leave-one-out")


@pytest.mark.parametrize(
    "baseline", ["self", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_estimators_agree_with_the_exact_gradient(baseline):
    """|z| ≤ 4: a true statement fails once in 16 000, for fixed seeds once and for all."""
    for name in ("two-point", "uniform-2"):
        problem = problems.named(name, horizon=50)
        truth = by_counts(SoftElim(theta=0.5), problem).gradient["theta"]
        found = estimate(
            SoftElim(theta=0.5), problem, instances=20_000, estimator=Estimator(baseline), seed=3
        )
        assert abs(found.mean[0] - truth) <= 4 * found.se[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Two(Counting):
    """A policy of a user's own, with two parameters."""

    name: ClassVar[str] = "two"

    def init(self, key):
        return {"mean": jnp.array(2.0), "rare": jnp.array(0.5)}

    def log_probs(self, params, state):
        rare = 1 / jnp.sqrt(state.pulls + 1)
        return jax.nn.log_softmax(params["mean"] * state.means + params["rare"] * rare)


def test_the_gradient_of_a_policy_of_ones_own_is_that_of_its_reward():
    problem = problems.named("uniform-2", horizon=12)
    params = {"mean": 2.0, "rare": 0.5}
    found = by_counts(Two(), problem, params)
    for name in params:
        moved = [by_counts(Two(), problem, params | {name: params[name] + h}).reward for h in (1e-4, -1e-4)]
        np.testing.assert_allclose(found.gradient[name], (moved[0] - moved[1]) / 2e-4, rtol=1e-6)


@pytest.mark.parametrize(
    ("policy", "problem", "words"),
    [
        ("exp3", "two-point", "exp3 can't be evaluated exactly: its state must be the arms' counts"),
        ("explore-then-commit", "two-point", "explore-then-commit can't be evaluated exactly"),
        ("softelim", "bernoulli-10", "2 arms, not 10"),
        (
            "softelim",
            problems.named("uniform-2", horizon=401),
            "too many for 401 rounds: at most 400 is feasible",
        ),
        ("softelim", Problem(priors.Beta(2, rewards=rewards.Beta()), 9), "bernoulli rewards, not beta"),
        ("softelim", Problem(priors.Gaussian(2), 9), "bernoulli rewards, not gaussian"),
        (
            "softelim",
            Problem(priors.Sampler(lambda k: jax.random.uniform(k, (2,)), 2), 9),
            "not a sampler prior",
        ),
    ],
)
def test_what_has_no_exact_value_is_refused(policy, problem, words):
    with pytest.raises(InputError, match=words):
        by_counts(policy, problem)


@pytest.mark.parametrize(
    ("a", "b"), [([1, 1], [1, 1]), ([0.2, 0.3], [0.4, 2]), ([3, 1, 1, 40], [1, 1, 5, 60]), ([5], [2])]
)
def test_the_expected_best_arm_is_that_of_another_quadrature(a, b):
    def below(x):
        return np.prod([stats.beta.cdf(x, u, v) for u, v in zip(a, b, strict=True)])

    truth = 1 - integrate.quad(below, 0, 1, epsabs=1e-12, limit=500)[0]
    assert expected_best(np.array(a, float), np.array(b, float)) == pytest.approx(truth, abs=1e-10)


# Theorem 3


def test_the_bound_is_the_papers_formula():
    by_hand = sum((2 * math.e + 1) * (16 * math.log(100) / gap + gap) + 5 * gap for gap in (0.3, 0.5))
    assert softelim_regret_bound([0.4, 0.9, 0.6], 100) == pytest.approx(by_hand, rel=1e-12)


def test_the_bound_holds_on_random_instances():
    rng = np.random.default_rng(7)
    for horizon in (10, 30, 60):
        for means in rng.random((5, 2)):
            problem = Problem(priors.Finite([means]), horizon)
            assert by_counts(SoftElim(theta=8.0), problem).regret <= softelim_regret_bound(means, horizon)
    for means in rng.random((3, 5)):
        row = evaluate([SoftElim(theta=8.0)], Problem(priors.Finite([means]), 200), instances=500).rows[0]
        assert row.regret.mean + 5 * row.regret.se <= softelim_regret_bound(means, 200)


@pytest.mark.parametrize("means", [[0.5], [0.5, 0.5, 0.1], [1.2, 0.3], [np.nan, 0.1], "no"])
def test_the_bound_needs_a_best_arm(means):
    with pytest.raises(InputError):
        softelim_regret_bound(means, 100)
