"""Gradient estimates against exact ones by enumeration; variance; shared and independent noise."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z

from gradband import problems
from gradband.core import prng
from gradband.core.errors import InputError
from gradband.engine import blocks
from gradband.exact import by_enumeration
from gradband.gradient.estimator import Controls, Estimator, compute, estimate, from_blocks, gradient_job
from gradband.policies import (
    Boltzmann,
    Counting,
    EpsilonGreedy,
    Exp3,
    ExploreThenCommit,
    SoftElim,
    ThompsonSampling,
    Uniform,
)
from gradband.problems import Problem, priors, rewards

pytestmark = pytest.mark.brief

SMALL = problems.named("two-point", horizon=5)
MANY = 60_000
ESTIMATORS = {
    "none": Estimator("none"),
    "optimal": Estimator("optimal"),
    "self": Estimator("self"),
    "leave-one-out": Estimator("leave-one-out", rollouts=3),
    "expected returns": Estimator("self", returns="expected"),
    "optimal, expected": Estimator("optimal", returns="expected"),
}
POLICIES = [
    SoftElim(theta=0.3),
    SoftElim(theta=1.5),
    Exp3(theta=0.2),
    Exp3(theta=0.9),
    EpsilonGreedy(theta=0.1),
    EpsilonGreedy(theta=0.8),
    Boltzmann(theta=0.2),
    Boltzmann(theta=1.0),
    ExploreThenCommit(theta=1.1),
    ExploreThenCommit(theta=1.4),
]


@functools.cache
def exact_of(policy):
    """The reward and the gradient by enumeration."""
    return by_enumeration(policy, SMALL)


def test_exact_values_of_exp3():
    """Lemma 3's gradient is biased: values of an independent enumeration."""
    exact = {0.2: 0.028656, 0.5: -0.003043, 0.9: -0.034107}
    lemma = {0.2: 0.029687, 0.5: -0.003132, 0.9: -0.034442}
    for theta in exact:
        ours = exact_of(Exp3(theta=theta)).gradient["theta"]
        biased = exact_of(Exp3(theta=theta, gradient="lemma")).gradient["theta"]
        assert float(ours) == pytest.approx(exact[theta], abs=6e-7)
        assert float(biased) == pytest.approx(lemma[theta], abs=6e-7)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_enumeration_is_differentiated_rightly(policy):
    """Its gradient is the slope of its reward."""
    step = 1e-5
    theta = policy.theta
    ends = [by_enumeration(policy, SMALL, {"theta": theta + d}).reward for d in (-step, step)]
    gradient = float(exact_of(policy).gradient["theta"])
    assert gradient == pytest.approx((ends[1] - ends[0]) / (2 * step), abs=1e-7)


def test_enumeration_of_a_beta_prior_is_that_of_many_points():
    grid = (np.arange(40) + 0.5) / 40
    points = [[a, b] for a in grid for b in grid]
    fine = Problem(priors.Finite(points), 4)
    smooth = Problem(priors.Beta(2), 4)
    one, other = (by_enumeration(SoftElim(), p).reward for p in (fine, smooth))
    assert one == pytest.approx(other, abs=1e-3)


def test_enumeration_refuses_what_it_cannot_do():
    with pytest.raises(InputError, match="a horizon of 8 is feasible"):
        by_enumeration(SoftElim(), problems.named("two-point"))
    with pytest.raises(InputError, match="density"):
        by_enumeration(ThompsonSampling(), SMALL)
    with pytest.raises(InputError, match="needs bernoulli rewards, not beta"):
        by_enumeration(SoftElim(), problems.named("beta-10", horizon=10))


PAIRS = [(policy, name) for policy in POLICIES for name in ESTIMATORS]


def often(policy, name):
    """All estimators with one policy, and one with all policies; the others are for `make slow`."""
    return isinstance(policy, SoftElim) or name == "self"


@pytest.mark.parametrize(
    ("policy", "name"),
    [pytest.param(*pair, marks=[] if often(*pair) else pytest.mark.slow) for pair in PAIRS],
    ids=lambda each: str(each),
)
def test_estimates_agree_with_the_exact_gradient(policy, name):
    exact = exact_of(policy)
    found = estimate(policy, SMALL, instances=MANY, estimator=ESTIMATORS[name], seed=1)
    assert_z(found.mean[0], found.se[0], float(exact.gradient["theta"]))
    assert_z(found.regrets.mean(), found.regrets.std() / MANY**0.5, 5 * 0.6 - exact.reward)


