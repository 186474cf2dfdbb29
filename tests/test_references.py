"""Reference policies: formulas against SciPy, quadrature and brute force, and regrets as published."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z
from scipy import integrate, interpolate, optimize, special, stats

import gradband as gb
from gradband.core.special import upper_quantile
from gradband.policies import Counts, references
from gradband.policies.brezzi_lai import boundary
from gradband.policies.gaussian_ogi import optimism
from gradband.policies.ids import least_ratio
from gradband.policies.irs import allot
from gradband.solvers import gaussian_gittins
from gradband.solvers.layout import pair_place, pairs

GAUSSIAN = gb.Problem(gb.priors.Gaussian(arms=10), horizon=1000)
STATE = Counts(np.array([0.0, 3.0, 50.0, 400.0, 2.0]), np.array([0.0, 1.0, 45.0, 380.0, 2.0]))


def bound(name, arms=5, horizon=1000, **settings):
    return gb.policies.POLICIES[name](**settings).bind(arms, horizon)


# Gittins indices of normal arms


def roots(precision, last):
    """Where pulling is worth 0 after k pulls, with `last` − k rounds left: splines, and Gauss's rule from
    the root of the next stage on."""
    x, w = np.polynomial.legendre.leggauss(80)
    found, after = {}, None
    for k in range(last - 2, -1, -1):
        p, left = precision + k, last - k
        step, rest = 1 / np.sqrt(p * (p + 1)), np.sqrt(1 / p - 1 / (precision + last - 1))
        z = np.linspace(-6 * rest, 6 * rest, 801)
        if after is None:
            value = z + z * stats.norm.cdf(z / step) + step * stats.norm.pdf(z / step)
        else:
            root, curve, most = after
            low = np.maximum(root, z - 8 * step)
            high = np.maximum(z + 8 * step, low)
            nodes = low[:, None] + (high - low)[:, None] * (x + 1) / 2
            later = np.where(nodes > most, (left - 1) * nodes, curve(np.minimum(nodes, most)))
            density = stats.norm.pdf(nodes, z[:, None], step)
            value = z + (later * density * w).sum(1) * (high - low) / 2
        curve = interpolate.CubicSpline(z, value)
        found[k] = optimize.brentq(curve, z[0], 0, xtol=1e-13)
        after = found[k], curve, z[-1]
    return np.array([found[k] for k in range(last - 1)])


@pytest.mark.parametrize(("precision", "horizon"), [(1.0, 12), (0.1, 25), (30.0, 40)])
def test_normal_indices_are_those_of_another_computation(precision, horizon):
    """Within .002 of a posterior's standard deviation, where regrets don't change."""
    table = gaussian_gittins.finite_horizon(precision, horizon)
    assert len(table) == pairs(horizon)
    for last in (2, horizon // 2, horizon):  # rounds left and pulls sum to it
        k = np.arange(last - 1)
        ours = table[pair_place(horizon - last + k, k)]
        np.testing.assert_allclose(
            ours * np.sqrt(precision + k), -roots(precision, last) * np.sqrt(precision + k), atol=2e-3
        )
    assert (table[pair_place(horizon - 1, np.arange(horizon))] == 0).all()  # in the last round


def test_normal_indices_are_the_same_in_any_unit_and_on_any_number_of_workers():
    rng = np.random.default_rng(0)
    state = Counts(np.array([0.0, 1.0, 4.0, 9.0, 5.0]), rng.normal(size=5))
    plain, other = (
        bound("gittins-gaussian", horizon=40),
        bound("gittins-gaussian", horizon=40, mean=7.0, within=30.0, sd=30.0),
    )
    params = plain.as_arrays(plain.init(None))
    scaled = Counts(state.pulls, 30 * state.sums + 7 * state.pulls)
    np.testing.assert_allclose(other.index(params, scaled), 7 + 30 * plain.index(params, state), rtol=1e-9)
    one, two = (gaussian_gittins.finite_horizon(2.0, 60, workers) for workers in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_more_rounds_and_fewer_pulls_raise_a_normal_index():
    n = 60
    table = gaussian_gittins.finite_horizon(0.5, n)
    for k in (0, 3, 20):
        assert (np.diff(table[pair_place(np.arange(k, n), k)]) < 0).all()
    assert (np.diff(table[pair_place(n - 20, np.arange(n - 19))]) < 0).all()


# Other indices


@pytest.mark.brief
def test_quantiles_and_optimism_of_normal_beliefs_are_scipys():
    for tail in (0.5, 0.01, 1e-3):
        assert upper_quantile(tail) == pytest.approx(stats.norm.isf(tail), rel=1e-12)
        assert float(upper_quantile(jnp.float32(tail))) == pytest.approx(stats.norm.isf(tail), abs=1e-5)
    for gamma in (0.99, 0.995, 0.999):
        root = optimize.brentq(lambda x, g=gamma: g * (x * stats.norm.cdf(x) + stats.norm.pdf(x)) - x, 0, 9)
        assert optimism(gamma) == pytest.approx(root, abs=1e-5)


@pytest.mark.brief
def test_the_optimistic_index_solves_its_equation():
    policy = bound("ogi")
    gamma = 1 - 1 / (101 + STATE.rounds)
    for i, index in enumerate(policy.index({}, STATE)):
        a, b = (x[i] for x in policy.posterior(STATE))
        above, mean = stats.beta.sf(index, a, b), a / (a + b)
        greater = index + mean * stats.beta.sf(index, a + 1, b) - index * above  # E max(μ, λ)
        slope = 1 - gamma * (1 - above)
        assert ((1 - gamma) * mean + gamma * greater - index) / slope == pytest.approx(0, abs=1e-6)


@pytest.mark.brief
def test_the_boundary_has_the_pieces_of_brezzi_and_lai():
    """By hand; in their table, too, the pieces don't quite meet at .2 and at 15."""
    found = boundary(np.array([0.08, 0.25, 1.0, 4.0, 9.0, 1e4]))
    far = np.sqrt(2 * np.log(1e4) - np.log(np.log(1e4)) - np.log(16 * np.pi))
    np.testing.assert_allclose(found, [0.2, 0.27, 0.38, 0.5, 0.77 - 0.58 / 3, far])
    steps = np.diff(boundary(np.geomspace(1e-3, 1e4, 4000)))
    assert -0.08 < steps.min() < steps.max() < 0.1
    assert (np.abs(steps) > 0.02).sum() == 2


