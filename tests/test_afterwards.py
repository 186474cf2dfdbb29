"""What comes after the last round: exact values against brute force, gradients, and the player."""

import functools
import itertools

import jax
import numpy as np
import pytest
from conftest import assert_z

import gradband as gb
from gradband import problems
from gradband.policies import POLICIES
from gradband.problems import priors

pytestmark = pytest.mark.brief

TWO = priors.Beta(2, [1.0, 2.0], [1.5, 1.0])
FINITE = priors.Finite([[0.6, 0.4], [0.3, 0.5], [0.1, 0.8]], [0.5, 0.3, 0.2])


def posterior_means(prior, ones, zeros):
    if isinstance(prior, priors.Beta):
        return (prior.a + ones) / (prior.a + prior.b + ones + zeros)
    likely = prior.weights * (prior.instances**ones * (1 - prior.instances) ** zeros).prod(1)
    return likely @ prior.instances / likely.sum()


def brute_force(prior, horizon, afterwards):
    """The optimal reward by recursion over counts, with plain Python numbers."""

    @functools.cache
    def value(ones, zeros):
        means = posterior_means(prior, np.array(ones), np.array(zeros))
        if sum(ones) + sum(zeros) == horizon:
            return afterwards * float(means.max())
        worth = []
        for arm, m in enumerate(means):
            one = tuple(count + (i == arm) for i, count in enumerate(ones))
            zero = tuple(count + (i == arm) for i, count in enumerate(zeros))
            worth.append(m * (1 + value(one, zeros)) + (1 - m) * value(ones, zero))
        return float(max(worth))

    return value((0,) * prior.arms, (0,) * prior.arms)


@pytest.mark.parametrize("prior", [TWO, FINITE, priors.Beta(3)], ids=["beta", "finite", "three arms"])
@pytest.mark.parametrize("afterwards", [1, 40, 100_000])
def test_the_optimum_is_that_of_brute_force(prior, afterwards):
    horizon = 7
    problem = gb.Problem(prior, horizon, afterwards=afterwards)
    found = gb.exact.optimum(problem)
    wanted = brute_force(prior, horizon, afterwards)
    assert found.reward == pytest.approx(wanted, abs=1e-9, rel=1e-14)
    assert found.error == 0


def test_the_optimal_policy_earns_what_the_optimum_says():
    for prior in (TWO, FINITE, priors.Beta(3)):
        best = gb.exact.optimum(gb.Problem(prior, 7, afterwards=30))
        row = gb.evaluate(best.policy, gb.Problem(prior, 7, afterwards=30), instances=20_000, seed=3).rows[
            0
        ]
        assert_z(row.reward.mean, row.reward.se, best.reward)
        assert_z(row.regret.mean, row.regret.se, best.regret)


def test_what_comes_afterwards_asks_for_more_exploration():
    """With many visitors to come, finding the best arm is worth more than what it costs."""
    alone, then = (gb.exact.optimum(gb.Problem(TWO, 20, afterwards=a)) for a in (0, 10_000))
    both = gb.evaluate({"alone": alone.policy, "then": then.policy}, gb.Problem(TWO, 20), instances=20_000)
    assert both.difference("then", "alone").mean > 0.5


BASELINES = {
    "softelim": ("self", "optimal", "critic"),
    "kl-softelim": ("critic",),
    "exp3": ("self",),
    "explore-then-commit": ("critic",),
}


@pytest.mark.parametrize(
    "name", ["softelim", *(pytest.param(n, marks=pytest.mark.slow) for n in list(BASELINES)[1:])]
)
def test_gradients_are_those_of_enumeration(name):
    policy = POLICIES[name]()
    problem = gb.Problem(priors.Finite([[0.6, 0.4], [0.3, 0.5]]), 5, afterwards=8)
    truth = gb.exact.by_enumeration(policy, problem)
    wanted = np.concatenate([np.ravel(truth.gradient[key]) for key in sorted(truth.gradient)])
    row = gb.evaluate([policy], problem, instances=40_000, seed=4).rows[0]
    assert_z(row.reward.mean, row.reward.se, truth.reward)
    assert_z(row.regret.mean, row.regret.se, truth.regret)
    for baseline in BASELINES[name]:
        found = gb.estimate(policy, problem, instances=40_000, estimator=baseline, seed=5)
        assert_z(found.mean, found.se, wanted)


