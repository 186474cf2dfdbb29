"""What policies believe of linear rewards, beside solves in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_policy import ARMS, DIMS, bound
from scipy import linalg, optimize, special

from gradband.policies import beliefs, hinges
from gradband.policies.beliefs import Belief


def history(rounds, arms=ARMS, dims=DIMS, seed=0):
    """Features [rounds, K, d], arms and rewards."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rounds, arms, dims))
    return x, rng.integers(arms, size=rounds), rng.normal(size=rounds)


def ridge(x, rewards, mean, within, sd):
    """The mean and the covariance of θ, by solving the normal equations."""
    precision = np.eye(x.shape[1]) / within**2 + x.T @ x / sd**2
    cause = np.full(x.shape[1], mean) / within**2 + x.T @ rewards / sd**2
    return linalg.solve(precision, cause, assume_a="pos"), linalg.inv(precision)


@pytest.mark.brief
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("model", ["linear", "by-arm"])
def test_beliefs_are_those_of_ridge_regression(model, seed):
    numbers = {"mean": 0.4, "within": 0.8, "sd": 0.5}
    policy = bound("lin-greedy", ARMS, 60, model=model, **numbers)
    x, arms, rewards = history(60, seed=seed)
    state = policy.begin({}, np.int32(0))
    for features, arm, reward in zip(x, arms, rewards, strict=True):
        state = policy.update({}, policy.see({}, state, features), arm, reward)
    seen = policy.see({}, state, x[0])
    chosen = x[np.arange(60), arms]
    for arm in range(ARMS):
        own = np.ones(60, bool) if model == "linear" else arms == arm
        mean, covariance = ridge(chosen[own], rewards[own], **numbers)
        root = state.root if model == "linear" else state.root[arm]
        np.testing.assert_allclose(state.mean if model == "linear" else state.mean[arm], mean, rtol=1e-10)
        np.testing.assert_allclose(root @ root.T, covariance, rtol=0, atol=1e-13)
        assert seen.mean[arm] == pytest.approx(x[0, arm] @ mean)
        assert seen.variance[arm] == pytest.approx(x[0, arm] @ covariance @ x[0, arm])
        if model == "linear":
            apart = x[0, arm] - x[0, seen.mean.argmax()]
            assert seen.apart[arm] == pytest.approx(apart @ covariance @ apart, abs=1e-15)


@pytest.mark.brief
@pytest.mark.parametrize("v", [1e-3, 0.3, 10.0, 1000.0])
def test_the_mode_of_a_logistic_posterior_is_scipys(v):
    for mean in np.linspace(-30, 30, 31):
        for reward in (0.0, 0.4, 1.0):
            root = optimize.brentq(
                lambda eta, m=mean, r=reward: eta - m - v * (r - special.expit(eta)),
                mean - v - 1,
                mean + v + 1,
                xtol=1e-14,
            )
            surprise, noise = beliefs._mode(np.float64(mean), np.float64(v), np.float64(reward))
            assert mean + v * surprise == pytest.approx(root, abs=1e-10)
            p = special.expit(root)
            assert noise == pytest.approx(1 / max(p * (1 - p), 1e-7), rel=1e-6)
            single = beliefs._mode(*jnp.float32([mean, v, reward]))[0]
            assert float(single) == pytest.approx(reward - p, abs=2e-6)