# Exact posteriors of beta rewards


@pytest.mark.brief
@pytest.mark.parametrize(
    ("a", "b", "v", "mean"), [(1.0, 1.0, 4.0, 0.7), (2.0, 5.0, 9.0, 0.2), (1.0, 1.0, 4.0, 0.985)]
)
def test_posteriors_of_beta_rewards_are_those_of_quadrature(a, b, v, mean):
    """Rewards at the ends have the likelihood of their interval, by the incomplete beta function."""
    policy = bound("ts-beta", arms=2, horizon=1000, a=a, b=b, v=v)
    rewards = np.random.default_rng(1).beta(v * mean, v * (1 - mean), 25)
    state = policy.begin({}, np.int32(0))
    for reward in rewards:
        state = policy.update({}, state, np.int64(0), float(np.float32(reward)))
    end = 2.0**-16
    inner = rewards[(rewards >= end) & (rewards <= 1 - end)]

    def log_posterior(mu):
        up, down = v * mu, v * (1 - mu)
        at_one = np.log(special.betainc(down, up, end)) * (rewards > 1 - end).sum()
        at_zero = np.log(special.betainc(up, down, end)) * (rewards < end).sum()
        return stats.beta.logpdf(mu, a, b) + stats.beta.logpdf(inner, up, down).sum() + at_one + at_zero

    most = max(log_posterior(mu) for mu in np.linspace(0.001, 0.999, 999))
    moments = [
        integrate.quad(
            lambda mu, k=k: mu**k * np.exp(log_posterior(mu) - most), 0, 1, points=[mean], limit=200
        )[0]
        for k in range(3)
    ]
    centre = moments[1] / moments[0]
    means, variances = policy.moments(state)
    assert means[0] == pytest.approx(centre, abs=2e-5)
    assert variances[0] == pytest.approx(moments[2] / moments[0] - centre**2, rel=5e-3)
    assert means[1] == pytest.approx(a / (a + b), abs=1e-5)  # before the first pull
    assert variances[1] == pytest.approx(a * b / (a + b) ** 2 / (a + b + 1), rel=1e-3)