def test_exact_rewards_agree_with_each_other():
    problem = gb.Problem(TWO, 6, afterwards=25)
    for policy in (gb.policies.SoftElim(theta=0.4), gb.policies.KLSoftElim(a=2.0)):
        one, other = gb.exact.by_enumeration(policy, problem), gb.exact.by_counts(policy, problem)
        assert one.reward == pytest.approx(other.reward, abs=1e-9)
        assert one.regret == pytest.approx(other.regret, abs=1e-9)
        for key in one.gradient:
            np.testing.assert_allclose(one.gradient[key], other.gradient[key], atol=1e-8)


def test_thompson_sampling_by_counts_and_by_play():
    problem = gb.Problem(TWO, 10, afterwards=50)
    truth = gb.exact.by_counts("ts", problem)
    row = gb.evaluate([gb.policies.ThompsonSampling()], problem, instances=40_000, seed=6).rows[0]
    assert_z(row.reward.mean, row.reward.se, truth.reward)


def test_batches_have_it_too():
    """One batch of an equal split, and then the winner: by going through all results."""
    means, batch, afterwards = (0.6, 0.4), 6, 10
    problem = gb.Problem(priors.Finite([means]), batch, pulls_per_round=batch, afterwards=afterwards)
    from scipy import stats

    wanted = 0.0
    for k in range(batch + 1):
        for s0, s1 in itertools.product(range(k + 1), range(batch - k + 1)):
            chance = stats.binom.pmf(k, batch, 0.5)
            chance *= stats.binom.pmf(s0, k, means[0]) * stats.binom.pmf(s1, batch - k, means[1])
            rates = [s0 / k if k else -1, s1 / (batch - k) if k < batch else -1]
            gained = k * means[0] + (batch - k) * means[1]
            wanted += chance * (gained + afterwards * means[int(np.argmax(rates))])
    row = gb.evaluate([gb.policies.Uniform()], problem, instances=40_000, seed=7).rows[0]
    assert_z(row.reward.mean, row.reward.se, wanted)
    assert_z(row.regret.mean, row.regret.se, (batch + afterwards) * max(means) - wanted)


@pytest.mark.slow
def test_learning_explores_more_for_what_comes_afterwards():
    problem = problems.named("two-point", horizon=50)
    thetas = [
        float(gb.learn("softelim", problem.replace(afterwards=a), iterations=10).params["theta"])
        for a in (0, 20_000)
    ]
    assert thetas[1] > 1.5 * thetas[0]


def test_it_is_part_of_a_problem(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('horizon = 20\nafterwards = 500\n[prior]\nkind = "beta"\narms = 2\n')
    problem = problems.load(str(file))
    assert (problem.afterwards, problem.pulls) == (500, 520)
    assert problems.parse(problem.describe()).afterwards == 500
    with pytest.raises(gb.InputError, match="afterwards"):
        problem.replace(afterwards=-1)
    table = priors.Table(np.zeros((4, 2, 20)))
    with pytest.raises(gb.InputError, match="afterwards needs known means"):
        gb.Problem(table, 20, afterwards=10)


def test_an_arm_that_was_never_pulled_is_not_recommended():
    policy = gb.policies.SoftElim().bind(3, 20)
    counts = gb.policies.Counts(jax.numpy.array([5.0, 0.0, 2.0]), jax.numpy.array([-3.0, 0.0, -1.0]))
    assert int(policy.recommend({"theta": 1.0}, counts)) == 2