@pytest.mark.parametrize(
    "how",
    [
        Estimator("critic"),
        Estimator("critic", 2, "expected"),
        Estimator("luck"),
        Estimator("luck", 2, "expected"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "policy", [SoftElim(theta=0.3), pytest.param(Exp3(theta=0.2), marks=pytest.mark.slow)], ids=str
)
def test_a_critic_has_no_bias(policy, how):
    found = estimate(policy, SMALL, instances=MANY, estimator=how, seed=1)
    exact = exact_of(policy)
    assert_z(found.mean[0], found.se[0], float(exact.gradient["theta"]))


@pytest.mark.parametrize("baseline", ["critic", "luck"])
def test_a_latent_keeps_its_score_under_a_critic(baseline):
    """Of explore-then-commit it is the whole score: without it the gradient would be 0."""
    policy, how = ExploreThenCommit(theta=1.4), Estimator(baseline, returns="expected")
    found = estimate(policy, SMALL, instances=MANY, estimator=how, seed=1)
    exact = float(exact_of(policy).gradient["theta"])
    assert_z(found.mean[0], found.se[0], exact)
    assert abs(exact) > 6 * found.se[0]


@pytest.mark.parametrize("noise", ["shared", "independent"])
def test_six_rounds_and_uneven_instances(noise):
    prior = priors.Finite([[0.9, 0.2], [0.3, 0.5], [0.1, 0.2]], [0.2, 0.5, 0.3])
    problem = Problem(prior, 6, noise=noise)
    exact = by_enumeration(SoftElim(theta=0.4), problem)
    found = estimate(SoftElim(theta=0.4), problem, instances=MANY, seed=2)
    assert_z(found.mean[0], found.se[0], float(exact.gradient["theta"]))
    best = (np.array([0.9, 0.5, 0.2]) @ [0.2, 0.5, 0.3]) * 6
    assert_z(found.regrets.mean(), found.regrets.std() / MANY**0.5, best - exact.reward)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flattened(SoftElim):
    """SoftElim as a temperature of 3 makes it."""

    def log_probs(self, params, state):
        return jax.nn.log_softmax(super().log_probs(params, state) / 3.0)


def test_a_temperature_flattens_the_policy():
    policy = SoftElim(theta=0.3).bind(2, 5)
    exact = float(by_enumeration(Flattened(theta=0.3), SMALL).gradient["theta"])
    settings = policy.init(None), prng.root(0), 0, MANY, Estimator()
    found = compute(gradient_job(policy, SMALL, *settings, Controls(temperature=3.0)), blocks.workers())
    assert_z(found.mean[0], found.se[0], exact)
    assert abs(exact - float(exact_of(policy).gradient["theta"])) > 5 * found.se[0]


def test_lemma_gradient_differs():
    """At θ = .2 the lemma's estimator is off by more than ten standard errors."""
    exact = float(exact_of(Exp3(theta=0.2)).gradient["theta"])
    biased = float(exact_of(Exp3(theta=0.2, gradient="lemma")).gradient["theta"])
    how = Estimator("leave-one-out", rollouts=8, returns="expected")
    found = estimate(Exp3(theta=0.2, gradient="lemma"), SMALL, instances=2_000_000, estimator=how)
    assert_z(found.mean[0], found.se[0], biased)
    assert abs(found.mean[0] - exact) > 10 * found.se[0]


def test_baselines_reduce_the_variance():
    """On two-point at θ = 1, at least ten times for SoftElim."""
    problem = problems.named("two-point")
    spread = {
        name: estimate(SoftElim(), problem, instances=4000, estimator=Estimator(name)).spread[0]
        for name in ("none", "optimal", "self", "leave-one-out")
    }
    assert spread["none"] ** 2 > 10 * spread["optimal"] ** 2
    assert spread["none"] ** 2 > 10 * spread["self"] ** 2
    assert spread["leave-one-out"] < spread["self"]


@pytest.mark.parametrize("baseline", ["optimal", "self"])
def test_shared_noise_changes_nothing_but_the_spread(baseline):
    """At θ = 4 rollouts often differ, and what they differ by is then less noisy."""
    found = {
        noise: estimate(
            SoftElim(theta=4.0),
            problems.named("two-point").replace(noise=noise),
            instances=40_000,
            estimator=Estimator(baseline),
            seed=seed,
        )
        for seed, noise in enumerate(("shared", "independent"))
    }
    shared, independent = found["shared"], found["independent"]
    assert_z(shared.mean[0], shared.se[0], independent.mean[0], independent.se[0])
    ses = [f.regrets.std() / f.regrets.size**0.5 for f in (shared, independent)]
    assert_z(shared.regrets.mean(), ses[0], independent.regrets.mean(), ses[1])
    squares = [(f.per_instance[0] - f.mean[0]) ** 2 for f in (shared, independent)]
    gain = squares[1].mean() - squares[0].mean()
    assert gain > 5 * np.sqrt(sum(s.var() / s.size for s in squares))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linear(Counting):
    """A policy of one's own, with as many parameters as one likes: a softmax of weighted features."""

    name: ClassVar[str] = "linear"
    features: int = 3

    def init(self, key):
        return {"weights": 0.3 * jax.random.normal(key, (self.features,)), "bias": jnp.zeros(self.arms)}

    def log_probs(self, params, state):
        powers = jnp.arange(1.0, 1 + self.features)
        scores = (state.means[:, None] ** powers[None, :]) @ params["weights"]
        return jax.nn.log_softmax(scores + params["bias"])


@pytest.mark.parametrize(
    ("features", "traced"), [pytest.param(3, 512, marks=pytest.mark.slow), (40, 512), (40, 0)]
)
def test_a_policy_of_ones_own_in_any_mode(features, traced, monkeypatch):
    """Forward, summed along rollouts, and reverse with many parameters: all agree with enumeration."""
    monkeypatch.setattr("gradband.gradient.estimator.TRACED", traced)
    policy = Linear(features=features)
    params = policy.bind(2, 5).init(jax.random.key(4))
    exact = by_enumeration(policy, SMALL, params)
    flat = np.concatenate([np.ravel(exact.gradient[name]) for name in sorted(exact.gradient)])
    found = estimate(policy, SMALL, params, instances=MANY, seed=3)
    assert (found.per_instance is not None) == (features == 3 or traced > 0)
    assert_z(found.mean, found.se, flat)


def test_reverse_mode_is_forward_mode(monkeypatch):
    problem = problems.named("two-point", horizon=30)
    forward = estimate(SoftElim(), problem, instances=5000)
    for limit in ("FORWARD", "TRACED"):
        monkeypatch.setattr(f"gradband.gradient.estimator.{limit}", 0)
    reverse = estimate(SoftElim(), problem, instances=5000)
    np.testing.assert_allclose(reverse.mean, forward.mean, rtol=1e-4)
    np.testing.assert_allclose(reverse.regrets, forward.regrets, rtol=1e-6)
    # Ten blocks are a small sample of the spread: a factor of three either way is chance.
    assert forward.se[0] / 3 < reverse.se[0] < forward.se[0] * 3


def test_spread_and_standard_error_are_those_of_the_instances():
    found = estimate(SoftElim(), problems.named("two-point", horizon=20), instances=777)
    assert found.per_instance.shape == (1, 777)
    assert found.mean[0] == pytest.approx(found.per_instance.mean())
    assert found.spread[0] == pytest.approx(found.per_instance.std(ddof=1))
    assert found.se[0] == pytest.approx(found.spread[0] / 777**0.5)


def test_blocks_are_a_sample_of_gradients():
    """In reverse mode only sums over blocks are known: their spread is that of instances, times √B."""
    each = np.random.default_rng(0).normal(3.0, 2.0, (2, 24))
    full = from_blocks([(block.sum(1), block[0]) for block in np.split(each, 6, axis=1)], 24, 4)
    means = each.reshape(2, 6, 4).mean(2)
    np.testing.assert_allclose(full.mean, each.mean(1))
    np.testing.assert_allclose(full.se, means.std(1, ddof=1) / np.sqrt(6))
    np.testing.assert_allclose(full.spread, full.se * np.sqrt(24))
    np.testing.assert_array_equal(full.regrets, each[0])


def test_a_last_block_that_is_not_full_counts_as_what_it_holds():
    """Instances that all have one gradient have no spread, however they fall into blocks."""
    sums = [np.array([4.0 * 3.0]), np.array([4.0 * 3.0]), np.array([1.0 * 3.0])]
    found = from_blocks([(total, np.zeros(4)) for total in sums], 9, 4)
    assert (found.mean[0], found.regrets.shape) == (3.0, (9,))
    assert found.se[0] == pytest.approx(0, abs=1e-12)
    alone = from_blocks([(sums[2], np.zeros(4))], 1, 4)
    assert alone.mean[0] == 3.0
    assert np.isnan(alone.se[0]), "one block has no spread"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coin(Counting):
    """Pulls either of two arms, at random."""

    name: ClassVar[str] = "coin"
    opens: ClassVar[bool] = False

    def init(self, key):
        return {"w": jnp.zeros(2)}

    def log_probs(self, params, state):
        return jax.nn.log_softmax(params["w"])


@pytest.mark.parametrize("batch", [1, 4])
def test_the_baseline_optimal_is_what_the_best_arm_pays_on_the_same_noise(batch):
    """Whoever pulls only the best arm has exactly that, and no gradient; whoever does not mostly has."""
    problem = Problem(priors.Finite([[0.9, 0.1], [0.2, 0.6]]), batch, pulls_per_round=batch)
    found = estimate(Coin(), problem, instances=1000, estimator=Estimator("optimal"))
    best = found.regrets < 1e-6
    assert best.sum() > 30
    assert not found.per_instance[:, best].any()
    assert found.per_instance[:, ~best].any(0).mean() > 0.3


def test_what_cannot_be_differentiated_is_refused():
    problem = problems.named("two-point")
    table = Problem(priors.Table(np.zeros((4, 2, 9))), 9)
    for policy, task, how, match in (
        (ThompsonSampling(), problem, Estimator(), "no density"),
        (Uniform(), problem, Estimator(), "no parameters"),
        (SoftElim(), table, Estimator("optimal"), "use self"),
        (SoftElim(), table, Estimator(returns="expected"), "means"),
    ):
        with pytest.raises(InputError, match=match):
            estimate(policy, task, estimator=how)
    for instances in (0, 1, 2**31):
        with pytest.raises(InputError, match="instances"):
            estimate(SoftElim(), problem, instances=instances)
    for arguments, match in (
        (("slef",), "did you mean 'self'"),
        (("self", 3), "2 rollouts"),
        (("leave-one-out", 1), "at least 2"),
        (("none", 0), "rollouts"),
        (("none", None, "mean"), "returns"),
    ):
        with pytest.raises(InputError, match=match):
            Estimator(*arguments)


def test_tables_train_without_means():
    """Y of a table is what a finite prior would have drawn, so the gradients agree."""
    prior = priors.Finite([[0.6, 0.4], [0.4, 0.6]], rewards=rewards.Bernoulli())
    rng = np.random.default_rng(0)
    means = np.array([[0.6, 0.4], [0.4, 0.6]])[rng.integers(2, size=30_000)]
    table = (rng.random((30_000, 2, 5)) < means[:, :, None]).astype(np.float32)
    drawn = estimate(SoftElim(), Problem(priors.Table(table, held_out=0), 5), instances=MANY)
    exact = float(by_enumeration(SoftElim(), Problem(prior, 5)).gradient["theta"])
    # Instances come again, 60 000 drawn from 30 000, so the table's own sampling error is added.
    assert_z(drawn.mean[0], drawn.se[0], exact, drawn.spread[0] / 30_000**0.5)


def test_names_will_do_and_wrong_types_are_named():
    one = estimate("softelim", "two-point", {"theta": 0.3}, instances=64, estimator="optimal")
    two = estimate(
        SoftElim(theta=0.3), problems.named("two-point"), instances=64, estimator=Estimator("optimal")
    )
    np.testing.assert_array_equal(one.per_instance, two.per_instance)
    for policy, problem, how, match in (
        (SoftElim, "two-point", "self", r"write SoftElim\(\)"),
        (3, "two-point", "self", "a policy must be"),
        ("softelim", 3, "self", "a problem must be"),
        ("softelim", "two-point", 3, "an estimator must be"),
    ):
        with pytest.raises(InputError, match=match):
            estimate(policy, problem, estimator=how)
    with pytest.raises(InputError, match="parameters of softelim must be: theta"):
        estimate("softelim", "two-point", {"eta": 1.0})
    with pytest.raises(InputError, match="must be a Reward"):
        Problem(priors.Beta(2, rewards=rewards.Bernoulli), 10)


def test_a_sampler_that_ignores_its_key_is_refused():
    with pytest.raises(InputError, match=r"draw with jax\.random"):
        priors.Sampler(lambda key: np.random.default_rng(0).random(3), arms=3)
    listed = priors.Sampler(lambda key: [jax.random.uniform(key), 0.5], arms=2)
    assert listed.sample(jax.random.key(0)).shape == (2,)
