"""Quantiles of regret and means of its tail, against SciPy, known distributions and exact values."""

import math

import numpy as np
import pytest
from conftest import assert_z
from scipy import stats

import gradband as gb
from gradband.core.errors import InputError
from gradband.core.statistics import Mean, Quantile, losses_in_tail

pytestmark = pytest.mark.brief

PROBLEM = gb.problems.named("two-point", horizon=20)


def test_intervals_cover_the_true_quantile():
    """In at least 95 % of 2000 samples: a z-score on the number that do not."""
    draws = np.random.default_rng(0).exponential(size=(2000, 400))
    for level in (0.5, 0.95, 0.99):
        truth, found = stats.expon.ppf(level), [Quantile.of(row, level) for row in draws]
        missed = np.mean([not q.low <= truth <= q.high for q in found])
        assert (missed - 0.05) / math.sqrt(0.05 * 0.95 / len(draws)) < 5
        theirs = [np.quantile(row, level, method="inverted_cdf") for row in draws[:20]]
        assert [q.value for q in found[:20]] == theirs


def test_a_small_sample_has_no_upper_end():
    found = Quantile.of(np.arange(50.0), 0.99)
    assert (found.value, found.high) == (49.0, math.inf)
    assert Quantile.of(np.arange(50.0), 0.01).low == -math.inf


def test_the_mean_of_a_tail_is_that_of_the_distribution():
    """Of an exponential variable, the worst share α has the mean 1 − log α."""
    draws = np.random.default_rng(1).exponential(size=100_000)
    for share in (0.01, 0.1, 0.5):
        found = Mean.of(losses_in_tail(draws, share))
        assert_z(found.mean, found.se, 1 - math.log(share))
        several = [Mean.of(losses_in_tail(part, share)) for part in draws.reshape(200, 500)]
        between = np.std([each.mean for each in several])
        assert np.mean([each.se for each in several]) == pytest.approx(between, rel=0.25)


def test_an_evaluation_shows_the_quantiles_that_it_is_asked_for():
    plain = gb.evaluate(["ts", "uniform"], PROBLEM, instances=400)
    found = gb.evaluate(["ts", "uniform"], PROBLEM, instances=400, quantiles=(0.95, 0.99))
    row, record = found["ts"], found.records()[0]
    assert (row.regrets == plain["ts"].regrets).all()
    assert record["regret_q95"] == np.quantile(row.regrets, 0.95, method="inverted_cdf")
    assert record["regret_q95_low"] <= record["regret_q95"] <= record["regret_q95_high"]
    assert found.without("uniform").quantiles == (0.95, 0.99)
    _, table = found.tables()
    assert table.columns.count("95 % interval") == 2
    assert {len(cells) for cells in table.rows} == {len(table.columns)}
    assert len(plain.tables()) == 1
    assert "regret_q95" not in plain.records()[0]
    above = found.difference_in_tail("uniform", "ts", 0.1)
    assert above.mean == pytest.approx(found["uniform"].cvar(0.1).mean - row.cvar(0.1).mean)


def test_quantiles_of_an_exact_distribution():
    """Uniform pulls of two-point arms for n rounds have a binomial regret, with gaps of .2."""
    row = gb.evaluate("uniform", PROBLEM, instances=20_000).rows[0]
    truth = stats.binom(20, 0.5)
    gap = 0.2
    for level in (0.95, 0.99):
        found = row.quantile(level)
        assert found.low - 1e-4 <= gap * truth.ppf(level) <= found.high + 1e-4
    k = np.arange(21)
    exact = min(gap * (t + (truth.pmf(k) * np.maximum(k - t, 0)).sum() / 0.1) for t in k)
    assert_z(row.cvar(0.1).mean, row.cvar(0.1).se, exact)


@pytest.mark.parametrize("level", [0, 1, 1.5, "all", True])
def test_a_level_that_is_none_is_refused(level):
    for call in (gb.evaluate, gb.compare):
        with pytest.raises(InputError, match="quantiles must"):
            call("ts", PROBLEM, quantiles=(level,))
    with pytest.raises(InputError, match="share must"):
        gb.evaluate("ts", PROBLEM, instances=10).rows[0].cvar(level)