@pytest.mark.brief
@pytest.mark.parametrize(
    ("v", "error"), [(1e-4, 1e-6), (0.3, 1e-6), (3.0, 1e-3), (10.0, 0.01), (100.0, 0.16)]
)
def test_a_logistic_reward_leaves_the_mean_and_the_variance_of_the_posterior(v, error):
    """Errors are in posterior deviations; Laplace's approximation is off by .007 at v = .3, .27 at 10."""
    for mean in (-10.0, -2.0, 0.0, 3.0, 10.0):
        for reward in (0.0, 0.4, 1.0):
            eta = mean + np.sqrt(v) * np.linspace(-12, 12, 40_001)
            log = reward * eta - np.logaddexp(0, eta) - (eta - mean) ** 2 / (2 * v)
            weights = special.softmax(log)
            right = weights @ eta
            sd = np.sqrt(weights @ (eta - right) ** 2)
            rise, less = beliefs._moments(np.float64(mean), np.float64(v), np.float64(reward))
            assert abs(mean + v * rise - right) < error * sd
            assert np.sqrt(v) * (1 - less * v) == pytest.approx(sd, rel=1.2 * error)
            single = beliefs._moments(*jnp.float32([mean, v, reward]))
            np.testing.assert_allclose(single, (rise, less), rtol=1e-4, atol=1e-5)


def laplace(x, rewards, within):
    """The mode and the covariance of Laplace's approximation to the posterior of all rewards at once."""

    def loss(theta):
        logits = x @ theta
        return (np.logaddexp(0, logits) - rewards * logits).sum() + (theta**2).sum() / (2 * within**2)

    mode = optimize.minimize(loss, np.zeros(x.shape[1]), tol=1e-12).x
    p = special.expit(x @ mode)
    return mode, linalg.inv((x.T * p * (1 - p)) @ x + np.eye(x.shape[1]) / within**2)


@pytest.mark.brief
def test_a_logistic_belief_is_close_to_one_fit_of_all_rewards():
    """200 rewards, one at a time, are not quite all at once: from Laplace's approximation for all of them,
    means are off by a seventh of a posterior deviation on average, and deviations are .77 to 1.1 times as
    large. From the posterior itself, found by weights of draws, means are off by a tenth."""
    off, ratios, right = [], [], []
    for seed in range(20):
        x, _, _ = history(200, arms=1, seed=seed)
        rng = np.random.default_rng(100 + seed)
        theta = rng.normal(size=DIMS)
        rewards = (rng.random(200) < special.expit(x[:, 0] @ theta)).astype(float)
        state = Belief.before(np.zeros(DIMS), np.ones(DIMS), 0)
        for features, reward in zip(x, rewards, strict=True):
            state = beliefs.observe(beliefs.see(state, features), np.int32(0), reward, 1.0, True)
        mode, covariance = laplace(x[:, 0], rewards, 1.0)
        sds = np.sqrt(np.diag(covariance))
        off += [np.abs(state.mean - mode) / sds]
        ratios += [np.sqrt(np.diag(state.root @ state.root.T)) / sds]
        drawn = mode + rng.normal(size=(4000, DIMS)) @ linalg.cholesky(1.3 * covariance)
        logits = drawn @ x[:, 0].T
        log = (rewards * logits - np.logaddexp(0, logits)).sum(1) - (drawn**2).sum(1) / 2
        log += np.einsum("ni,ij,nj->n", drawn - mode, linalg.inv(covariance), drawn - mode) / 2.6
        right += [np.abs(state.mean - special.softmax(log) @ drawn) / sds]
    assert np.max(off) < 0.5
    assert np.mean(off) < 0.16
    assert np.mean(right) < 0.11
    assert 0.77 < np.min(ratios) < np.max(ratios) < 1.1
    assert 0.95 < np.mean(ratios) < 1.0


def worked(dims, rounds, sd, spread, seed=0):
    """The belief in single precision after many rewards, and the solve in double precision."""
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(rounds, dims)) * spread / np.linalg.norm(spread)).astype(np.float32)
    theta = rng.normal(size=dims) / dims**0.5
    rewards = (x @ theta + sd * rng.normal(size=rounds)).astype(np.float32)

    def step(state, row):
        seen = beliefs.see(state, row[0][None])
        return beliefs.observe(seen, jnp.int32(0), row[1], np.float32(sd**2), False), None

    first = Belief.before(jnp.zeros(dims), jnp.ones(dims), 0)
    state, _ = jax.jit(lambda rows: jax.lax.scan(step, first, rows))((x, rewards))
    mean, covariance = ridge(x.astype(float), rewards.astype(float), 0.0, 1.0, sd)
    root = np.asarray(state.root, float)
    return np.asarray(state.mean, float), root @ root.T, mean, covariance


