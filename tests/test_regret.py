"""Bayes regrets against those of the paper's problems that were measured or computed elsewhere.

Each value has its standard error; agreement is a z-score on both errors (false-alarm rate in conftest).
"""

import dataclasses
import time
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z

from gradband import problems
from gradband.core.errors import InputError
from gradband.core.statistics import Mean
from gradband.evaluation.evaluate import Comparison, Row, evaluate
from gradband.exact import by_enumeration
from gradband.policies import (
    UCB1,
    Counting,
    EpsilonGreedy,
    Exp3,
    KLSoftElim,
    SoftElim,
    ThompsonSampling,
    Uniform,
)
from gradband.problems import Problem, priors, rewards

# policy, regret, standard error; on two-point
TWO_POINT = {
    "ts": (ThompsonSampling(), 5.43, 0.03),
    "ucb1": (UCB1(), 9.96, 0.02),
    "exp3 at 0.25": (Exp3(theta=0.25), 11.2, 0.03),
    "exp3 at 1": (Exp3(theta=1.0), 20.0, 0.02),
    "uniform": (Uniform(), 20.0, 1e-9),
    # Without stated errors: 20 000 instances with the standard deviation seen here.
    **{
        f"softelim at {theta}": (SoftElim(theta=theta), regret, None)
        for theta, regret in {
            0.05: 9.62,
            0.1: 6.66,
            0.15: 5.51,
            0.2: 4.93,
            0.3: 4.67,
            0.5: 5.26,
            1: 7.19,
            2: 9.90,
            8: 15.49,
        }.items()
    },
}


def test_two_point():
    players = {name: entry[0] for name, entry in TWO_POINT.items()}
    table = evaluate(players, problems.named("two-point"), instances=20_000, seed=11)
    for name, (_, regret, se) in TWO_POINT.items():
        ours = table[name].regret
        assert_z(ours.mean, ours.se, regret, ours.se if se is None else se)


def test_uniform_2():
    players = {"ts": ThompsonSampling(), "ucb1": UCB1()}
    table = evaluate(players, problems.named("uniform-2"), instances=20_000, seed=12)
    assert_z(table["ts"].regret.mean, table["ts"].regret.se, 3.50, 0.02)
    assert_z(table["ucb1"].regret.mean, table["ucb1"].regret.se, 8.57, 0.02)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "bernoulli-10",
            {"ts": (28.45, 0.24), "ucb1": (130.6, 0.3), "0.1": (22.5, 0.6), "1.0": (61.4, 0.1)},
        ),
        ("beta-10", {"ts": (27.99, 0.22), "ucb1": (130.9, 0.3), "0.03": (9.34, 0.09), "1.0": (61.5, 0.1)}),
    ],
)
@pytest.mark.slow
def test_ten_arms(name, values):
    named = {"ts": ThompsonSampling(), "ucb1": UCB1()}
    players = {key: named[key] if key in named else SoftElim(theta=float(key)) for key in values}
    table = evaluate(players, problems.named(name), instances=4000, seed=13)
    for key, (regret, se) in values.items():
        ours = table[key].regret
        assert_z(ours.mean, ours.se, regret, se)


def test_reward_and_regret_agree_with_enumeration():
    problem = Problem(priors.Finite([[0.9, 0.5, 0.1], [0.2, 0.3, 0.6]]), 4)
    policy = EpsilonGreedy(theta=0.4)
    exact = by_enumeration(policy, problem).reward
    row = evaluate([policy], problem, instances=100_000).rows[0]
    assert_z(row.reward.mean, row.reward.se, exact)
    assert_z(row.regret.mean, row.regret.se, 4 * 0.75 - exact)


@pytest.mark.slow
def test_bernoulli_rounding_keeps_the_mean():
    """Thompson sampling hears 0 or 1; the rewards it gains are those of the beta arms."""
    row = evaluate([ThompsonSampling()], problems.named("beta-10", arms=2, horizon=30), instances=50_000)
    other = evaluate(
        [ThompsonSampling()], problems.named("uniform-2", horizon=30), instances=50_000, seed=1
    )
    assert_z(
        row.rows[0].regret.mean,
        row.rows[0].regret.se,
        other.rows[0].regret.mean,
        other.rows[0].regret.se,
    )


@dataclasses.dataclass(frozen=True)
class Certain(rewards.Reward):
    """An arm pays its mean: all that is random is how that is rounded."""

    kind: ClassVar[str] = "certain"

    def draw(self, key, mean):
        return mean


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rounding(KLSoftElim):
    """KL-SoftElim that hears rewards rounded to 0 or 1."""

    binary: ClassVar[bool] = True


@pytest.mark.brief
def test_rounded_rewards_have_nothing_to_do_with_the_arm_that_was_drawn():
    """A policy that hears them rounded can't tell them from Bernoulli rewards, whose law is enumerated."""
    means = [[0.7, 0.4], [0.2, 0.5]]
    policy = Rounding(theta=0.5)
    exact = by_enumeration(policy, Problem(priors.Finite(means), 6)).regret
    row = evaluate([policy], Problem(priors.Finite(means, rewards=Certain()), 6), instances=40_000).rows[0]
    assert_z(row.regret.mean, row.regret.se, exact)


