"""Reference policies on contexts: K-armed ones with one-hot features, exact lookahead, known regrets."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z
from every_policy import CONTEXTUAL, bound, features
from scipy import stats

import gradband as gb
from gradband.policies import Counts, binding, envelope, given, references
from gradband.policies.lin_v_ids import scattered
from gradband.problems import rewards

K = 4
NUMBERS = {"mean": 0.3, "within": 0.8, "sd": 0.5}


# One-hot features give K arms


def one_hot_seen(name, counts, **settings):
    """What a policy with linear beliefs about one-hot features sees after these counts."""
    policy = dataclasses.replace(gb.policies.named(name), dims=K, **NUMBERS, **settings).bind(K, 60)
    state = policy.begin({}, np.int32(0))
    for arm in range(K):
        for _ in range(int(counts.pulls[arm])):
            seen = policy.see({}, state, np.eye(K))
            state = policy.update({}, seen, np.int64(arm), counts.sums[arm] / counts.pulls[arm])
    return policy, policy.see({}, state, np.eye(K))


COUNTS = Counts(np.array([4.0, 1.0, 7.0, 2.0]), np.array([1.6, 0.3, 4.2, -0.4]))


@pytest.mark.brief
def test_one_hot_features_are_arms():
    normal = gb.policies.GaussianTS(**NUMBERS).bind(K, 60)
    means, sds = normal.posterior(COUNTS)
    for name in ("lin-greedy", "lin-ucb", "lin-bayes-ucb"):
        policy, seen = one_hot_seen(name, COUNTS)
        premium = {"lin-greedy": 0.0, "lin-ucb": 1.0, "lin-bayes-ucb": stats.norm.isf(1 / 16)}[name]
        np.testing.assert_allclose(policy.index({}, seen), means + premium * sds, rtol=1e-9)
    kind = gb.policies.GaussianBayesUCB(**NUMBERS).bind(K, 60)
    later = COUNTS._replace(gone=np.array(1.0))  # its quantiles are those of a round before
    np.testing.assert_allclose(policy.index({}, seen), kind.index({}, later), rtol=1e-9)


@pytest.mark.brief
def test_one_hot_features_have_the_probabilities_of_thompson_sampling():
    """Along one direction exact, and along two others by 1024 quasi-random draws."""
    policy, seen = one_hot_seen("lin-ts", COUNTS)
    p = gb.policies.GaussianTS(**NUMBERS).bind(K, 60).probabilities({}, COUNTS)
    np.testing.assert_allclose(policy.probabilities({}, seen), p, rtol=0, atol=1e-3)
    policy, seen = one_hot_seen("lin-ts", COUNTS, model="by-arm")
    np.testing.assert_allclose(policy.probabilities({}, seen), p, rtol=0, atol=1e-12)


def test_games_with_one_hot_features_are_those_of_arms():
    """Thompson sampling by |z| < 5; the quantiles of Bayes-UCB are those of a round before."""
    law, m = rewards.Gaussian(0.5), 20_000
    arms = gb.Problem(gb.priors.Gaussian(K, 0.0, 0.8, law), 60)
    linear = gb.priors.Linear(K, K, within=0.8, table=np.eye(K).tolist(), rewards=law)
    ours = gb.evaluate(["lin-ts", "lin-bayes-ucb"], gb.Problem(linear, 60), instances=m)
    settings = {"mean": 0.0, "within": 0.8, "sd": 0.5}
    theirs = gb.evaluate(
        [gb.policies.GaussianTS(**settings), gb.policies.GaussianBayesUCB(**settings)],
        arms,
        instances=m,
        seed=1,
    )
    one, two = ours["lin-ts"].regret, theirs["ts-gaussian"].regret
    assert_z(one.mean, one.se, two.mean, two.se)
    one, two = ours["lin-bayes-ucb"].regret, theirs["bayes-ucb-gaussian"].regret
    assert one.mean == pytest.approx(two.mean, rel=0.05)


@pytest.mark.brief
def test_softelim_on_one_hot_features_is_softelim():
    """With a wide prior, after each arm was pulled: θ = 2 a² σ²."""
    policy, seen = one_hot_seen("lin-softelim", COUNTS)
    vast = dataclasses.replace(policy, within=1e4)
    state = vast.begin({}, np.int32(0))
    for arm in range(K):
        for _ in range(int(COUNTS.pulls[arm])):
            mean = COUNTS.sums[arm] / COUNTS.pulls[arm]
            state = vast.update({}, vast.see({}, state, np.eye(K)), np.int64(arm), mean)
    seen = vast.see({}, state, np.eye(K))
    p = vast.probabilities({"a": np.float64(0.7)}, seen)
    plain = gb.policies.SoftElim().bind(K, 60)
    theta = np.float64(2 * 0.7**2 * NUMBERS["sd"] ** 2)
    np.testing.assert_allclose(p, plain.probabilities({"theta": theta}, COUNTS), rtol=0, atol=1e-6)


# Probabilities of Thompson sampling, and its samples


@pytest.mark.brief
def test_chances_of_lines_are_those_of_quadrature():
    """Two features, by SciPy's quadrature over the direction of z; two arms and one feature exactly."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        means, spreads = 0.3 * rng.normal(size=6), rng.normal(size=(6, 2))
        p = envelope.best_line_probabilities(means, spreads)
        angles = (np.arange(1000) + 0.5) * 2 * np.pi / 1000
        radii = np.sqrt(-2 * np.log1p(-(np.arange(500) + 0.5) / 500))  # quantiles of |z|
        z = radii[:, None, None] * np.stack([np.cos(angles), np.sin(angles)], 1)[None]
        best = (means + z @ spreads.T).argmax(2)
        shares = np.bincount(best.ravel(), minlength=6) / best.size
        np.testing.assert_allclose(p, shares, rtol=0, atol=1.5e-3)
    means, spreads = rng.normal(size=2), rng.normal(size=(2, 5))
    chance = stats.norm.cdf((means[0] - means[1]) / np.linalg.norm(spreads[0] - spreads[1]))
    found = envelope.best_line_probabilities(means, spreads)
    np.testing.assert_allclose(found, [chance, 1 - chance], rtol=0, atol=2e-7)
    same = envelope.best_line_probabilities(np.zeros(3), np.ones((3, 2)))
    np.testing.assert_allclose(same, 1 / 3)