@pytest.mark.parametrize(
    ("sd", "least"),
    [
        (1.0, 1.0),
        pytest.param(0.01, 1.0, marks=pytest.mark.slow),
        pytest.param(0.1, 1e-3, marks=pytest.mark.slow),
    ],
)
def test_beliefs_in_single_precision_stay_positive_after_many_rewards(sd, least):
    """63 features and 10⁵ rewards; with little noise; and with features of which some hardly vary."""
    mean, covariance, right, exact = worked(63, 100_000, sd, np.geomspace(1, least, 63))
    assert linalg.eigvalsh(covariance)[0] == pytest.approx(linalg.eigvalsh(exact)[0], rel=1e-3)
    np.testing.assert_allclose(covariance, exact, rtol=0, atol=1e-3 * np.abs(exact).max())
    np.testing.assert_allclose(mean, right, rtol=0, atol=1e-4)


@pytest.mark.brief
def test_of_two_exclusive_arms_a_reward_shows_both():
    """With weight 1, each arm's belief is ridge regression on all rows, whichever arms were pulled."""
    numbers = {"mean": 0.4, "within": 0.8, "sd": 0.5}
    policy = bound("co-softelim", 2, 60, exclusive=1.0, **numbers)
    rng = np.random.default_rng(0)
    x, arms, right = rng.normal(size=(60, DIMS)), rng.integers(2, size=60), rng.integers(2, size=60)
    state = policy.begin({}, np.int32(0))
    for features, arm, best in zip(x, arms, right, strict=True):
        state = policy.update({}, policy.see({}, state, features), arm, 1.0 * (arm == best))
    assert state.rewards == 60
    for arm in range(2):
        mean, covariance = ridge(x, 1.0 * (right == arm), **numbers)
        np.testing.assert_allclose(state.mean[arm], mean, rtol=1e-10)
        np.testing.assert_allclose(state.root[arm] @ state.root[arm].T, covariance, rtol=0, atol=1e-13)


def exclusive(weight, reward, logistic=False, arms=4):
    """What is seen of a visitor after some rewards, and the belief after one more, of arm 1."""
    rng = np.random.default_rng(3)
    root = np.eye(DIMS) + 0.2 * rng.normal(size=(arms, DIMS, DIMS))
    belief = Belief(0.3 + 0.2 * rng.normal(size=(arms, DIMS)), root, np.float64(9))
    seen = beliefs.see(belief, rng.normal(size=DIMS))
    return seen, beliefs.observe_all(seen, np.int64(1), reward, 0.25, logistic, weight)


@pytest.mark.brief
@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_a_success_is_a_reward_of_nothing_for_other_arms(weight):
    seen, after = exclusive(weight, 1.0)
    single = beliefs.observe(seen, np.int64(1), 1.0, 0.25, False)
    np.testing.assert_array_equal(after.mean[1], single.mean[1])
    np.testing.assert_array_equal(after.root[1], single.root[1])
    for arm in (0, 2, 3):
        other = beliefs.observe(seen, np.int64(arm), 0.0, 0.25 / weight, False)
        np.testing.assert_allclose(after.mean[arm], other.mean[arm], rtol=1e-12)
        np.testing.assert_allclose(after.root[arm], other.root[arm], rtol=0, atol=1e-12)