# Information-directed sampling


@pytest.mark.brief
def test_the_least_ratio_is_that_of_brute_force():
    rng = np.random.default_rng(2)
    shares = rng.dirichlet(np.full(4, 0.3), 200_000)
    mixed = 0
    for _ in range(30):
        regrets, gains = rng.random(4), rng.random(4) ** 3
        regrets = regrets + (gains / gains.max()) ** 0.5  # what tells more costs more
        p = least_ratio(regrets, gains)
        ours = (p @ regrets) ** 2 / (p @ gains)
        least = ((shares @ regrets) ** 2 / (shares @ gains)).min()
        assert ours <= least * (1 + 1e-9)
        assert ours == pytest.approx(least, rel=1e-3)
        mixed += (p > 0).sum() == 2
    assert mixed >= 3
    np.testing.assert_allclose(least_ratio(np.ones(3), np.ones(3)), 1 / 3)  # equal arms share


@pytest.mark.brief
@pytest.mark.parametrize("name", ["ids", "v-ids", "v-ids-gaussian"])
def test_beliefs_about_the_best_arm_are_those_of_samples(name):
    """Each z below 5: 1 in 70 000 for all of a test's numbers, if errors are normal."""
    policy, count = bound(name, arms=4), 200_000
    state = Counts(np.array([10.0, 3.0, 40.0, 0.0]), np.array([7.0, 1.0, 25.0, 0.0]))
    rng, posterior = np.random.default_rng(3), policy.posterior(state)
    draw = rng.normal if name == "v-ids-gaussian" else rng.beta
    means = draw(*posterior, (count, 4))
    best, belief = means.argmax(1), policy.belief(state)
    shares = np.bincount(best, minlength=4) / count
    assert_z(shares, np.sqrt(shares * (1 - shares) / count), belief.best)
    gaps = means.max(1)[:, None] - means
    assert_z(gaps.mean(0), gaps.std(0) / count**0.5, belief.regrets)
    for j in range(4):
        given = means[best == j]
        assert_z(given.mean(0), given.std(0) / len(given) ** 0.5 + 2e-4, belief.given[j])
    middle = np.clip(belief.means, 1e-9, 1 - 1e-9)
    terms = {
        "ids": lambda: (
            special.rel_entr(belief.given, middle) + special.rel_entr(1 - belief.given, 1 - middle)
        ),
        "v-ids": lambda: (belief.given - belief.means) ** 2,
    }
    by_hand = belief.best @ terms["ids" if name == "ids" else "v-ids"]()
    np.testing.assert_allclose(
        belief.information if name == "ids" else belief.variances, by_hand, rtol=1e-9
    )


# Information relaxation sampling


@pytest.mark.brief
def test_rounds_are_allotted_as_in_an_enumeration():
    rng = np.random.default_rng(5)
    compiled = jax.jit(allot)
    for _ in range(20):
        worth = np.concatenate([np.zeros((3, 1)), rng.random((3, 6)).cumsum(1)], axis=1)
        left = int(rng.integers(1, 7))
        ways = [way for way in itertools.product(range(left + 1), repeat=3) if sum(way) == left]
        best = max(ways, key=lambda way: sum(worth[arm, k] for arm, k in enumerate(way)))
        np.testing.assert_array_equal(allot(worth, left), best)
        np.testing.assert_array_equal(compiled(jnp.asarray(worth), jnp.int32(left)), best)


@pytest.mark.brief
def test_a_players_samples_have_the_probabilities_of_the_rollouts():
    """Shares of 6400 samples each, |z| < 5: by chance once in half a million."""
    policy = bound("irs-v-zero", arms=3, horizon=30)
    state = Counts(np.array([6.0, 4.0, 3.0]), np.array([3.0, 2.0, 1.0]))
    ours = jax.tree.map(jnp.asarray, state)
    keys = jax.random.split(jax.random.key(0), 6400)
    arms = jax.jit(jax.vmap(lambda key: policy.act(key, {}, ours)))(keys)
    shares = np.bincount(np.asarray(arms), minlength=3) / 6400
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gradband.policies.irs.PATHS", 6400)
        played = policy.probabilities({}, state)
    se = np.sqrt(shares * (1 - shares) / 6400)
    assert shares.min() > 0.05
    assert_z(played, se, shares, se)
    assert policy.probabilities({}, state).sum() == pytest.approx(1)


