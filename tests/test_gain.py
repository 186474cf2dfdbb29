"""The gain of a learned policy over the usual ones, told before it is deployed."""

import json
import sys

import numpy as np
import pytest
from conftest import assert_z
from test_fit import as_csv, drawn

import gradband as gb
from gradband import cli, gain, priors, problems
from gradband.errors import InputError
from gradband.evaluation import Mean
from gradband.learned import Learned


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A fitted problem: 3 arms, 1000 pulls in batches of 50."""
    folder = tmp_path_factory.mktemp("fit")
    path = as_csv(folder / "tests.csv", drawn(120, a=8.0, b=72.0, strength=60.0, arms=3, pulls=400))
    with pytest.MonkeyPatch.context() as patch:
        words = ["--horizon", "1000", "--batch", "50", "--prior", "hierarchical", "--out", str(folder)]
        patch.setattr(sys, "argv", ["gradband", "fit", str(path), *words])
        with pytest.raises(SystemExit):
            cli.main()
    return folder / "fitted.toml"


def measured(fitted, policy, params=None):
    problem = problems.load(str(fitted))
    bound = policy.bind(problem.arms, problem.horizon)
    learned = Learned(bound, params or bound.init(None), {}, {})
    return gain.measure(learned, problem, *problems.fit_of(str(fitted)), instances=1000, seed=1)


def test_all_situations_are_measured_and_gains_are_paired(fitted):
    found = measured(fitted, gb.policies.KLSoftElim(), {"theta": 0.1, "a": 1.0, "b": 1.0})
    names = [situation.name for situation in found]
    assert names[:2] == ["as fitted", "held-out experiments"]
    assert names[-2:] == ["rates 50 % lower", "rates 50 % higher"]
    assert {"a resampled prior", "a mixture prior", "a beta prior"} <= set(names)
    held = found[1]
    own, flat = held.table["learned"].rewards, held.table["ts, flat"].rewards
    assert held.gain("ts, flat").mean == pytest.approx((own - flat).mean())
    assert held.gain("ts, flat").se < Mean.of(own).se / 2
    low, usual, high = (found[i].table["learned"].reward.mean for i in (-2, 0, -1))
    assert low < usual < high
    assert "thousand pulls than Thompson sampling with a flat prior" in gain.in_words(found)


def test_whoever_gains_nothing_is_told_not_to_bother(fitted):
    assert "don't bother" in gain.in_words(measured(fitted, gb.policies.Uniform()))
    good = measured(fitted, gb.policies.KLSoftElim(), {"theta": 0.1, "a": 1.0, "b": 1.0})
    better = good[1].gain(good[1].rival)
    assert ("don't bother" in gain.in_words(good)) == (better.mean < 2 * better.se)


def test_learn_tells_the_gain(fitted, tmp_path, monkeypatch, capsys):
    words = ["--policy", "kl-softelim", "--iterations", "5", "--batch", "200", "--instances", "500"]
    monkeypatch.setattr(
        sys, "argv", ["gradband", "learn", str(fitted), *words, "--out", str(tmp_path), "--json"]
    )
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 0
    result = json.loads(capsys.readouterr().out)
    assert result["optimum"] is None
    rows = {row["name"]: row for row in result["gain"][1]["policies"]}
    assert set(rows) == {"learned", "ts, flat", "ts, fitted", "ucb1", "split, winner"}
    assert rows["learned"]["gain"] is None
    assert rows["ucb1"]["gain"]["se"] > 0


def test_thompson_sampling_takes_the_best_prior_that_it_can_use():
    level, pooled = priors.Hierarchical(3, 2.0, 98.0, 500.0), priors.Beta(3, 2.0, 98.0)
    past = priors.Resampled(3, [0, 2], [10, 10], [1, 2])
    assert gain.informed([past, level, pooled]).name == "hierarchical-ts"
    assert gain.informed([past, pooled, level]) == gb.policies.ThompsonSampling(a=2.0, b=98.0)
    with pytest.raises(InputError, match="none of the fitted priors"):
        gain.informed([past])


def test_hierarchical_sampling_with_a_wide_level_is_thompson_sampling():
    # With a level that is known, arms are independent: κ ℓ = κ (1 − ℓ) = 1 is a flat prior.
    problem = problems.named("uniform-2", horizon=60)
    known = gb.policies.HierarchicalTS(a=1e6, b=1e6, strength=2.0)
    table = gb.evaluate({"level": known, "ts": gb.policies.ThompsonSampling()}, problem, instances=20_000)
    assert_z(
        table["level"].regret.mean, table["level"].regret.se, table["ts"].regret.mean, table["ts"].regret.se
    )


def test_knowing_the_level_pays_where_arms_are_alike():
    prior = priors.Hierarchical(4, a=2.0, b=8.0, strength=8.0)
    problem = gb.Problem(prior, horizon=100)
    level = gb.policies.HierarchicalTS(a=2.0, b=8.0, strength=8.0)
    table = gb.evaluate(
        {"level": level, "ts": gb.policies.ThompsonSampling()}, problem, instances=20_000, seed=1
    )
    difference = table.difference("ts", "level")
    assert difference.mean > 5 * difference.se


def test_a_split_commits_to_who_won_it():
    problem = problems.named("two-point", horizon=20)
    found = gb.evaluate(gb.policies.Split(share=0.5), problem, instances=40_000, seed=2).rows[0].reward
    # Ten pulls at random, then ten of the arm with the greater mean; by going through all outcomes.
    from scipy.stats import binom

    right = 0.0
    for k in range(11):
        share = binom.pmf(k, 10, 0.5)
        wins, others = np.arange(k + 1), np.arange(11 - k)
        means = wins / max(k, 1), others / max(10 - k, 1)
        mass = np.outer(binom.pmf(wins, k, 0.6), binom.pmf(others, 10 - k, 0.4))
        gap = means[0][:, None] - means[1][None]
        right += share * (mass * ((gap > 0) + 0.5 * (gap == 0))).sum()
    assert_z(found.mean, found.se, 10 * 0.5 + 10 * (0.4 + 0.2 * right))


def test_scaled_rates_are_scaled():
    import jax

    base = priors.Beta(2, 2.0, 3.0)
    keys = jax.random.split(jax.random.key(0), 1000)
    one, other = (np.asarray(jax.vmap(prior.sample)(keys)) for prior in (base, priors.Scaled(base, 1.5)))
    assert other == pytest.approx(np.minimum(1.5 * one, 1.0))
    with pytest.raises(InputError, match="can be scaled"):
        priors.Scaled(priors.Gaussian(2), 0.5)