@pytest.mark.brief
@pytest.mark.parametrize(("arms", "dims"), [(10, 2), (30, 5), (20, 20)])
def test_chances_of_lines_are_within_a_hundredth_of_samples(arms, dims):
    """Within 10⁻³ with two features; beyond, the quasi-random draws are an error of up to a hundredth."""
    rng = np.random.default_rng(arms)
    means, spreads = 0.5 * rng.normal(size=arms), rng.normal(size=(arms, dims)) / dims**0.5
    p, count = envelope.best_line_probabilities(means, spreads), 400_000
    best = (means + rng.normal(size=(count, dims)) @ spreads.T).argmax(1)
    shares = np.bincount(best, minlength=arms) / count
    print(dims, np.abs(p - shares).max(), (shares.max() / count) ** 0.5)
    assert np.abs(p - shares).max() < (2e-3 if dims == 2 else 0.01)


# The knowledge gradient


def expected_greatest(values, slopes):
    """E max_i (a_i + b_i z) by brute force."""
    z = np.linspace(-9, 9, 40_001)
    return np.trapezoid((values + z[:, None] * slopes).max(1) * stats.norm.pdf(z), z)


@pytest.mark.brief
def test_gains_of_lines_are_those_of_brute_force():
    rng = np.random.default_rng(1)
    for scale in (1.0, 0.1):
        values, slopes = rng.normal(size=(1, 7)), scale * rng.normal(size=(5, 7))
        slopes[1] = slopes[1, 0]  # parallel: nothing to gain
        slopes[2, 3:] = slopes[2, 3]
        found = envelope.expected_gain(values, slopes)
        for row, gain in zip(slopes, found, strict=True):
            exact = expected_greatest(values[0], row) - values.max()
            assert gain == pytest.approx(exact, rel=1e-5, abs=1e-7)
        single = jax.jit(envelope.expected_gain)(np.float32(values), np.float32(slopes))
        np.testing.assert_allclose(single, found, rtol=1e-4, atol=1e-12)
    c = np.linspace(0, 12, 500)
    exact = stats.norm.pdf(c) - c * stats.norm.sf(c)
    np.testing.assert_allclose(envelope.excess(c[c < 6]), exact[c < 6], rtol=3e-7)


