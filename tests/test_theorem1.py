"""Theorem 1: explore-then-commit on Gaussian arms against its closed form."""

import numpy as np
import pytest
from conftest import assert_z

from gradband.evaluation.evaluate import evaluate
from gradband.exact import explore_then_commit_reward
from gradband.gradient.estimator import Estimator, estimate
from gradband.learning.learn import learn
from gradband.policies import ExploreThenCommit
from gradband.problems import Problem, priors, rewards

HORIZON = 60
INSTANCES = [[0.5, 0.0], [0.0, 0.3], [1.0, -0.2]]
WEIGHTS = [0.5, 0.3, 0.2]
PROBLEM = Problem(priors.Finite(INSTANCES, WEIGHTS, rewards=rewards.Gaussian()), HORIZON)
GRID = np.linspace(1, HORIZON // 2, 233)


def closed_form(theta):
    return sum(
        w * explore_then_commit_reward(means, HORIZON, theta)
        for w, means in zip(WEIGHTS, INSTANCES, strict=True)
    )


@pytest.mark.parametrize("theta", [1.3, 4.0 + 1e-3, 7.5, 20.9])
def test_reward_is_the_closed_form(theta):
    row = evaluate([ExploreThenCommit(theta=theta)], PROBLEM, instances=40_000).rows[0]
    assert_z(row.reward.mean, row.reward.se, closed_form(theta))


@pytest.mark.parametrize("baseline", ["none", "optimal", "self"])
@pytest.mark.parametrize("theta", [1.5, 4.0, 4.5, 12.3])
def test_gradient_is_the_slope_of_the_closed_form(theta, baseline):
    slope = closed_form(np.floor(theta) + 1) - closed_form(np.floor(theta))
    found = estimate(
        ExploreThenCommit(theta=theta), PROBLEM, instances=40_000, estimator=Estimator(baseline)
    )
    assert_z(found.mean[0], found.se[0], slope)


def test_the_closed_form_is_concave():
    values = np.array([closed_form(theta) for theta in GRID])
    assert (np.diff(values, 2) < 1e-9).all()


@pytest.mark.parametrize("start", [1.5, 25.5])
def test_gradband_converges_to_the_best(start):
    """From either side it ends where the closed form is within .1 of its maximum."""
    best = max(closed_form(theta) for theta in range(1, HORIZON // 2 + 1))
    how = Estimator("leave-one-out", rollouts=8, returns="expected")
    learned = learn(ExploreThenCommit(theta=start), PROBLEM, iterations=150, instances=2000, estimator=how)
    tail = 10 ** np.log10(learned.history["params"][-50:, 0]).mean()
    assert closed_form(float(tail)) > best - 0.1
    assert closed_form(start) < best - 0.5
