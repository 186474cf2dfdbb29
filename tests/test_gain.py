"""The gain of a learned policy over the usual ones, told before it is deployed."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z
from laws import learned
from scipy.stats import beta, betabinom, binom
from test_fit import as_csv, drawn

import gradband as gb
from gradband import cli, data, gain, priors, problems
from gradband.errors import InputError
from gradband.evaluation import Comparison, Row
from gradband.policies import Counts

pytestmark = pytest.mark.brief


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A fitted problem: 3 arms, 40 pulls."""
    folder = tmp_path_factory.mktemp("fit")
    path = as_csv(folder / "tests.csv", drawn(120, a=8.0, b=72.0, strength=60.0, arms=3, pulls=400))
    with pytest.MonkeyPatch.context() as patch:
        words = ["--horizon", "40", "--prior", "hierarchical", "--out", str(folder)]
        patch.setattr(sys, "argv", ["gradband", "fit", str(path), *words])
        with pytest.raises(SystemExit):
            cli.main()
    return folder / "fitted.toml"


def situation(name, **rewards):
    """A situation in which policies have these rewards, each with noise that all of them share."""
    noise = np.random.default_rng(0).normal(0, 20, 400)
    own = np.random.default_rng(1).normal(0, 1, 400)
    rows = [
        Row(policy.replace("_", " "), np.zeros(400), mean + noise + own * (i == 0), 0.0)
        for i, (policy, mean) in enumerate(rewards.items())
    ]
    return gain.Situation(name, 2000, Comparison(tuple(rows)))


def test_gains_are_paired_and_told_in_words():
    held = situation("held-out experiments", learned=110.0, **{"ts, flat": 100.0, "ucb1": 90.0})
    assert held.rival == "ts, flat"
    assert_z(held.gain("ts, flat").mean, held.gain("ts, flat").se, 5.0)
    assert held.gain("ucb1").se == pytest.approx(0.5 / 20, rel=0.1), "what all share is no noise"
    worse = situation("rates 50 % lower", learned=50.0, **{"ts, flat": 52.0})
    told = gain.in_words([held, worse])
    assert "4.959 ± 0.023 more a thousand pulls" in told
    assert "than Thompson sampling with a flat prior" in told
    assert "at worst (rates 50 % lower) it has 1.041 ± 0.023 fewer" in told
    assert "don't bother" not in told


@pytest.mark.parametrize("own", [100.05, 80.0])
def test_whoever_gains_nothing_is_told_not_to_bother(own):
    held = situation("held-out experiments", learned=own, **{"ts, flat": 100.0})
    assert "don't bother" in gain.in_words([held])


@pytest.mark.slow
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
    found = {entry["situation"]: entry["policies"] for entry in result["gain"]}
    others = {"a resampled prior", "a mixture prior", "a beta prior"}
    assert set(found) == {"as fitted", "held-out experiments", *others, *gain.SHIFTS}
    for policies in found.values():
        rows = {row["name"]: row for row in policies}
        assert set(rows) == {"learned", "ts, flat", "ts, fitted", "ucb1", "split, winner"}
        assert rows["learned"]["gain"] is None
        more = 1000 / 40 * (rows["learned"]["reward"]["mean"] - rows["ucb1"]["reward"]["mean"])
        assert rows["ucb1"]["gain"]["mean"] == pytest.approx(more, rel=1e-4)
        assert rows["ucb1"]["gain"]["se"] > 0
    usual = {name: found[name][0]["reward"]["mean"] for name in ("as fitted", *gain.SHIFTS)}
    low, middle, high = (usual[name] for name in ("rates 50 % lower", "as fitted", "rates 50 % higher"))
    assert low < middle < high


def test_held_out_experiments_are_not_those_that_were_fitted(tmp_path):
    """Here their rates are four times as high, and so is what every policy has there."""
    rates = {"fitted": 0.1, "held-out": 0.4}
    parts = {
        part: data.Experiments(np.arange(31) * 2, np.full(60, 1e5), np.full(60, 1e5 * rate))
        for part, rate in rates.items()
    }
    data.save(tmp_path / "experiments.safetensors", parts)
    problem = gb.Problem(priors.Beta(2, 1000.0, 9000.0), 8)
    fit = {"file": "experiments.safetensors", "others": []}
    found = gain.measure(learned("softelim", arms=2, horizon=8), problem, fit, tmp_path, instances=40)
    rewards = {situation.name: [row.reward.mean / 8 for row in situation.table.rows] for situation in found}
    np.testing.assert_allclose(rewards["as fitted"], 0.1, rtol=0.1)
    np.testing.assert_allclose(rewards["held-out experiments"], 0.4, rtol=0.1)


def test_thompson_sampling_takes_the_best_prior_that_it_can_use():
    level, pooled = priors.Hierarchical(3, 2.0, 98.0, 500.0), priors.Beta(3, 2.0, 98.0)
    past = priors.Resampled(3, [0, 2], [10, 10], [1, 2])
    assert gain.informed([past, level, pooled]).name == "hierarchical-ts"
    assert gain.informed([past, pooled, level]) == gb.policies.ThompsonSampling(a=2.0, b=98.0)
    with pytest.raises(InputError, match="none of the fitted priors"):
        gain.informed([past])


def test_thompson_sampling_with_a_level():
    # With a level that is known, arms are independent: κ ℓ = κ (1 − ℓ) = 1 is a flat prior.
    known = gb.policies.HierarchicalTS(a=1e6, b=1e6, strength=2.0).bind(2, 60)
    counts = Counts(jnp.array([10.0, 30.0]), jnp.array([4.0, 20.0]))
    keys = jax.random.split(jax.random.key(0), 20_000)
    means = np.asarray(jax.vmap(lambda key: known.sampled(key, counts, 1)[0])(keys), float)
    for arm, (a, b) in enumerate([(5, 7), (21, 11)]):
        assert_z(means[:, arm].mean(), means[:, arm].std() / 141, a / (a + b), 1e-5)
    assert abs(np.corrcoef(means.T)[0, 1]) < 0.04
    # One that is not known is learned from the arms together: the posterior, by quadrature.
    unknown = gb.policies.HierarchicalTS(a=2.0, b=8.0, strength=8.0).bind(2, 60)
    means = np.asarray(jax.vmap(lambda key: unknown.sampled(key, counts, 1)[0])(keys), float)
    level = (np.arange(2000) + 0.5) / 2000
    weights = beta.pdf(level, 2, 8)
    for pulls, ones in ((10, 4), (30, 20)):
        weights = weights * betabinom.pmf(ones, pulls, 8 * level, 8 * (1 - level))
    weights /= weights.sum()
    for arm, (pulls, ones) in enumerate(((10, 4), (30, 20))):
        truth = (weights * (8 * level + ones) / (8 + pulls)).sum()
        assert_z(means[:, arm].mean(), means[:, arm].std() / 141, truth, 1e-4)


def test_a_split_commits_to_who_won_it():
    problem = problems.named("two-point", horizon=20)
    found = gb.evaluate(gb.policies.Split(share=0.5), problem, instances=40_000, seed=2).rows[0].reward
    # Ten pulls at random, then ten of the arm with the greater mean; by going through all outcomes.
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
    base = priors.Beta(2, 2.0, 3.0)
    keys = jax.random.split(jax.random.key(0), 1000)
    one, other = (np.asarray(jax.vmap(prior.sample)(keys)) for prior in (base, priors.Scaled(base, 1.5)))
    assert other == pytest.approx(np.minimum(1.5 * one, 1.0))
    with pytest.raises(InputError, match="can be scaled"):
        priors.Scaled(priors.Gaussian(2), 0.5)
