"""Platforms' rules against their published formulas, computed with NumPy and SciPy here."""

import numpy as np
import pytest
from scipy import integrate, stats

import gradband as gb
from gradband.core.special import normal_cdf, psi
from gradband.policies import PlatformTS
from gradband.policies.best_arm import best_probabilities
from gradband.policies.given import parse_policy
from gradband.policies.platform_ts import best_of_normals

pytestmark = pytest.mark.brief


def best(means, sds):
    """Probabilities of being the greatest normal variable, by adaptive quadrature."""
    found = []
    for k in range(len(means)):
        others = [i for i in range(len(means)) if i != k]

        def integrand(z, k=k, others=others):
            x = means[k] + sds[k] * z
            return stats.norm.pdf(z) * np.prod([stats.norm.cdf(x, means[i], sds[i]) for i in others])

        jumps = [z for i in others if abs(z := (means[i] - means[k]) / sds[k]) < 8]
        found.append(integrate.quad(integrand, -8, 8, points=jumps or None, limit=400)[0])
    return np.array(found)


def growthbook(periods):
    """Weights after periods of (users [K], conversions [K]), as its SQL and gbstats define them.

    A period weighs as many users as it has of all variations. A variation's mean is Σ_p w_p ȳ_p, and the
    variance of that Σ_p w_p² s_p² / n_p, where a period with a single user has no variance.
    """
    users = np.array([n for n, _ in periods], float)
    won = np.array([s for _, s in periods], float)
    if (users.sum(0) < 100).any():
        return np.full(users.shape[1], 1 / users.shape[1])
    weight = users.sum(1, keepdims=True) / users.sum()
    mean, error = np.zeros(users.shape[1]), np.zeros(users.shape[1])
    for w, n, s in zip(weight, users, won, strict=True):
        seen = n > 0
        mean[seen] += (w * s / np.maximum(n, 1))[seen]
        several = n > 1
        sample = (s - s**2 / np.maximum(n, 1)) / np.maximum(n - 1, 1)
        error[several] += (w**2 * sample / np.maximum(n, 1))[several]
    precision = np.where(error > 0, 1 / np.maximum(error, 1e-300), 0)
    variance = 1 / (1e-4 + precision)
    p = best(variance * precision * mean, np.sqrt(variance))
    return 0.01 + (1 - 0.01 * len(p)) * p / p.sum()


def played(policy, periods):
    state = policy.begin({}, np.int32(0))
    for pulls, sums in periods:
        state = policy.update_many({}, state, np.asarray(pulls, float), np.asarray(sums, float))
    return state


def test_growthbook_like_gbstats():
    """Periods of 400 users by the weights so far, with three variations; and one without conversions."""
    rng, policy = np.random.default_rng(0), PlatformTS().bind(3, 10_000)
    rates, periods = np.array([0.02, 0.03, 0.05]), [(np.array([133, 133, 134]), np.array([0, 4, 8]))]
    for _ in range(6):
        p = policy.probabilities({}, played(policy, periods))
        np.testing.assert_allclose(p, growthbook(periods), atol=0.004)
        assert p.sum() == pytest.approx(1)
        assert p.min() >= 0.01
        pulls = rng.multinomial(400, p)
        periods.append((pulls, rng.binomial(pulls, rates)))
    first = policy.probabilities({}, played(policy, periods[:1]))
    assert first[0] == pytest.approx(0.5, abs=0.03), "no conversion, no variance: a flat posterior"


def test_growthbook_explores_until_every_arm_has_a_hundred():
    policy = PlatformTS(period=50).bind(2, 1000)
    state = played(policy, [([60, 60], [0, 30]), ([20, 39], [0, 20])])
    np.testing.assert_array_equal(policy.probabilities({}, state), [0.5, 0.5])
    state = policy.update_many({}, state, np.array([20.0, 1.0]), np.array([1.0, 0.0]))
    assert policy.probabilities({}, state)[1] > 0.98
    assert policy.counts(state).pulls.tolist() == [100, 100]


def test_shares_hold_for_a_period():
    """One by one, nothing changes before the period is over; then it does."""
    policy = PlatformTS(rule="statsig", period=7).bind(2, 100)
    state, shares = policy.begin({}, np.int32(0)), []
    for arm in [0, 1, 0, 1, 0, 1, 0, 1]:
        state = policy.update({}, state, arm, float(arm))
        shares.append(policy.probabilities({}, state)[1])
    assert shares[:6] == [0.5] * 6
    assert shares[6] == shares[7] > 0.8


def test_statsig_like_beta_posteriors():
    """Normal in the logit, within .05 of the exact probabilities, and within .01 on average."""
    rng, off = np.random.default_rng(1), []
    for _ in range(100):
        arms = rng.integers(2, 6)
        pulls = rng.integers(100, 5000, arms).astype(float)
        wins = rng.binomial(pulls.astype(int), rng.beta(2, 100, arms)).astype(float)
        policy = PlatformTS(rule="statsig", winner=1.0).bind(int(arms), 10_000)
        p = policy.probabilities({}, played(policy, [(pulls, wins)]))
        off.append(np.abs(p - best_probabilities(1 + wins, 1 + pulls - wins)).max())
    assert max(off) < 0.05
    assert np.mean(off) < 0.01


def test_statsig_winner_takes_all():
    policy = PlatformTS(rule="statsig", winner=0.95).bind(3, 10_000)
    state = played(policy, [([300, 300, 300], [10, 12, 60])])
    assert policy.probabilities({}, state).tolist() == [0, 0, 1]
    later = policy.update_many({}, state, np.array([0.0, 0.0, 900.0]), np.zeros(3))
    assert policy.probabilities({}, later).tolist() == [0, 0, 1], "nothing is collected any more"


def test_windows_split_equally():
    policy = PlatformTS(rule="statsig", window=500).bind(2, 1000)
    state = played(policy, [([100, 100], [0, 50]), ([100, 100], [0, 50])])
    assert policy.probabilities({}, state).tolist() == [0.5, 0.5]
    state = policy.update_many({}, state, np.array([50.0, 50.0]), np.array([0.0, 25.0]))
    assert policy.probabilities({}, state)[1] == 1


def test_functions_like_scipy():
    x = np.linspace(-8, 8, 401)
    np.testing.assert_allclose(normal_cdf(x), stats.norm.cdf(x), atol=1e-7)
    from scipy.special import digamma, polygamma

    y = np.geomspace(0.5, 1e6, 200)
    value, slope = psi(y)
    np.testing.assert_allclose(value, digamma(y), atol=1e-8)
    np.testing.assert_allclose(slope, polygamma(1, y), rtol=1e-8)
    means, sds = np.array([0.0, 0.016, 0.018]), np.array([100.0, 0.002, 0.0004])
    np.testing.assert_allclose(best_of_normals(means, sds), best(means, sds), atol=0.005)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("platform-ts:rule=posthog", "unknown rule of platform-ts 'posthog'"),
        ("platform-ts:period=0", "period of platform-ts must be a whole number of at least 1"),
        ("platform-ts:winner=0.2", r"winner of platform-ts must be a finite number in \[0.5, 1\]"),
    ],
)
def test_other_settings_are_refused(text, told):
    with pytest.raises(gb.InputError, match=told):
        parse_policy(text).bind(2, 100)