@pytest.mark.brief
def test_after_a_failure_other_arms_share_what_is_left():
    """The mean and the variance are those of a mixture: the arm is the right one, or it is not."""
    seen, after = exclusive(1.0, 0.0)
    q = np.maximum(seen.mean, beliefs.LITTLE) * (np.arange(4) != 1)
    q /= q.sum()
    for arm in (0, 2, 3):
        x, v, m = seen.features, seen.variance[arm], seen.mean[arm]
        means = m + v / (v + 0.25) * (np.array([0.0, 1.0]) - m)
        weights = np.array([1 - q[arm], q[arm]])
        mean = weights @ means
        variance = v * 0.25 / (v + 0.25) + weights @ (means - mean) ** 2
        assert x @ after.mean[arm] == pytest.approx(mean)
        assert ((after.root[arm].T @ x) ** 2).sum() == pytest.approx(variance)


@pytest.mark.brief
@pytest.mark.parametrize("logistic", [False, True])
def test_a_weight_of_nothing_says_nothing_of_other_arms(logistic):
    for reward in (0.0, 0.4, 1.0):
        seen, after = exclusive(0.0, reward, logistic)
        single = beliefs.observe(seen, np.int64(1), reward, 0.25, logistic)
        np.testing.assert_array_equal(after.mean, single.mean)
        np.testing.assert_array_equal(after.root, single.root)


@pytest.mark.brief
@pytest.mark.parametrize("logistic", [False, True])
def test_a_failure_moves_the_others_towards_their_share(logistic):
    """Logistic: the mode of w (y log p + (1 − y) log (1 − p)) and the prior, for the share y."""
    seen, after = exclusive(0.5, 0.0, logistic)
    expected = special.expit(seen.mean) if logistic else np.maximum(seen.mean, beliefs.LITTLE)
    q = expected * (np.arange(4) != 1)
    q /= q.sum()
    for arm in (0, 2, 3):
        v, m, y = seen.variance[arm], seen.mean[arm], q[arm]
        mean = m + v / (v + 0.5) * (y - m)
        if logistic:
            mean = optimize.brentq(
                lambda eta, m=m, v=v, y=y: eta - m - v / 2 * (y - special.expit(eta)), -20, 20
            )
        assert seen.features @ after.mean[arm] == pytest.approx(mean, abs=1e-9)


@pytest.mark.brief
@pytest.mark.parametrize("logistic", [False, True])
def test_beliefs_about_exclusive_arms_stay_positive(logistic):
    """Three arms, 20 features and 5000 rewards in single precision."""
    rng, dims = np.random.default_rng(0), 20
    x = rng.normal(size=(5000, dims)).astype(np.float32)
    arms, rewards = rng.integers(3, size=5000), rng.integers(2, size=5000).astype(np.float32)

    def step(state, row):
        seen = beliefs.see(state, row[0])
        return beliefs.observe_all(seen, row[1], row[2], np.float32(0.25), logistic, np.float32(0.5)), None

    first = Belief.before(jnp.zeros(dims), jnp.ones(dims), 3)
    state, _ = jax.jit(lambda rows: jax.lax.scan(step, first, rows))((x, arms, rewards))
    roots = np.asarray(state.root, float)
    assert np.isfinite(np.asarray(state.mean)).all()
    for root in roots:
        widths = linalg.eigvalsh(root @ root.T)
        assert 0 < widths[0] <= widths[-1] < 1


@pytest.mark.brief
def test_hinges_are_always_the_same_and_have_their_variance():
    """Policy files do not store them, so these numbers may never change."""
    slopes, offsets = hinges.drawn(2, 3)
    np.testing.assert_allclose(slopes[:, 0], [1.0184761, 0.5650746, 1.0782351], atol=1e-6)
    np.testing.assert_allclose(offsets, [0.3878720, -0.0617913, -0.0421389], atol=1e-6)
    x = np.random.default_rng(0).normal(size=(5, 4))
    found = hinges.with_hinges(x, 20_000)
    np.testing.assert_array_equal(found[:, :4], x)
    variance = (found[:, 4:] ** 2).sum(1)
    np.testing.assert_allclose(variance, (x**2).sum(1) / 4 + 0.25, rtol=0.1)
    np.testing.assert_array_equal(hinges.with_hinges(x[2], 20_000), found[2])
