"""Power and type I error of a test of two arms, against enumerations that SciPy does."""

import itertools

import numpy as np
import pytest
from scipy.stats import beta, betabinom, binom, hypergeom, norm

import gradband as gb
from gradband.exact import power
from gradband.policies import Counts, SoftElim

pytestmark = pytest.mark.brief
LIMIT = norm.isf(0.025)


def declared(pulls0, pulls1, limit=LIMIT):
    """By (s₀, s₁), whether the textbook's z-test declares a difference."""
    found = np.zeros((pulls0 + 1, pulls1 + 1), bool)
    for s0, s1 in itertools.product(range(pulls0 + 1), range(pulls1 + 1)):
        pooled = (s0 + s1) / (pulls0 + pulls1)
        if min(pulls0, pulls1) and 0 < pooled < 1:
            z = (s0 / pulls0 - s1 / pulls1) / np.sqrt(pooled * (1 - pooled) * (1 / pulls0 + 1 / pulls1))
            found[s0, s1] = abs(z) > limit
    return found


def enumerated(pulls0, pulls1, a, b, limit=LIMIT):
    """Power and type I error for arms from Beta(a, b), the latter by Gauss's rule over the mean."""
    s0, s1 = np.arange(pulls0 + 1)[:, None], np.arange(pulls1 + 1)[None]
    found = declared(pulls0, pulls1, limit)
    x, weights = np.polynomial.legendre.leggauss(200)
    x, weights = (x + 1) / 2, weights / 2
    same = sum(
        w * beta.pdf(mean, a, b) * binom.pmf(s0, pulls0, mean) * binom.pmf(s1, pulls1, mean)
        for mean, w in zip(x, weights, strict=True)
    )
    apart = betabinom.pmf(s0, pulls0, a, b) * betabinom.pmf(s1, pulls1, a, b)
    return (found * apart).sum(), (found * same).sum()


def problem(horizon, a=2.0, b=5.0):
    return gb.Problem(gb.priors.Beta(2, a, b), horizon)


@pytest.mark.parametrize(("horizon", "level"), [(41, 0.05), (60, 0.2), (2, 0.5)])
def test_equal_splits_like_an_enumeration(horizon, level):
    found = power.of_equal_split(problem(horizon), level)
    halves = (horizon + 1) // 2, horizon // 2
    assert (found.power, found.type_1) == pytest.approx(
        enumerated(*halves, 2.0, 5.0, norm.isf(level / 2)), abs=1e-9
    )


def test_equal_splits_of_a_mixture():
    """Each component contributes with its weight, in power and in type I error."""
    mixed = gb.priors.Mixture(2, [0.3, 0.7], [2.0, 40.0], [5.0, 40.0])
    found = power.of_equal_split(gb.Problem(mixed, 30))
    parts = [enumerated(15, 15, 2.0, 5.0), enumerated(15, 15, 40.0, 40.0)]
    assert (found.power, found.type_1) == pytest.approx(np.array([0.3, 0.7]) @ parts, abs=1e-8)


def test_long_splits_are_at_their_level():
    """For many pulls the z-test is as good as exact, and power is as for a normal difference."""
    found = power.of_equal_split(problem(20_000, 20.0, 980.0))
    assert found.type_1 == pytest.approx(0.05, abs=0.002)
    means = np.random.default_rng(0).beta(20, 980, (100_000, 2))
    spread = np.sqrt((means * (1 - means)).sum(1) / 10_000)
    z = (means[:, 0] - means[:, 1]) / spread
    share = norm.sf(LIMIT - z) + norm.cdf(-LIMIT - z)
    assert found.power == pytest.approx(share.mean(), abs=5 * share.std() / 300)


def test_tails_are_hypergeometric():
    t, start = np.array([5, 30, 30, 60]), np.array([4, 0, 20, 41])
    tails = power._tail(t, start, 50, 40)
    np.testing.assert_allclose(tails, hypergeom.sf(start - 1, 90, t, 50), rtol=1e-9, atol=1e-15)


def test_policies_like_all_histories():
    """Every sequence of six arms and rewards, with the probabilities of SoftElim in NumPy."""
    n, policy = 6, SoftElim(theta=0.5)
    bound, params = policy.bind(2, n), {"theta": np.float64(0.5)}
    chances: dict[tuple[int, ...], float] = {}

    def walk(pulls, sums, p):
        t = pulls.sum()
        if t == n:
            key = (*pulls.astype(int), *sums.astype(int))
            chances[key] = chances.get(key, 0) + p
            return
        log_probs = bound.next_log_probs(params, Counts(pulls, sums), int(t))
        for arm, reward in itertools.product(range(2), range(2)):
            step = np.eye(2)[arm]
            if np.exp(log_probs[arm]) > 0:
                walk(pulls + step, sums + reward * step, p * np.exp(log_probs[arm]))

    walk(np.zeros(2), np.zeros(2), 1.0)
    limit = norm.isf(0.25)
    both = np.zeros(2)
    for (t0, t1, s0, s1), weight in chances.items():
        if declared(t0, t1, limit)[s0, s1]:
            scale = binom.pmf(s0, t0, 0.5) * 2**t0 * binom.pmf(s1, t1, 0.5) * 2**t1
            apart = betabinom.pmf(s0, t0, 2, 5) * betabinom.pmf(s1, t1, 2, 5) / scale
            same = betabinom.pmf(s0 + s1, n, 2, 5) / (binom.pmf(s0 + s1, n, 0.5) * 2**n)
            both += weight * np.array([apart, same])
    found = power.of_policy(policy, problem(n), level=0.5)
    assert (found.power, found.type_1) == pytest.approx(tuple(both), abs=1e-9)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (gb.Problem(gb.priors.Beta(3), 10), "arms of a test of a difference must be a whole number"),
        (gb.Problem(gb.priors.Beta(2), 500), "at most 100 pulls are feasible, not 500"),
        (gb.Problem(gb.priors.Beta(2), 50, pulls_per_round=10), "needs rewards one by one"),
        (gb.Problem(gb.priors.Finite([[0.2, 0.4]]), 50), "has no posterior"),
    ],
)
def test_what_cannot_be_enumerated_is_refused(given, told):
    with pytest.raises(gb.InputError, match=told):
        power.of_policy("softelim", given)