def test_unknown_means_are_compared_with_the_best_arm_in_hindsight():
    table = np.zeros((10, 2, 6))
    table[:, 0] = 1  # arm 0 always pays
    row = evaluate([Uniform()], Problem(priors.Table(table, held_out=0.5), 6), instances=100).rows[0]
    assert row.regrets.shape == (5,)
    np.testing.assert_array_equal(row.regrets, 6 - row.rewards)


@pytest.mark.brief
def test_rewards_are_means_and_progress_is_told():
    """Where means are known, reward and regret of an instance add up to what its best arm has."""
    told, began = [], time.perf_counter()
    row = evaluate(
        [SoftElim()],
        problems.named("two-point", horizon=10),
        instances=1300,
        progress=lambda name, share: told.append((name, share)),
    ).rows[0]
    np.testing.assert_allclose(row.rewards + row.regrets, 6, rtol=1e-5)
    assert 0 < row.seconds < time.perf_counter() - began
    shares = [share for name, share in told if name == "softelim"]
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.5
    assert shares[-1] == 1


@pytest.mark.brief
def test_two_instances_are_enough_and_one_is_not():
    table = np.random.default_rng(0).random((10, 2, 6))
    found = evaluate([Uniform()], Problem(priors.Table(table, held_out=0.2), 6), instances=100)
    assert found.rows[0].regrets.shape == (2,)
    with pytest.raises(InputError, match="hold more of the table out"):
        evaluate([Uniform()], Problem(priors.Table(table, held_out=0.1), 6), instances=100)
    assert np.isnan(Mean.of(np.ones(1)).se)
    assert Mean.of(np.array([1.0, 3.0])) == Mean(2.0, 1.0)


def test_names_and_differences():
    problem = problems.named("two-point", horizon=10)
    table = evaluate([Uniform(), SoftElim(), SoftElim(theta=0.3)], problem, instances=2000)
    assert {row.name for row in table.rows} == {"uniform", "softelim", "softelim #2"}
    assert [row.regret.mean for row in table.rows] == sorted(row.regret.mean for row in table.rows)
    paired = table.difference("uniform", "softelim")
    by_hand = table["uniform"].regrets - table["softelim"].regrets
    assert paired == Mean(by_hand.mean(), by_hand.std(ddof=1) / 2000**0.5)
    assert "softelim #2" in str(table)
    assert [row.name for row in table.without("uniform").rows] == [
        row.name for row in table.rows if row.name != "uniform"
    ]
    with pytest.raises(KeyError):
        table["nobody"]


def test_a_share_has_the_standard_error_of_a_ratio():
    """Where one policy covers a fixed share of each instance's way there is none, else the jackknife's."""
    rng = np.random.default_rng(0)
    start = 10 + rng.normal(size=400)
    goal, noise = 4.0, rng.normal(size=400)

    def compared(regrets, chosen=slice(None)):
        rows = Row("start", start[chosen], start, 0.0), Row("mine", regrets[chosen], start, 0.0)
        return Comparison(rows).share("mine", "start", goal)

    exact = compared(goal + 0.3 * (start - goal))
    assert (exact.mean, exact.se) == (pytest.approx(0.7), pytest.approx(0, abs=1e-12))
    mine = 6 + 0.5 * noise
    found = compared(mine)
    without = [compared(mine, np.arange(400) != i).mean for i in range(400)]
    assert found.se == pytest.approx(np.std(without) * np.sqrt(399), rel=0.02)


def test_bad_evaluations_are_refused():
    problem = problems.named("two-point", horizon=10)
    with pytest.raises(InputError, match="no policy"):
        evaluate([], problem)
    for instances in (0, 1, -5, 2.5, True):
        with pytest.raises(InputError, match="instances"):
            evaluate([Uniform()], problem, instances=instances)
    with pytest.raises(InputError, match="devices"):
        evaluate([Uniform()], problem, devices=1000)
    with pytest.raises(InputError, match="seed"):
        evaluate([Uniform()], problem, seed=-1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class First(Counting):
    """Always the first arm."""

    name: ClassVar[str] = "first"

    def log_probs(self, params, state):
        return jnp.where(jnp.arange(self.arms) == 0, 0.0, -jnp.inf)


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.brief
def test_sums_over_many_rounds_lose_nothing(batch):
    """Running sums in float32 would be off by 9·10⁻⁴ after 10⁵ rounds, and by a percent after 10⁶."""
    problem = Problem(priors.Finite([[0.6, 0.7]]), 10**6 if batch > 1 else 3 * 10**4, pulls_per_round=batch)
    row = evaluate([First()], problem, instances=2).rows[0]
    np.testing.assert_allclose(row.rewards, 0.6 * problem.horizon, rtol=1e-6)
    np.testing.assert_allclose(row.regrets, 0.1 * problem.horizon, rtol=2e-6)


@pytest.mark.brief
def test_sums_of_a_table_lose_nothing():
    rounds = 20_000
    table = 100 + np.random.default_rng(0).random((2, 2, rounds), np.float32)
    row = evaluate([First()], Problem(priors.Table(table, held_out=0), rounds), instances=2).rows[0]
    sums = table.sum(2, dtype=np.float64)
    np.testing.assert_allclose(row.rewards, sums[:, 0], rtol=2e-7)
    np.testing.assert_allclose(row.regrets, sums.max(1) - sums[:, 0], atol=0.5)