@pytest.mark.brief
@pytest.mark.parametrize("model", ["linear", "by-arm"])
def test_the_knowledge_gradient_is_optimal_with_two_rounds_left(model):
    """Its score is the value of an arm now and the best one next, by brute force over the reward."""
    policy = bound("lin-kg", K, 12, model=model, **NUMBERS)
    state, rng = policy.begin({}, np.int32(0)), np.random.default_rng(2)
    for t in range(11):
        seen = policy.see({}, state, features(t, K).astype(float))
        if t == 10:
            break
        state = policy.update({}, seen, np.int64(rng.integers(K)), rng.normal())
    for arm in range(K):
        sd = np.sqrt(seen.variance[arm] + NUMBERS["sd"] ** 2)
        now, more = (
            policy.see({}, policy.update({}, seen, np.int64(arm), reward), seen.features).mean
            for reward in (seen.mean[arm], seen.mean[arm] + sd)
        )
        value = expected_greatest(now, more - now)
        np.testing.assert_allclose(now, seen.mean, atol=1e-12)
        score = policy.index({}, seen)[arm]
        assert score == pytest.approx(seen.mean[arm] + value - seen.mean.max(), abs=1e-6)


# Information-directed sampling


@pytest.mark.brief
def test_scattered_numbers_are_standard_normal_and_new_in_each_round():
    z = np.stack([scattered(np.float64(t), (200, 5), np.float64) for t in range(100)])
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-5
    assert_z(z.mean(), 1 / z.size**0.5, 0.0)
    for axis in range(3):
        ahead, behind = (np.take(z, np.arange(start, z.shape[axis] - 1 + start), axis) for start in (0, 1))
        assert_z((ahead * behind).mean(), 1 / ahead.size**0.5, 0.0)
    ours = scattered(jnp.float32(7), (200, 5), jnp.float32)
    np.testing.assert_allclose(ours, z[7], rtol=0, atol=2e-5)


# Regrets


TABLE = [  # on dpt-linear, rvr-linear and lin-5: simulated elsewhere, 1000 instances, 300 of lin-v-ids
    ("uniform", [(183.3, 3.3), (859.5, 10.3), (219.1, 2.5)]),
    ("lin-greedy", [(17.97, 1.11), (274.8, 8.7), (14.03, 0.89)]),
    ("lin-ts", [(3.86, 0.08), (36.5, 0.4), (19.87, 0.50)]),
    ("lin-ucb", [(3.93, 0.08), (205.7, 7.5), (34.00, 1.20)]),
    ("lin-bayes-ucb", [(3.40, 0.07), (32.2, 0.5), (13.64, 0.51)]),
    ("lin-v-ids", [(3.14, 0.10), (31.6, 1.3), (11.39, 0.95)]),
]
NAMES = ("dpt-linear", "rvr-linear", "lin-5")


def compare(policy, problem, known, instances):
    ours = gb.evaluate(policy, problem, instances=instances, progress=False).rows[0].regret
    assert_z(ours.mean, ours.se, *known)


@pytest.mark.parametrize(("policy", "known"), TABLE)
def test_regrets_on_few_arms_are_the_known_ones(policy, known):
    """Each policy on 1000 instances of one problem."""
    compare(policy, gb.problems.named("dpt-linear"), known[0], 1000)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(("policy", "known"), TABLE)
