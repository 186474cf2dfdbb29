"""Rewards that are not 0 or 1: draws, batches by their sums, policies, and gradients by quadrature."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z
from scipy import integrate, stats
from test_priors import assert_moments, drawn, keys

import gradband as gb
from gradband.core.errors import InputError
from gradband.play.player import Player
from gradband.policies import Counts, references
from gradband.policies.best_arm import best_normal_probabilities
from gradband.problems import priors, rewards

pytestmark = pytest.mark.brief

PAID = rewards.ZeroInflated(shape=2.0)
SHOP = priors.ZeroInflated(3, a=8, b=32, strength=60, amount=40, between=0.3, tightness=9, rewards=PAID)
LEVELS = priors.HierarchicalGaussian(3, 10.0, 2.0, 0.5, rewards=rewards.Gaussian(sd=3.0))


# Draws.


def test_a_hierarchical_gaussian_prior_has_its_moments():
    sample = drawn(LEVELS, seed=1)
    assert_moments(sample, np.full(3, 10.0), np.full(3, 4.25))
    assert_moments(sample[:, 0] - sample[:, 1], 0.0, 0.5)


def test_a_zero_inflated_prior_has_its_moments():
    sample = drawn(SHOP, seed=2)
    buys, amounts = sample[:, 0], sample[:, 1]
    assert_moments(buys, np.full(3, 0.2), np.full(3, 0.16 / 41 + 0.16 * 40 / 41 / 61))
    mean, square = 40 * np.exp(0.045), 1600 * np.exp(0.18)
    assert_moments(amounts, np.full(3, mean), np.full(3, square * (1 + 1 / 8) - mean**2))
    # Given the level, E m_i m_j = L².
    products = amounts[:, 0] * amounts[:, 1]
    assert_z(products.mean(), products.std() / np.sqrt(len(products)), square)


def test_a_normal_prior_with_the_moments_of_revenue():
    normal, sample = SHOP.as_normal(), drawn(SHOP, seed=3)
    means, root = sample[:, 0] * sample[:, 1], np.sqrt(len(sample))
    assert_z(means[:, 0].mean(), means[:, 0].std() / root, normal.mean)
    halves = (means[:, 0] - means[:, 1]) ** 2 / 2
    assert_z(halves.mean(), halves.std() / root, normal.within**2)
    off = means - normal.mean
    products = off[:, 0] * off[:, 1]
    assert_z(products.mean(), products.std() / root, normal.between**2)
    noise = sample[:, 0, 0] * sample[:, 1, 0] ** 2 * 1.5 - means[:, 0] ** 2
    assert_z(noise.mean(), noise.std() / root, normal.rewards.sd**2)


ARMS = jnp.array([[0.3, 0.02, 0.0], [40.0, 5.0, 7.0]])


def test_rewards_of_buyers_have_their_mean_and_variance():
    for buys, amount in ARMS.T.tolist()[:2]:
        draw = jax.jit(jax.vmap(PAID.draw, (0, None)))
        sample = np.asarray(draw(keys(4), jnp.array([buys, amount])), float)
        assert_moments(sample, buys * amount, buys * amount**2 * 1.5 - (buys * amount) ** 2)
        paid = sample[sample > 0]
        assert stats.kstest(paid, stats.gamma(2, scale=amount / 2).cdf).pvalue > 1e-4


@pytest.mark.parametrize(
    ("law", "arms", "variance"),
    [
        (rewards.Gaussian(sd=3.0), jnp.array([5.0, -2.0, 0.0]), np.array([9.0, 9.0, 9.0])),
        (PAID, ARMS, np.array([0.3 * 2400 - 144, 0.02 * 37.5 - 0.01, 0.0])),
    ],
    ids=["gaussian", "zero-inflated"],
)
def test_sums_of_a_batch_have_the_moments_of_their_rewards(law, arms, variance):
    pulls = jnp.array([30.0, 200.0, 0.0])
    sums = np.asarray(jax.jit(jax.vmap(lambda key: law.sums(key, pulls, arms)))(keys(5)), float)
    pulls, means = np.asarray(pulls, float), np.asarray(law.means(arms), float)
    assert_moments(sums[:, :2], (pulls * means)[:2], (pulls * variance)[:2])
    assert (sums[:, 2] == 0).all()
    assert_z(np.corrcoef(sums[:, 0], sums[:, 1])[0, 1], 1 / np.sqrt(len(sums)), 0.0)
    one = jax.jit(lambda key: law.sum_of(key, jnp.int32(1), 200, arms))
    many = jnp.array([0.0, 200.0, 0.0])
    for key in keys(5, 3):
        assert float(one(key)) == pytest.approx(float(law.sums(key, many, arms)[1]), rel=1e-5)


def test_the_distribution_of_a_sum_is_that_of_single_rewards():
    """Of 25 visitors, by Kolmogorov's and Smirnov's test."""
    arms, shape = ARMS[:, :1], (4000, 25)
    single = jax.jit(jax.vmap(lambda key: PAID.draw(key, ARMS[:, 0])))(keys(6, 100_000))
    one_by_one = np.asarray(single, float).reshape(shape).sum(1)
    sums = jax.jit(jax.vmap(lambda key: PAID.sums(key, jnp.array([25.0]), arms)))(keys(7, 4000))
    assert stats.ks_2samp(one_by_one, np.asarray(sums, float)[:, 0]).pvalue > 1e-4


# Problems.


def test_problems_of_revenue_are_read_and_written():
    for prior in (LEVELS, SHOP, dataclasses.replace(SHOP, spread=0.5)):
        problem = gb.Problem(prior, 100, pulls_per_round=10)
        assert gb.problems.parse(problem.describe()).describe() == problem.describe()
    assert SHOP.label == "zero-inflated"
    assert dataclasses.replace(SHOP, spread=0.5).label == "varying zero-inflated"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: priors.Finite([[1.0, 2.0]], rewards=PAID), "two numbers per arm"),
        (lambda: gb.Problem(priors.Finite(np.eye(2), rewards=PAID), 5), "does not describe arms"),
        (lambda: dataclasses.replace(SHOP, rewards=rewards.Gaussian()), "has zero-inflated rewards"),
        (lambda: dataclasses.replace(LEVELS, rewards=rewards.Bernoulli()), "use gaussian rewards"),
        (lambda: dataclasses.replace(LEVELS, within=0), "within of the hierarchical-gaussian prior"),
        (lambda: dataclasses.replace(SHOP, between=-1), "between of the zero-inflated prior"),
        (lambda: priors.Drawn(np.array([[[2.0], [1.0]]]), 0, PAID), "probabilities to buy"),
        (lambda: rewards.ZeroInflated(shape=0), "shape of zero-inflated rewards"),
        (lambda: gb.evaluate("kl-softelim", gb.Problem(LEVELS, 5), instances=10), "softelim"),
    ],
)
def test_what_can_not_be_is_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_a_class_that_changes_draws_must_change_sums():
    class Doubled(rewards.Gaussian):
        def draw(self, key, mean):
            return mean + 2 * self.sd * (super().draw(key, mean) - mean)

    class Again(Doubled):
        def sums(self, key, pulls, arms):
            return pulls * arms

    assert [law.batches() for law in (rewards.Gaussian, Doubled, Again, rewards.Beta)] == [1, 0, 1, 0]


def test_purchases_are_played_as_numpy_plays_them():
    """A batch that is split, and then one for the arm that earned most."""
    listed = priors.Drawn.of(SHOP, 1000, jax.random.key(0))
    problem = gb.Problem(listed, 40, pulls_per_round=20)
    row = gb.evaluate("split", problem, instances=1000, seed=3).rows[0]
    rng, (shares, amounts) = np.random.default_rng(0), np.moveaxis(listed.instances.astype(float), 1, 0)
    means, lost = shares * amounts, []
    for _ in range(40):
        pulls = rng.multinomial(20, [1 / 3] * 3, 1000)
        buyers = rng.binomial(pulls, shares)
        sums = np.where(buyers > 0, amounts / 2 * rng.gamma(2 * np.maximum(buyers, 1)), 0)
        seen = sums / np.maximum(pulls, 1)
        best = seen == seen.max(1, keepdims=True)
        chosen = (best / best.sum(1, keepdims=True) * means).sum(1)
        lost.append(40 * means.max(1) - (pulls * means).sum(1) - 20 * chosen)
    off = row.regrets - np.mean(lost, axis=0)
    assert_z(off.mean(), off.std() / np.sqrt(1000), 0.0)


# Gradients and rewards in batches, exactly.


def second_batch(theta, means, sd, pulls):
    """What a pull earns on average after a batch with these pulls, over the normal rewards of both arms."""
    pulls, means = np.array(pulls, float), np.array(means)
    nodes, weights = np.polynomial.hermite_e.hermegauss(101)
    weights = weights / weights.sum()
    spread = sd / np.sqrt(np.maximum(pulls, 1))
    seen = np.meshgrid(*((means[i] + spread[i] * nodes) * (pulls[i] > 0) for i in range(2)), indexing="ij")
    seen = np.stack(seen)
    weight = np.exp(-2 * (seen.max(0) - seen) ** 2 * pulls[:, None, None] / theta)
    earned = (weight * means[:, None, None]).sum(0) / weight.sum(0)
    return float(weights @ earned @ weights)


def exact_reward(theta, instances, sd, batch):
    """The Bayes reward of SoftElim in two batches of normal rewards."""
    total = 0.0
    for means in instances:
        total += batch * np.mean(means)  # the first batch, with equal probabilities
        for k in range(batch + 1):
            share = stats.binom.pmf(k, batch, 0.5)
            total += share * batch * second_batch(theta, means, sd, (k, batch - k))
    return total / len(instances)


def test_rewards_and_gradients_in_batches_are_those_of_a_quadrature():
    instances, sd, batch, theta, step = [(3.0, 1.0), (1.5, 2.0)], 2.0, 3, 8.0, 0.02
    prior = priors.Finite(instances, rewards=rewards.Gaussian(sd=sd))
    problem = gb.Problem(prior, 2 * batch, pulls_per_round=batch)
    policy = gb.policies.SoftElim(theta=theta)
    low, truth, high = (exact_reward(t, instances, sd, batch) for t in (theta - step, theta, theta + step))
    row = gb.evaluate(policy, problem, instances=20_000, seed=1).rows[0]
    assert_z(row.reward.mean, row.reward.se, truth)
    assert_z(row.regret.mean, row.regret.se, batch * (3.0 + 2.0) - truth)
    slope = (high - low) / (2 * step)
    for how in (gb.Estimator("optimal"), gb.Estimator("critic", returns="expected")):
        found = gb.estimate(policy, problem, instances=20_000, estimator=how, seed=2)
        assert_z(found.mean[0], found.se[0], slope)
        assert abs(slope) > 5 * found.se[0]


# Thompson sampling with normal beliefs.


def posterior(policy, counts):
    """Means and covariance of the arms given their rewards, by conditioning a normal vector."""
    arms = len(counts.pulls)
    prior = policy.within**2 * np.eye(arms) + policy.between**2
    seen = counts.pulls > 0
    noise = np.diag(policy.sd**2 / counts.pulls[seen])
    gain = prior[:, seen] @ np.linalg.inv(prior[np.ix_(seen, seen)] + noise)
    off = counts.sums[seen] / counts.pulls[seen] - policy.mean
    return policy.mean + gain @ off, prior - gain @ prior[seen]


BELIEFS = [
    gb.policies.GaussianTS(mean=2.0, between=3.0, within=0.7, sd=4.0),
    gb.policies.GaussianTS(mean=2.0, within=0.7, sd=4.0),
]
COUNTS = Counts(np.array([12.0, 3.0, 0.0]), np.array([40.0, 2.0, 0.0]))


@pytest.mark.parametrize("policy", BELIEFS, ids=["level", "independent"])
def test_normal_beliefs_are_those_of_bayes(policy):
    bound = policy.bind(3, 100)
    mean, covariance = posterior(policy, COUNTS)
    np.testing.assert_allclose(bound.estimates({}, COUNTS), mean, rtol=1e-12)
    counts = Counts(*(jnp.asarray(x) for x in COUNTS[:2]))
    sample = jax.jit(lambda key: bound.sampled(key, counts, 100_000))(jax.random.key(0))
    sample = np.asarray(sample, float)
    assert_moments(sample, mean, np.diag(covariance))
    assert_z(
        np.cov(sample.T)[0, 1], 5 * np.sqrt(covariance[0, 0] * covariance[1, 1] / 1e5), covariance[0, 1]
    )
    p = bound.probabilities({}, COUNTS)
    shares = np.bincount(sample.argmax(1), minlength=3) / len(sample)
    assert_z(shares, np.sqrt(p * (1 - p) / len(sample)), p)
    assert p.sum() == pytest.approx(1, abs=1e-9)


def test_chances_of_the_greatest_normal_variable_are_scipys():
    means, sds = np.array([1.0, 1.3, -0.5, 40.0]), np.array([0.2, 1.0, 3.0, 15.0])

    def chance(i):
        others = [j for j in range(4) if j != i]

        def inside(x):
            below = stats.norm.cdf(x, means[others], sds[others])
            return stats.norm.pdf(x, means[i], sds[i]) * below.prod()

        return integrate.quad(inside, -60, 140, points=[*means], limit=500, epsabs=1e-10)[0]

    np.testing.assert_allclose(
        best_normal_probabilities(means, sds), [chance(i) for i in range(4)], rtol=0, atol=1e-7
    )


def test_the_prior_of_a_problem_is_known_to_thompson_sampling():
    known = references.with_prior("ts-gaussian", gb.Problem(LEVELS, 20))
    assert known == gb.policies.GaussianTS(mean=10.0, between=2.0, within=0.5, sd=3.0)
    assert list(references.fair(gb.Problem(LEVELS, 20))) == ["ts-gaussian:prior"]
    alone = gb.Problem(priors.Gaussian(2, 1.0, 2.0), 20)
    assert references.with_prior("ts-gaussian", alone) == gb.policies.GaussianTS(mean=1.0, within=2.0)
    normal = SHOP.as_normal()
    found = references.with_prior("ts-gaussian", gb.Problem(SHOP, 20))
    assert (found.mean, found.sd) == (normal.mean, normal.rewards.sd)
    with pytest.raises(InputError, match="needs gaussian or zero-inflated rewards"):
        references.with_prior("ts-gaussian", gb.Problem(priors.Beta(2), 20))


# What is evaluated is what is played.


def played(given, means, batch, rng):
    """The expected reward of one test in batches, by a player; rewards are drawn one by one, in NumPy."""
    player, gained = Player(given, seed=int(rng.integers(2**31))), 0.0
    for _ in range(player.policy.horizon // batch):
        decided = player.select_many(batch)
        gained += float(np.dot(decided, means))
        sums = [rng.normal(mean, 3.0, count).sum() for count, mean in zip(decided, means, strict=True)]
        player.update_many(decided, sums)
    return gained


@pytest.mark.parametrize(
    "name", ["softelim", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ts-gaussian", "ucb1"))]
)
def test_a_player_earns_in_batches_what_was_evaluated(name):
    problem, rng = gb.Problem(LEVELS, 60, pulls_per_round=6), np.random.default_rng(5)
    settings = {
        "softelim": gb.policies.SoftElim(theta=20.0),
        "ts-gaussian": references.with_prior("ts-gaussian", problem),
        "ucb1": gb.policies.UCB1(scale=6.0),
    }
    policy = settings[name].bind(3, 60)
    given = gb.Learned(policy, policy.init(None), {}, {"problem": problem.describe()})
    row = gb.evaluate(given, problem, instances=4000, seed=1).rows[0]
    lost = []
    for _ in range(60):
        means = rng.normal(10.0, 2.0) + rng.normal(0, 0.5, 3)
        lost.append(60 * means.max() - played(given, means, 6, rng))
    assert_z(np.mean(lost), np.std(lost, ddof=1) / np.sqrt(60), row.regret.mean, row.regret.se)


def test_sums_of_a_batch_are_counts_unless_the_policy_was_learned_on_other_rewards(tmp_path):
    policy = gb.policies.SoftElim().bind(2, 100)
    learned = gb.Learned(policy, policy.init(None), {}, {"problem": gb.Problem(LEVELS, 5).describe()})
    learned.save(tmp_path / "policy.safetensors")
    for given in (learned, tmp_path / "policy.safetensors"):
        player = Player(given, seed=0)
        batch = player.select_many(10)
        player.update_many(batch, [25.5, -3.0])
        assert player.state()["memory"]["sums"] == [25.5, -3.0]
        again = Player(given, seed=0)
        again.load(player.state())
        np.testing.assert_array_equal(again.probabilities(), player.probabilities())
    first = player.select_many(1)
    unpulled = [1.0 - count for count in first]
    with pytest.raises(InputError, match="was not pulled in this batch"):
        player.update_many(first, unpulled)
    usual = Player(policy, seed=0)
    with pytest.raises(InputError, match="a sum of rewards"):
        usual.update_many(usual.select_many(10), [2.5, 0])