# Networks on normalised rewards


@pytest.mark.brief
@pytest.mark.parametrize("name", ["index-gaussian", "lstm-gaussian"])
def test_networks_with_normal_beliefs_are_the_same_in_any_unit(name):
    rng = np.random.default_rng(6)
    plain, other = bound(name, arms=3), bound(name, arms=3, mean=-4.0, within=50.0, sd=100.0)
    plain = dataclasses.replace(plain, sd=2.0)
    drawn = plain.as_arrays(plain.init(jax.random.key(1)))
    params = plain.folded({key: leaf + 0.1 * rng.normal(size=leaf.shape) for key, leaf in drawn.items()})
    states = [policy.begin(params, np.int32(0)) for policy in (plain, other)]
    for _ in range(30):
        arm, reward = np.int64(rng.integers(3)), 2.5 * rng.normal()
        states = [
            policy.update(params, state, arm, heard)
            for policy, state, heard in zip((plain, other), states, (reward, 50 * reward - 4), strict=True)
        ]
    one, two = (
        policy.log_probs(params, state) for policy, state in zip((plain, other), states, strict=True)
    )
    np.testing.assert_allclose(one, two, rtol=1e-9)
    assert np.ptp(one) > 0.01


@pytest.mark.brief
@pytest.mark.parametrize("name", ["index", pytest.param("lstm", marks=pytest.mark.slow)])
def test_networks_learn_on_normal_arms(name):
    """A few steps; benchmarks measure how well."""
    problem = gb.Problem(gb.priors.Gaussian(3, 5.0, 2.0, gb.problems.rewards.Gaussian(4.0)), 12)
    learned = gb.learn(f"{name}:prior", problem, iterations=2, instances=16, progress=False)
    assert learned.policy.name == f"{name}-gaussian"
    assert (learned.policy.mean, learned.policy.within, learned.policy.sd) == (5.0, 2.0, 4.0)
    assert all(np.isfinite(leaf).all() for leaf in learned.params.values())


@pytest.mark.slow
def test_an_index_network_learns_to_explore_normal_arms():
    problem = gb.Problem(gb.priors.Gaussian(5, 3.0, 2.0, gb.problems.rewards.Gaussian(4.0)), 100)
    learned = gb.learn("index:prior", problem, iterations=100, instances=256, progress=False)
    given = {"learned": learned, "start": "index:prior", "ts": "ts:prior", "gittins": "gittins:prior"}
    table = gb.evaluate(given, problem, instances=10_000, progress=False)
    for name in ("start", "ts"):
        ahead = table.difference(name, "learned")
        assert ahead.mean > 5 * ahead.se
    assert table["learned"].regret.mean < 1.15 * table["gittins"].regret.mean


# The prior


@pytest.mark.brief
def test_a_name_with_the_prior_suits_the_rewards():
    shop = gb.Problem(gb.priors.Gaussian(3, 5.0, 2.0, gb.problems.rewards.Gaussian(4.0)), 50)
    for name in ("ts", "gittins", "bayes-ucb", "ogi", "v-ids"):
        policy = references.with_prior(name, shop)
        assert policy.name == f"{name}-gaussian"
        assert (policy.mean, policy.within, policy.sd) == (5.0, 2.0, 4.0)
    law = gb.problems.rewards.Beta(6.0)
    exact = references.with_prior("ts", gb.Problem(gb.priors.Beta(3, 2, 5, law), 50))
    assert exact == gb.policies.BetaTS(a=2.0, b=5.0, v=6.0)
    assert references.with_prior("ogi", gb.Problem(gb.priors.Beta(3, 2, 5), 50)).a == 2.0
    assert list(references.fair(gb.problems.named("beta-10"))) == [
        "ts",
        "ts:prior",
        "brezzi-lai-beta:prior",
    ]
    assert list(references.fair(GAUSSIAN)) == ["ts-gaussian:prior", "gittins-gaussian:prior"]
    for name, problem, words in (
        (
            "gittins",
            gb.Problem(gb.priors.HierarchicalGaussian(3), 50),
            "share a level: ts-gaussian:prior can",
        ),
        ("ts-beta", gb.problems.named("uniform-2"), "needs beta rewards, not bernoulli"),
        ("ids", shop, r"ids:prior needs rewards in \[0, 1\]"),
    ):
        with pytest.raises(gb.InputError, match=words):
            references.with_prior(name, problem)