def test_regrets_are_the_known_ones(policy, known, place):
    few = policy == "lin-v-ids"
    compare(policy, gb.problems.named(NAMES[place]), known[place], 2000 if few else 20_000)


SOFTELIM = {  # the same for lin-softelim by a, with the variance of the arm and of the difference
    ("0.25", "arm"): (5.17, 94.6, 11.44),
    ("0.5", "arm"): (3.50, 42.1, 11.21),
    ("1", "arm"): (4.11, 38.4, 19.68),
    ("0.25", "difference"): (5.09, 91.9, 11.20),
    ("0.5", "difference"): (3.46, 40.7, 12.35),
    ("1", "difference"): (4.81, 42.9, 24.00),
}


@pytest.mark.slow
@pytest.mark.parametrize("place", range(3))
def test_regrets_of_softelim_are_the_known_ones(place):
    """Theirs have no standard errors: those of 1000 of our instances."""
    known = {f"lin-softelim:a={a}+variance={what}": row[place] for (a, what), row in SOFTELIM.items()}
    table = gb.evaluate(list(known), gb.problems.named(NAMES[place]), instances=20_000, progress=False)
    for name, regret in known.items():
        ours = table[name].regret
        assert_z(ours.mean, ours.se, regret, ours.se * 20**0.5)


ARMS = [("lin-ts", (9.74, 0.18)), ("lin-bayes-ucb", (8.25, 0.18)), ("lin-v-ids", (7.97, 0.48))]


@pytest.mark.parametrize(
    ("policy", "known"),
    [pytest.param(*row, marks=[pytest.mark.slow] * (row[0] == "lin-v-ids")) for row in ARMS],
)
def test_regrets_with_one_hot_features_are_those_of_five_arms(policy, known):
    """Means are U[0, 1], which the policies believe to be N(½, 1/12); 500 rounds, noise of 0.3."""
    law, belief = rewards.Gaussian(0.3), {"mean": 0.5, "within": 12**-0.5}
    prior = gb.priors.Linear(5, 5, **belief, theta="uniform", table=np.eye(5), rewards=law)
    compare(policy, gb.Problem(prior, 500), known, 1000 if policy == "lin-v-ids" else 10_000)


# The prior


@pytest.mark.brief
def test_names_alone_have_the_prior_of_a_linear_problem():
    problem = gb.problems.named("lin-5")
    for name in CONTEXTUAL:
        found, asked = (given.parse_policy(text, problem) for text in (name, f"{name}:prior"))
        assert (asked.mean, asked.within, asked.sd) == (0.5, 12**-0.5, 1.5)
        assert (found == asked) == (name != "lin-ucb")
        set_too = given.parse_policy(f"{name}:sd=2", problem)
        assert (set_too.sd, set_too.within) == (2.0, 1.0 if name == "lin-ucb" else 12**-0.5)
    own = gb.priors.LinearByArm(3, 2, mean=[1.0, 0.0], within=[2.0, 1.0])
    found = given.parse_policy("lin-ts", gb.Problem(own, 20))
    assert (found.model, found.mean, found.within) == ("by-arm", (1.0, 0.0), (2.0, 1.0))
    zeros_and_ones = gb.Problem(gb.priors.Linear(3, 2, rewards=rewards.Bernoulli()), 20)
    assert given.parse_policy("lin-ts", zeros_and_ones).link == "logistic"
    assert list(references.fair(problem)) == ["lin-ts:prior", "lin-bayes-ucb:prior", "lin-greedy:prior"]
    by_arm = references.fair(gb.problems.named("groups"))
    wanted = [f"lin-{name}:model=by-arm" for name in ("ts", "bayes-ucb", "greedy")]
    assert list(by_arm) == [*wanted, "by-group"]
    for text, policy in by_arm.items():
        assert given.parse_policy(text, gb.problems.named("groups")) == policy


