"""The benchmarks' indices, their ties, and their regrets; the share of the way to a goal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z
from scipy import optimize, stats
from scipy.special import xlogy

from gradband import policies, problems
from gradband.core.errors import InputError
from gradband.evaluation.evaluate import Comparison, Row, evaluate
from gradband.policies import UCB1, UCBV, Counts, Gittins, Greedy
from gradband.policies.bayes_ucb import beta_quantile
from gradband.policies.kl_ucb import upper_bound
from gradband.problems import Problem, priors

pytestmark = pytest.mark.brief


def kl(p, q):
    return xlogy(p, p) + xlogy(1 - p, 1 - p) - xlogy(p, q) - xlogy(1 - p, 1 - q)


@pytest.mark.parametrize(("double", "tolerance"), [(False, 5e-5), (True, 1e-12)])
def test_kl_ucb_solves_for_its_bound(double, tolerance):
    rng = np.random.default_rng(0)
    means = np.concatenate([rng.integers(0, 11, 200) / 10, rng.random(200)])
    divergences = 10 ** rng.uniform(-4, 1, 400)
    truth = [
        1.0
        if mean == 1 or kl(mean, 1 - 1e-15) < d
        else optimize.brentq(lambda q, m=mean, d=d: kl(m, q) - d, mean, 1 - 1e-15, xtol=1e-14)
        for mean, d in zip(means, divergences, strict=True)
    ]
    with jax.enable_x64(double):
        found = jax.jit(upper_bound)(means, divergences)
    np.testing.assert_allclose(found, truth, atol=tolerance)


def test_bayes_ucb_has_the_posteriors_quantiles():
    rng = np.random.default_rng(1)
    a = np.concatenate([rng.integers(1, 1000, 1000), rng.uniform(0.1, 3, 1000)])
    b = np.concatenate([rng.integers(1, 1000, 1000), rng.uniform(0.1, 3, 1000)])
    p = 1 / rng.integers(2, 1001, a.size)
    found = jax.jit(beta_quantile)(*(np.asarray(x, np.float32) for x in (p, a, b)))
    np.testing.assert_allclose(found, stats.beta.ppf(p, a, b), atol=2e-5)


@pytest.mark.parametrize(("c", "zeta", "zeta_0"), [(1.0, 2.0, 3.0), (0.5, 1.2, 1.0)])
def test_ucb_v_has_its_index_by_hand(c, zeta, zeta_0):
    """Arm 0 has seen .2, .9 and .4, arm 1 a single 1, arm 2 nothing."""
    usual = {"c": 1.0, "zeta": 2.0, "zeta_0": 3.0}
    assert UCBV().settings() == usual
    policy = UCBV(c=c, zeta=zeta, zeta_0=zeta_0).bind(3, 50)
    state = policy.begin({}, jnp.int32(0))
    for arm, reward in ((0, 0.2), (0, 0.9), (1, 1.0), (0, 0.4)):
        state = policy.update({}, state, jnp.int32(arm), jnp.float32(reward))
    e = np.log(zeta_0) + zeta * np.log(5)
    by_hand = 0.5 + np.sqrt(2 * np.var([0.2, 0.9, 0.4]) * e / 3) + 3 * c * e / 3
    np.testing.assert_allclose(policy.index({}, state), [by_hand, 1 + 3 * c * e, np.inf], rtol=1e-6)


def test_wrong_constants_of_ucb_v_are_refused():
    for name, value in (("c", -1.0), ("zeta", -1.0), ("zeta_0", 0.5)):
        with pytest.raises(InputError, match=f"{name} of ucb-v"):
            UCBV(**{name: value}).bind(3, 50)


@pytest.mark.parametrize("policy", [Greedy(), UCB1(), Gittins()])
def test_ties_are_broken_at_random(policy):
    bound = policy.bind(3, 30)
    params = bound.init(jax.random.key(0))
    state = Counts(jnp.array([4.0, 4.0, 8.0]), jnp.array([3.0, 3.0, 2.0]))
    np.testing.assert_array_equal(bound.probabilities(params, state), [0.5, 0.5, 0])
    keys = jax.random.split(jax.random.key(1), 2000)
    arms = np.asarray(jax.jit(jax.vmap(lambda key: bound.act(key, params, state)))(keys))
    assert set(arms) == {0, 1}
    assert_z(arms.mean(), 0.5 / 2000**0.5, 0.5)


@pytest.mark.parametrize(
    ("name", "instances", "values"),
    [
        ("two-point", 20_000, {"ucb-v": (15.93, 0.01), "gittins": (3.73, 0.02)}),
        ("uniform-2", 20_000, {"ucb-v": (19.08, 0.07), "gittins": (2.255, 0.014)}),
        ("bernoulli-10", 1000, {"ucb-v": (293.2, 0.9)}),
        ("beta-10", 1000, {"ucb-v": (275.2, 0.8)}),
    ],
)
def test_regrets_are_those_measured_elsewhere(name, instances, values):
    table = evaluate(
        {key: policies.named(key) for key in values}, problems.named(name), instances=instances
    )
    for key, (regret, se) in values.items():
        ours = table[key].regret
        assert_z(ours.mean, ours.se, regret, se)


def test_gittins_on_ten_arms():
    problem = problems.named("bernoulli-10", horizon=100)
    ours = evaluate([Gittins()], problem, instances=4000).rows[0].regret
    assert_z(ours.mean, ours.se, 7.195, 0.03)


@pytest.mark.parametrize("name", ["kl-ucb", "ucb-v", "bayes-ucb", "gittins"])
def test_rewards_outside_the_unit_interval_are_refused(name):
    with pytest.raises(InputError, match=rf"{name} needs rewards in \[0, 1\]"):
        evaluate([policies.named(name)], Problem(priors.Gaussian(2), 20))


# The share of the way


def test_the_share_of_the_way_and_its_standard_error():
    rng = np.random.default_rng(2)
    start = rng.normal(5, 1, 4000)
    half = start - 1.5 + rng.normal(0, 0.2, 4000)
    rows = [Row(name, regrets, -regrets, 0.0) for name, regrets in (("ts", start), ("half", half))]
    table = Comparison(tuple(rows))
    share = table.share("half", "ts", goal=2.0)
    assert share.mean == pytest.approx((start.mean() - half.mean()) / (start.mean() - 2))
    drawn = rng.integers(0, 4000, (400, 4000))
    again = (start[drawn].mean(1) - half[drawn].mean(1)) / (start[drawn].mean(1) - 2)
    assert share.se == pytest.approx(again.std(), rel=0.15)
    assert table.share("ts", "ts", goal=2.0).mean == 0
    assert table.share("ts", "ts", goal=2.0).se == pytest.approx(0, abs=1e-12)
    assert [row.name for row in table.without("ts").rows] == ["half"]