@pytest.mark.brief
def test_settings_out_of_range_are_refused():
    with pytest.raises(gb.InputError, match="longest horizon is 4000"):
        bound("gittins-gaussian", horizon=4001)
    with pytest.raises(gb.InputError, match=r"\(sd / within\)² of gittins-gaussian must lie in"):
        bound("gittins-gaussian", sd=1e-3)
    with pytest.raises(gb.InputError, match="v of ts-beta must be above 0"):
        bound("ts-beta", v=0.0)
    with pytest.raises(gb.InputError, match="sd of ogi-gaussian must be above 0"):
        bound("ogi-gaussian", sd=-1.0)


# Regrets


def test_short_games_are_those_of_numpy():
    """Bayes-UCB and the optimistic index on normal arms, beside games in plain NumPy: |z| < 5 for both."""
    arms, n, m = 4, 30, 4000
    problem = gb.Problem(gb.priors.Gaussian(arms), n)
    table = gb.evaluate(["bayes-ucb-gaussian", "ogi-gaussian"], problem, instances=m)
    for name, premium in (
        ("bayes-ucb-gaussian", lambda t: stats.norm.isf(1 / max(t, 2))),
        ("ogi-gaussian", lambda t: float(optimism(1 - 1 / (100 + t)))),
    ):
        rng = np.random.default_rng(4)
        means = rng.normal(size=(m, arms))
        pulls, sums, rows, regrets = np.zeros((m, arms)), np.zeros((m, arms)), np.arange(m), 0
        for t in range(1, n + 1):
            arm = (
                (sums + 1e-9 * rng.random((m, arms))) / (pulls + 1) + premium(t) / np.sqrt(pulls + 1)
            ).argmax(1)
            regrets = regrets + means.max(1) - means[rows, arm]
            pulls[rows, arm] += 1
            sums[rows, arm] += means[rows, arm] + rng.normal(size=m)
        ours = table[name].regret
        assert_z(ours.mean, ours.se, regrets.mean(), regrets.std() / m**0.5)


PUBLISHED = [
    ("bernoulli-10", "ogi", 18.1, None),
    ("bernoulli-10", "ids", 18.0, None),
    ("bernoulli-10", "v-ids", 18.1, None),
    ("bernoulli-10", "bayes-ucb", 22.8, None),
    ("beta-10", "ts-beta:prior", 9.45, 0.24),
    ("beta-10", "brezzi-lai-beta:prior", 7.82, 0.23),
    ("gaussian", "ts-gaussian:prior", 67.4, None),
    ("gaussian", "ogi-gaussian:prior", 49.2, None),
    ("gaussian", "v-ids-gaussian:prior", 55.8, None),
]


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "policy", "regret", "se"), PUBLISHED)
def test_regrets_are_the_published_ones(problem, policy, regret, se):
    """Published means without a standard error are taken as those of 1000 games."""
    where = GAUSSIAN if problem == "gaussian" else gb.problems.named(problem)
    ours = gb.evaluate(policy, where, instances=2000).rows[0].regret
    assert_z(ours.mean, ours.se, regret, ours.se * 2**0.5 if se is None else se)


@pytest.mark.slow
def test_the_normal_gittins_index_is_between_the_bound_and_the_other_policies():
    table = gb.evaluate(["gittins:prior", "ogi:prior", "ts:prior"], GAUSSIAN, instances=20_000)
    ours = table["gittins:prior"].regret
    assert ours.mean > 43.2 - 5 * ours.se  # proved for all policies
    for name in ("ogi:prior", "ts:prior"):
        ahead = table.difference(name, "gittins:prior")
        assert ahead.mean > 5 * ahead.se