@pytest.mark.brief
@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("lin-ts:prior", "uniform-2", "needs a problem with contexts, and a beta prior has none"),
        ("lin-ts", "uniform-2", "needs contexts, which this problem does not have"),
        ("lin-ts:prior", "groups", "can't use a groups prior: use lin-ts with its own settings"),
        ("lin-ts", "groups", "use model=by-arm"),
        ("ts:prior", "dpt-linear", "can't use a linear prior"),
        ("lin-kg:link=logistic", "dpt-linear", "lin-kg needs link=identity, not logistic"),
        ("lin-v-ids:samples=0", "dpt-linear", "samples of lin-v-ids must be a whole number of at least 1"),
        ("lin-ucb:width=-1", "dpt-linear", "width of lin-ucb must be a finite number of at least 0"),
    ],
)
def test_what_does_not_fit_is_refused(text, where, words):
    problem = gb.problems.named(where)
    with pytest.raises(gb.InputError, match=words):
        binding.check(given.parse_policy(text, problem), problem)


def test_policies_that_know_no_contexts_play_them_all_the_same():
    """They ignore them, and are worse for it."""
    problem = gb.Problem(gb.priors.Linear(3, 2, changing=True, rewards=rewards.Bernoulli()), 60)
    table = gb.evaluate(["lin-ts", "ts", "softelim", "ucb1"], problem, instances=1000, progress=False)
    assert all(table.difference(name, "lin-ts").mean > 2 for name in ("ts", "softelim", "ucb1"))


@pytest.mark.brief
def test_explain_says_that_it_knows_no_contexts():
    with pytest.raises(gb.InputError, match="explain needs a problem without contexts"):
        gb.explain("lin-softelim", gb.problems.named("dpt-linear"))


@pytest.mark.parametrize(
    ("policy", "within", "noise"),
    [
        ("lin-ts", 0.5**0.5, 0.3),
        ("lin-ucb", 1.0, 1.0),
        ("lin-softelim:a=0.6", 0.5**0.5, 0.3),
        ("lin-softelim:a=0.6+variance=difference", 0.5**0.5, 0.3),
    ],
)
def test_games_on_few_arms_are_those_of_numpy(policy, within, noise):
    """dpt-linear by the normal equations, in plain NumPy: |z| < 5."""
    x = np.random.RandomState(1234).normal(size=(10, 2)) / 2**0.5
    rng, m, rows = np.random.default_rng(7), 4000, np.arange(4000)
    means = rng.normal(size=(m, 2)) * 0.5**0.5 @ x.T
    precision, cause = np.tile(np.eye(2) / within**2, (m, 1, 1)), np.zeros((m, 2))
    regrets = np.zeros(m)
    for _ in range(200):
        covariance = np.linalg.inv(precision)
        belief = (covariance @ cause[:, :, None])[:, :, 0]
        index = belief @ x.T
        if policy == "lin-ts":
            root = np.linalg.cholesky(covariance)
            index = (belief + (root @ rng.normal(size=(m, 2, 1)))[:, :, 0]) @ x.T
        elif policy == "lin-ucb":
            index += np.sqrt(((x @ covariance) * x).sum(2))
        else:  # the greatest of −gap² / c + Gumbel noise
            row = x - x[index.argmax(1)][:, None] if "difference" in policy else x[None]
            gap, c = index.max(1)[:, None] - index, 0.6**2 * ((row @ covariance) * row).sum(2)
            index = rng.gumbel(size=gap.shape) - gap**2 / np.where(gap > 0, c, 1)
        arm = index.argmax(1)
        reward = means[rows, arm] + 0.3 * rng.normal(size=m)
        precision += x[arm][:, :, None] * x[arm][:, None] / noise**2
        cause += reward[:, None] * x[arm] / noise**2
        regrets += means.max(1) - means[rows, arm]
    known = regrets.mean(), regrets.std() / m**0.5
    compare(policy, gb.problems.named("dpt-linear"), known, 20_000)
