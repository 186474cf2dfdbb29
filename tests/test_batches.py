"""Decisions in batches: draws, exact rewards and gradients, and what can't be had of them."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z
from scipy import stats

import gradband as gb
from gradband import problems
from gradband.core import prng
from gradband.core.errors import InputError
from gradband.policies import Counts
from gradband.policies.thompson import share_out

pytestmark = pytest.mark.brief


@pytest.mark.parametrize(
    ("n", "p"),
    [
        (1, 0.5),
        (5, 0.3),
        (200, 0.015),
        (200, 0.5),
        (200, 0.9),
        (2000, 0.02),
        (5000, 0.3),
        (5000, 0.4),
        (50, 0.0),
        (50, 1.0),
    ],
)
@pytest.mark.parametrize("how", [lambda function: function, jax.jit], ids=["as it is", "compiled"])
def test_binomial_is_the_quantile_function(n, p, how):
    """Compiled code rounds elsewhere: it multiplies and adds at once."""
    u = (np.arange(100_000) + 0.5) / 100_000
    given = jnp.asarray(u, jnp.float32), jnp.full(u.shape, n, float), jnp.full(u.shape, p)
    found = np.asarray(how(prng.binomial)(*given), float)
    exact = stats.binom.ppf(np.float32(u), n, float(np.float32(p)))
    assert (np.diff(found) >= 0).all()
    assert (found != exact).mean() < 3e-4, "but for rounding at the steps"
    assert abs(found.mean() - exact.mean()) < 1e-5 * np.sqrt(n * p * (1 - p)) + 1e-9


@pytest.mark.parametrize("p", [0.1, 0.37, 0.45])
def test_binomials_of_many_draws_have_their_mean(p):
    """Probabilities that add up to a little less than 1 would shift it by up to .0006 deviations."""
    n, u = 100_000, (np.arange(20_000) + 0.5) / 20_000
    given = jnp.asarray(u, jnp.float32), jnp.full(u.shape, n, float), jnp.full(u.shape, p)
    found = np.asarray(jax.jit(prng.binomial)(*given), float)
    exact = stats.binom.ppf(np.float32(u), n, float(np.float32(p)))
    assert abs(found - exact).mean() < 5e-5 * np.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("p", [[0.1, 0.2, 0.3, 0.4], [0.01, 0.0, 0.99], [0.2] * 5])
def test_multinomial_has_its_moments(p):
    keys = jax.random.split(jax.random.key(0), 20_000)
    counts = np.asarray(
        jax.jit(jax.vmap(lambda key: prng.multinomial(key, 40.0, jnp.asarray(p))))(keys), float
    )
    assert (counts.sum(1) == 40).all()
    p = np.asarray(p)
    deviation = counts - 40 * p
    root = np.sqrt(len(counts))
    assert_z(deviation.mean(0), deviation.std(0) / root + 1e-6, 0.0)
    products = deviation[:, :, None] * deviation[:, None, :]
    assert_z(products.mean(0), products.std(0) / root + 1e-4, 40 * (np.diag(p) - np.outer(p, p)))
    assert (counts[:, p == 0] == 0).all()


@functools.cache
def chances(n, p):
    """Probabilities of 0, …, n successes."""
    return stats.binom.pmf(np.arange(n + 1), n, p)


def exact_reward(policy, theta, means, horizon, batch):
    """The expected reward on one instance with two arms, by going through all allocations and outcomes."""
    bound = dataclasses.replace(policy, theta=theta).bind(2, horizon)
    states, total = {(0, 0, 0, 0): 1.0}, 0.0
    for _ in range(horizon // batch):
        following: dict = {}
        for (n0, n1, s0, s1), mass in states.items():
            counts = Counts(np.array([n0, n1], float), np.array([s0, s1], float))
            p = float(np.exp(bound.log_probs({"theta": theta}, counts))[0])
            for k, likely in enumerate(chances(batch, p)):
                if likely == 0:
                    continue
                total += mass * likely * (k * means[0] + (batch - k) * means[1])
                first, second = chances(k, means[0]), chances(batch - k, means[1])
                for a, b in itertools.product(range(k + 1), range(batch - k + 1)):
                    after = (n0 + k, n1 + batch - k, s0 + a, s1 + b)
                    following[after] = following.get(after, 0.0) + mass * likely * first[a] * second[b]
        states = following
    return total


def bayes_reward(policy, theta, horizon, batch):
    return np.mean(
        [exact_reward(policy, theta, means, horizon, batch) for means in ((0.6, 0.4), (0.4, 0.6))]
    )


def test_rewards_and_gradients_are_exact():
    policy = gb.policies.SoftElim()
    problem = problems.named("two-point", horizon=6).replace(pulls_per_round=3)
    theta, step = 0.3, 1e-4
    start = dataclasses.replace(policy, theta=theta)
    truth = bayes_reward(policy, theta, 6, 3)
    row = gb.evaluate(start, problem, instances=40_000, seed=1).rows[0]
    assert_z(row.reward.mean, row.reward.se, truth)
    assert_z(row.regret.mean, row.regret.se, 6 * 0.6 - truth)
    slope = (bayes_reward(policy, theta + step, 6, 3) - bayes_reward(policy, theta - step, 6, 3)) / (
        2 * step
    )
    for how in (
        gb.Estimator("none"),
        gb.Estimator("optimal"),
        gb.Estimator("self", returns="expected"),
        gb.Estimator("critic", returns="expected"),
    ):
        found = gb.estimate(start, problem, instances=40_000, estimator=how, seed=2)
        assert_z(found.mean[0], found.se[0], slope)


def exp3_reward(theta, means, batches, batch, sums=(0.0, 0.0)):
    """Exp3's expected reward in so many more batches: S grows by an arm's rewards over its probability."""
    exponents = theta / 2 * np.array(sums)
    weights = np.exp(exponents - exponents.max())
    p = theta / 2 + (1 - theta) * weights / weights.sum()
    total = batch * p @ means
    if batches == 1:
        return total
    for k, likely in enumerate(chances(batch, p[0])):
        first, second = chances(k, means[0]), chances(batch - k, means[1])
        for a, b in itertools.product(range(k + 1), range(batch - k + 1)):
            after = sums[0] + a / p[0], sums[1] + b / p[1]
            total += likely * first[a] * second[b] * exp3_reward(theta, means, batches - 1, batch, after)
    return total


def test_exp3_weighs_the_rewards_of_a_batch_by_their_importance():
    problem = gb.Problem(gb.priors.Finite([[0.9, 0.1], [0.3, 0.8]]), 9, pulls_per_round=3)

    def truth(theta):
        return np.mean([exp3_reward(theta, means, 3, 3) for means in problem.prior.instances])

    theta, step = 0.4, 1e-4
    policy = gb.policies.Exp3(theta=theta)
    row = gb.evaluate(policy, problem, instances=40_000, seed=1).rows[0]
    assert_z(row.reward.mean, row.reward.se, truth(theta))
    slope = (truth(theta + step) - truth(theta - step)) / (2 * step)
    found = gb.estimate(
        policy, problem, instances=40_000, estimator=gb.Estimator("optimal", returns="expected")
    )
    assert_z(found.mean[0], found.se[0], slope)


@pytest.mark.parametrize("name", ["exp3", "ucb-v", "ts"])
def test_batches_lose_no_pulls_and_sequences_are_batches_of_one(name):
    problem = problems.named("uniform-2", horizon=40)
    policy = gb.policies.named(name)
    many = gb.evaluate(policy, problem.replace(pulls_per_round=8), instances=4000, seed=3).rows[0]
    assert (many.regrets > -1e-4).all()
    # Whoever sees results late does worse, or as well, but no worse than by a batch or two of bad pulls.
    one = gb.evaluate(policy, problem, instances=4000, seed=3).rows[0]
    difference = many.regret.mean - one.regret.mean
    assert -5 * np.hypot(many.regret.se, one.regret.se) < difference < 8


def test_thompson_sampling_in_batches_pulls_as_one_by_one_at_first():
    problem = problems.named("uniform-2", horizon=50).replace(pulls_per_round=50)
    found = gb.evaluate(gb.policies.ThompsonSampling(), problem, instances=20_000, seed=0).rows[0]
    flat = gb.evaluate(gb.policies.Uniform(), problem, instances=20_000, seed=0).rows[0]
    assert_z(found.regret.mean, found.regret.se, flat.regret.mean, flat.regret.se)


def test_samples_that_are_equally_good_share_no_pull():
    sampled = jnp.array([[0.0, 0.0, 0.0], [0.1, 0.2, 0.2], [0.3, 0.1, 0.2], [1.0, 1.0, 0.0]])
    assert share_out(sampled, 8).tolist() == [6.0, 2.0, 0.0]
    assert share_out(sampled, 7).tolist() == [5.0, 2.0, 0.0]
    assert share_out(sampled, 6).tolist() == [4.0, 2.0, 0.0]


def one_sample_per_pull(policy, problem, instances, seed):
    """Regret of Thompson sampling that draws a posterior sample for each pull, in NumPy."""
    rng, arms, batch = np.random.default_rng(seed), problem.arms, problem.pulls_per_round
    means = rng.random((instances, arms))
    pulls, sums = np.zeros((instances, arms)), np.zeros((instances, arms))
    regret = np.zeros(instances)
    for _ in range(problem.rounds):
        shape = (batch, instances, arms)
        best = rng.beta(policy.a + sums, policy.b + pulls - sums, shape).argmax(2)
        now = (best[:, :, None] == np.arange(arms)).sum(0)
        regret += (now * (means.max(1, keepdims=True) - means)).sum(1)
        pulls, sums = pulls + now, sums + rng.binomial(now, means)
    return regret.mean(), regret.std(ddof=1) / np.sqrt(instances)


EVERY = [(arms, batch) for arms in (2, 5, 10) for batch in range(2, 131)]


@pytest.mark.parametrize(
    ("arms", "batch"),
    [(5, 67), (2, 7), *(pytest.param(*each, marks=pytest.mark.slow) for each in EVERY)],
)
@pytest.mark.brief
def test_thompson_sampling_in_batches_is_one_sample_per_pull(arms, batch):
    """For every batch, whatever its divisors. Sharing 64 samples costs ten arms up to 1.8 %."""
    policy, problem = (
        gb.policies.ThompsonSampling(),
        gb.Problem(gb.priors.Beta(arms), 10 * batch, pulls_per_round=batch),
    )
    found = gb.evaluate([policy], problem, instances=1000, seed=1).rows[0].regret
    wanted, se = one_sample_per_pull(policy, problem, 1000, seed=batch)
    assert_z(found.mean, np.hypot(found.se, 0.003 * wanted), wanted, se)


@pytest.mark.slow
def test_hierarchical_thompson_sampling_does_not_depend_on_divisors():
    policy = gb.policies.HierarchicalTS(a=2.0, b=3.0, strength=20.0)
    prior = gb.priors.Hierarchical(5, a=2.0, b=3.0, strength=20.0)
    rows = [
        gb.evaluate(
            [policy], gb.Problem(prior, 10 * batch, pulls_per_round=batch), instances=200, seed=2
        ).rows[0]
        for batch in (66, 67)
    ]
    a, b = (row.regret for row in rows)
    assert_z(a.mean, a.se, b.mean, b.se)
    assert abs(a.mean - b.mean) < 0.3 * a.mean  # one sample for all 67 pulls doubles it


def test_a_policy_is_learned_in_batches_and_the_devices_do_not_matter():
    prior = gb.priors.Hierarchical(4, a=3.0, b=147.0, strength=1000.0)
    problem = gb.Problem(prior, horizon=2000, pulls_per_round=100)
    learned = [
        gb.learn("kl-softelim", problem, iterations=3, instances=300, recipe="algorithm-1", devices=devices)
        for devices in (1, 2)
    ]
    for name in learned[0].params:
        assert (np.asarray(learned[0].params[name]) == np.asarray(learned[1].params[name])).all()


@pytest.mark.parametrize("name", ["lstm", "explore-then-commit"])
def test_policies_that_need_every_reward_say_so(name):
    problem = problems.named("two-point").replace(pulls_per_round=10)
    with pytest.raises(InputError, match="not in batches of 10"):
        gb.evaluate(gb.policies.named(name), problem, instances=100)


def test_what_batches_do_not_have_is_refused():
    problem = problems.named("two-point").replace(pulls_per_round=10)
    for refused in (
        lambda: gb.exact.optimum(problem),
        lambda: gb.exact.by_counts("softelim", problem),
        lambda: gb.exact.by_enumeration(gb.policies.SoftElim(), problem),
        lambda: gb.learn("softelim", problem, estimator="luck"),
        lambda: gb.learn("index", problem, imitate=gb.policies.Gittins(), iterations=1),
    ):
        with pytest.raises(InputError, match="batches of 10"):
            refused()
    with pytest.raises(InputError, match="not a multiple of pulls_per_round = 7"):
        problem.replace(pulls_per_round=7)
    with pytest.raises(InputError, match="batches need rewards whose sums can be drawn"):
        problems.named("beta-10").replace(pulls_per_round=10)
