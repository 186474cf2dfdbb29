"""Priors and rewards have the moments they should."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z

import gradband
from gradband.core import prng
from gradband.core.errors import InputError
from gradband.engine import rollout
from gradband.problems import Problem, priors, rewards

pytestmark = pytest.mark.brief

MANY = 40_000


def keys(seed, count=MANY):
    return jax.random.split(jax.random.key(seed), count)


def drawn(prior, seed=0, count=MANY):
    """Means [count, K] of sampled instances."""
    return np.asarray(jax.jit(jax.vmap(prior.sample))(keys(seed, count)), np.float64)


def assert_moments(sample, mean, variance):
    """The sample has this mean and this variance, each within the error of its own estimate."""
    root = np.sqrt(len(sample))
    squares = (sample - mean) ** 2
    assert_z(sample.mean(0), sample.std(0) / root, mean)
    assert_z(squares.mean(0), squares.std(0) / root, variance, truth_se=1e-6)


# Samples of priors.


def test_finite_prior_respects_weights():
    weights = np.array([0.1, 0.0, 0.65, 0.25])
    sample = drawn(priors.Finite([[0.1], [0.2], [0.3], [0.4]], weights))[:, 0]
    shares = np.array([(sample == np.float32(mean)).mean() for mean in (0.1, 0.2, 0.3, 0.4)])
    assert shares.sum() == 1
    assert shares[1] == 0
    assert_z(shares, np.sqrt(weights * (1 - weights) / MANY) + 1e-12, weights)


def test_finite_prior_has_equal_weights_unless_given():
    sample = drawn(priors.Finite([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), seed=1)
    assert_moments(sample, np.full(2, 2 / 3), np.full(2, 2 / 9))


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (2.0, 5.0), (0.5, 0.3)])
def test_beta_prior_has_the_moments_of_beta(a, b):
    sample = drawn(priors.Beta(arms=3, a=a, b=b), seed=2)
    assert_moments(sample, np.full(3, a / (a + b)), np.full(3, a * b / (a + b) ** 2 / (a + b + 1)))
    assert (sample >= 0).all()
    assert (sample <= 1).all()


def test_gaussian_prior_has_its_mean_and_sd():
    sample = drawn(priors.Gaussian(arms=2, mean=-1.5, sd=0.4), seed=3)
    assert_moments(sample, np.full(2, -1.5), np.full(2, 0.16))


@pytest.mark.parametrize("prior", [priors.Beta(arms=2), priors.Gaussian(arms=2)], ids=["beta", "gaussian"])
def test_arms_of_an_instance_are_independent(prior):
    sample = drawn(prior, seed=4)
    assert_z(np.corrcoef(sample.T)[0, 1], 1 / np.sqrt(MANY), 0)


def test_sampler_draws_from_its_function():
    prior = priors.Sampler(lambda key: jax.random.uniform(key, (2,)) ** 2, arms=2)
    assert_moments(drawn(prior, seed=5), np.full(2, 1 / 3), np.full(2, 1 / 5 - 1 / 9))


@pytest.mark.parametrize(
    ("function", "law", "word"),
    [
        (lambda key: jax.random.uniform(key, (3,)), rewards.Bernoulli(), "shape"),
        (lambda key: 2 + jax.random.uniform(key, (2,)), rewards.Bernoulli(), r"\[0, 1\]"),
        (lambda key: jnp.full(2, jnp.nan), rewards.Gaussian(), "finite"),
    ],
)
def test_sampler_of_a_wrong_function_is_refused(function, law, word):
    with pytest.raises(InputError, match=word):
        priors.Sampler(function, arms=2, rewards=law)


def test_a_sampler_and_rewards_of_ones_own_are_told_from_others(tmp_path):
    """By what they draw, whatever they are called: learning is not resumed on another problem."""

    class Clipped(rewards.Gaussian):
        kind = "clipped"
        unit = True
        edge = 1.0

        def draw(self, key, mean):
            return jnp.clip(super().draw(key, mean), 0, self.edge)

    class Tighter(Clipped):
        edge = 0.5

    def prior(power):
        return priors.Sampler(lambda key: jax.random.uniform(key, (2,)) ** power, arms=2)

    one, same, other = (prior(power).describe() for power in (1.0, 1.0, 1.01))
    assert one == same
    assert one != other
    assert Clipped().describe() == Clipped().describe() != Tighter().describe()
    assert Clipped(sd=0.2).describe()["sd"] == 0.2
    assert rewards.Beta().describe() == {"kind": "beta", "v": 4.0}

    def learned(prior):
        how = {"iterations": 1, "instances": 64, "resume": True}
        problem = gradband.Problem(prior, horizon=6)
        return gradband.learn("softelim", problem, checkpoint=tmp_path / "checkpoint.safetensors", **how)

    learned(prior(1.0))
    learned(prior(1.0))
    with pytest.raises(InputError, match=r"other settings: problem.prior.digest was"):
        learned(prior(2.0))


# Rewards.


@pytest.mark.parametrize("mean", [0.05, 0.5, 0.8])
@pytest.mark.parametrize(
    ("law", "variance"),
    [
        (rewards.Bernoulli(), lambda mu: mu * (1 - mu)),
        (rewards.Beta(), lambda mu: mu * (1 - mu) / 5),
        (rewards.Beta(0.5), lambda mu: mu * (1 - mu) / 1.5),
        (rewards.Gaussian(), lambda mu: 1.0),
        (rewards.Gaussian(0.3), lambda mu: 0.09),
    ],
    ids=["bernoulli", "beta", "beta-noisy", "gaussian", "gaussian-quiet"],
)
def test_reward_has_its_mean_and_variance(law, variance, mean):
    draw = jax.jit(jax.vmap(law.draw, (0, None)))
    sample = np.asarray(draw(keys(6), jnp.float32(mean)), np.float64)
    assert_moments(sample, np.float64(np.float32(mean)), variance(mean))


@pytest.mark.parametrize("law", [rewards.Bernoulli(), rewards.Beta()], ids=str)
def test_rewards_of_a_certain_arm_are_certain(law):
    for mean in (0.0, 1.0):
        assert (jax.jit(jax.vmap(law.draw, (0, None)))(keys(7, 1000), jnp.float32(mean)) == mean).all()


def rewards_of_all_arms(problem, seed=8):
    """Rewards [MANY, K] of one instance, one round each."""
    instance = problem.prior.sample(jax.random.key(0))

    def one_round(key):
        return jnp.stack([problem.reward(key, instance, jnp.int32(i), 0) for i in range(problem.arms)])

    return np.asarray(jax.jit(jax.vmap(one_round))(keys(seed)), np.float64)


MEANS = [[0.2, 0.5, 0.9]]


def test_shared_noise_makes_bernoulli_rewards_monotone_in_the_mean():
    sample = rewards_of_all_arms(Problem(priors.Finite(MEANS), 1, noise="shared"))
    assert (np.diff(sample, axis=1) >= 0).all()
    assert_moments(sample, np.array(MEANS[0]), np.array([0.16, 0.25, 0.09]))


@pytest.mark.parametrize("law", [rewards.Bernoulli(), rewards.Beta(), rewards.Gaussian()], ids=str)
def test_independent_noise_does_not_correlate_arms(law):
    sample = rewards_of_all_arms(Problem(priors.Finite(MEANS, rewards=law), 1, noise="independent"))
    correlations = np.corrcoef(sample.T)[np.triu_indices(3, 1)]
    assert_z(correlations, 1 / np.sqrt(MANY), 0)
    assert_z(sample.mean(0), sample.std(0) / np.sqrt(MANY), MEANS[0])


def test_shared_noise_shifts_gaussian_rewards_alike():
    sample = rewards_of_all_arms(Problem(priors.Finite(MEANS, rewards=rewards.Gaussian()), 1))
    np.testing.assert_allclose(sample - sample[:, :1], np.tile([0, 0.3, 0.7], (MANY, 1)), atol=1e-5)


def test_a_list_of_instances_is_trained_on_as_a_whole():
    """Batches of training draw from all rows but those held out, which evaluation goes through in order."""
    rows = np.linspace(0.01, 0.99, 50)[:, None].repeat(2, 1)
    prior = priors.Drawn(rows, held_out=0.2)
    problem = Problem(prior, 10)
    draw = jax.jit(rollout._instances)
    seen = [np.asarray(draw(problem, jax.random.key(k), np.arange(8)))[0, 0] for k in (0, 1)]
    assert not np.array_equal(*seen)
    sampled = drawn(prior, count=2000)[:, 0]
    np.testing.assert_allclose(np.unique(sampled), rows[:40, 0].astype(np.float32), rtol=1e-6)
    fresh = problem.fresh()
    instances = np.asarray(draw(fresh, jax.random.key(0), np.arange(fresh.prior.size)))
    np.testing.assert_array_equal(instances[0, 0], rows[40:, 0].astype(np.float32))


@dataclasses.dataclass(frozen=True)
class Clipped(rewards.Gaussian):
    """A Gaussian in [0, 1], whose mean is not its `mean`."""

    def draw(self, key, mean):
        return jnp.clip(super().draw(key, mean), 0, 1)


@dataclasses.dataclass(frozen=True)
class Exponential(rewards.Reward):
    kind: ClassVar[str] = "exponential"
    unit: ClassVar[bool] = False

    def draw(self, key, mean):
        return -mean * jnp.log(prng.open_unit(prng.words(key)[0]))


class Doubled(priors.Beta):
    """A prior whose rewards are twice what it says."""

    def reward(self, key, instance, arm, t):
        return 2 * super().reward(key, instance, arm, t)


def test_rewards_whose_mean_is_another_are_refused():
    with pytest.raises(InputError, match="Clipped do not have the means that Gaussian declares"):
        Problem(priors.Gaussian(3, 0.5, 0.2, rewards=Clipped(sd=0.3)), 20)
    with pytest.raises(InputError, match="Bernoulli do not have the means that Doubled declares"):
        Problem(Doubled(3), 20)
    own = priors.Beta(3, rewards=Exponential())
    assert Problem(own, 20).replace(horizon=30).prior is own
