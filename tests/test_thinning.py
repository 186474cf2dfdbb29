"""Promises about past experiments: posterior draws against quadrature, and the check without a model."""

import numpy as np
import pytest
from conftest import assert_z
from scipy.stats import beta, betabinom
from test_fit import drawn

from gradband.core.errors import InputError
from gradband.problems import fitting, past_experiments, priors, shrinkage, thinning

TRUE = priors.Hierarchical(4, 3.0, 147.0, 1000.0)  # what `drawn` draws from
OLD = priors.Beta(4, 0.5, 0.5)  # each observed rate with its noise once more, and nothing that shrinks


def of(*experiments):
    """Experiments from lists of (pulls, successes)."""
    starts = np.concatenate([[0], np.cumsum([len(arms) for arms in experiments])])
    pulls, successes = np.array([arm for arms in experiments for arm in arms], float).T
    return past_experiments.Experiments(starts, pulls, successes)


def test_a_posterior_shrinks_as_quadrature_says():
    past = of([(1000, 30), (1000, 10), (200, 1)])
    means, owner = shrinkage.draw(priors.Hierarchical(3, 3.0, 147.0, 500.0), past, 3, 40_000, 0)
    assert (owner == 0).all()
    level = (np.arange(4000) + 0.5) / 4000 * 0.2
    weights = beta.pdf(level, 3, 147)
    for pulls, ones in zip(past.pulls, past.successes, strict=True):
        weights = weights * betabinom.pmf(ones, pulls, 500 * level, 500 * (1 - level))
    weights /= weights.sum()
    # Arms come in any order: sums of powers of their means do not depend on it.
    for power in (1, 2):
        a = 500 * level[:, None] + past.successes
        b = 500 * (1 - level[:, None]) + past.pulls - past.successes
        truth = (weights[:, None] * beta.moment(power, a, b)).sum()
        sums = (means**power).sum(1)
        assert_z(sums.mean(), sums.std() / 200, truth, 1e-4 * truth)
    assert_z(means[:, 0].mean(), means[:, 0].std() / 200, means.mean(), means.std() / 346)


def test_posteriors_of_uneven_experiments_are_calibrated():
    """Simulation-based calibration: the rank of the truth among posterior draws is uniform."""
    rng = np.random.default_rng(0)
    prior = priors.Hierarchical(4, 3.0, 147.0, 1000.0, spread=0.9, slope=0.5)
    level = rng.beta(3.0, 147.0, (3000, 1))
    kappa = 1000 * (level * 50) ** -0.5 * np.exp(0.9 * rng.normal(size=level.shape))
    means = rng.beta(kappa * level, kappa * (1 - level), (3000, 4))
    wins = rng.binomial(3000, means)
    past = past_experiments.Experiments(np.arange(3001) * 4, np.full(12_000, 3000.0), wins.ravel() * 1.0)
    components = shrinkage.Components.of(prior)
    edges = components.edges(past)
    draws = np.array([components.means(edges, past, rng) for _ in range(99)])
    for statistic in (lambda x: x[..., 0], lambda x: x.std(-1), lambda x: x.max(-1) - x.mean(-1)):
        ranks = (statistic(draws) < statistic(means)).sum(0)
        share = (ranks + rng.random(3000)) / 100
        assert_z(share.mean(), 1 / np.sqrt(12 * 3000), 0.5)
        assert_z((share - 0.5).std() ** 2, np.sqrt(1 / 180 / 3000), 1 / 12)


def test_arms_are_taken_once_and_missing_ones_are_new():
    past = of([(1e9, 1e8), (1e9, 2e8), (1e9, 3e8), (1e9, 4e8)], [(1e9, 5e8), (1e9, 5.1e8)])
    prior = priors.Hierarchical(3, 2.0, 2.0, 400.0)
    means, owner = shrinkage.draw(prior, past, 3, 1000, 0)
    assert sorted({*owner[:2].tolist()}) == [0, 1]
    assert (owner[2:] == owner[:-2]).all(), "one experiment after the other"
    large, small = means[owner == 0], means[owner == 1]
    assert (np.diff(np.sort(large.round(2))) > 0.05).all()
    new = small[~np.isclose(small, 0.5, atol=1e-4) & ~np.isclose(small, 0.51, atol=1e-4)]
    assert 490 <= len(new) <= 500
    assert_z(new.mean(), new.std() / np.sqrt(len(new)), 0.505, 0.01)
    assert new.std() == pytest.approx(0.5 / np.sqrt(401), rel=0.3), "at the same level"


def test_the_likeliest_prior_is_that_of_the_best_fit():
    known, held = drawn(300), drawn(100, seed=1)
    fits = fitting.fit(known, held, 4)
    assert shrinkage.likeliest([entry.prior for entry in reversed(fits)], held) is fits[0].prior
    for entry in fits:
        joint = shrinkage.Components.of(entry.prior).log_joint(held)
        score = np.logaddexp.reduce(joint, axis=1)
        assert score == pytest.approx(entry.held_out, abs=1e-3)
    with pytest.raises(InputError, match="a finite prior has no posterior"):
        shrinkage.Components.of(priors.Finite([[0.1, 0.2]]))


@pytest.mark.parametrize("given", [True, False])
def test_true_promises_hold_and_doubled_noise_is_noticed(given):
    past = drawn(1500, seed=5)
    found = thinning.check(TRUE, past, 4, given)
    assert [check.share for check in found] == [0.1, 0.25, 0.5]
    for check in found:
        assert abs(check.z) < 5
        assert check.experiments == 1500
        assert check.real.se < 0.1 * check.real.mean
    for check in thinning.check(OLD, past, 4, given):
        assert check.z > 5
        assert check.holds is False
        assert check.promised > 1.1 * check.real.mean


def test_the_check_is_exact_where_all_is_known():
    """Without noise the winner is the best arm, whatever is explored."""
    past = of(*[[(2_000_000, 200_000), (2_000_000, 400_000)]] * 3)
    for check in thinning.check(priors.Beta(2, 1.0, 1.0), past, 2):
        assert check.real.mean == pytest.approx(50, abs=0.5)  # of a thousand, over the mean arm
        assert check.promised == pytest.approx(50, abs=0.5)
        assert check.holds is None, "three experiments are too few"


def test_what_cannot_be_checked_is_not():
    assert thinning.check(TRUE, of([(10, 2), (10, 3)]), 3) == (), "too few arms"
    assert thinning.check(TRUE, of([(10, 2.5), (10, 3)]), 2) == (), "nothing to thin"
    assert thinning.check(priors.Finite([[0.1, 0.2]]), of([(10, 2), (10, 3)]), 2) == ()
