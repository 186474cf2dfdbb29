"""The gain of a learned policy over the usual ones, told before it is deployed."""

import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z
from every_policy import learned
from scipy.stats import beta, betabinom, binom
from test_fit import as_csv, drawn

import gradband as gb
from gradband import problems
from gradband.cli.learn import show_gain
from gradband.cli.main import main
from gradband.core import statistics
from gradband.core.errors import InputError
from gradband.evaluation import compare_with_defaults, gain, truths
from gradband.evaluation.evaluate import Comparison, Row
from gradband.policies import Counts
from gradband.policies.given import parse_policy
from gradband.problems import past_experiments, priors, thinning

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
            main()
    return folder / "fitted.toml"


def situation(name, owner=None, **rewards):
    """A situation in which policies have these rewards, each with noise that all of them share."""
    noise = np.random.default_rng(0).normal(0, 20, 400)
    own = np.random.default_rng(1).normal(0, 1, 400)
    rows = [
        Row(policy, np.zeros(400), mean + noise + own * (i == 0), 0.0)
        for i, (policy, mean) in enumerate(rewards.items())
    ]
    return compare_with_defaults.Situation(name, 2000, Comparison(tuple(rows)), owner)


MANY = np.arange(400) % 50


def test_gains_are_paired_and_told_in_words():
    held = situation(compare_with_defaults.HELD_OUT, MANY, learned=110.0, ts=100.0, uniform=90.0)
    assert held.rival == "ts"
    assert_z(held.gain("ts").mean, held.gain("ts").se, 5.0)
    assert held.gain("uniform").se == pytest.approx(0.5 / 20, rel=0.3), "what all share is no noise"
    ratio = 100 * (held.reward("learned").mean / held.reward("ts").mean - 1)
    assert held.percent("ts").mean == pytest.approx(ratio)
    worse = situation("rates 50 % lower", learned=50.0, ts=52.0)
    told = compare_with_defaults.in_words([held, worse])
    assert f"{ratio:.2f} ± 0.10 % more (4.959 ± " in told
    assert "per thousand pulls) than the best of the others (ts)" in told
    assert "than an equal split throughout" in told
    assert "at worst (rates 50 % lower) it has 4.0" in told
    assert "(1.041 ± 0.023 per thousand pulls)" in told
    assert "don't bother" not in told


@pytest.mark.parametrize(("own", "word"), [(100.15, "more"), (80.0, "fewer")])
def test_a_policy_that_gains_nothing_is_called_so(own, word):
    held = situation(compare_with_defaults.HELD_OUT, MANY, learned=own, ts=100.0)
    told = compare_with_defaults.in_words([held])
    assert "don't bother, use ts" in told
    assert f" % {word} (" in told
    assert (held.gain("ts").mean > 0) == (word == "more")


def test_instances_of_an_experiment_are_one_witness():
    """300 experiments of 8 instances each, the gain being the experiment's own but for little."""
    rng, owner = np.random.default_rng(0), np.arange(2400) % 300
    own = rng.normal(3, 1, 300)
    errors = [statistics.clustered(rng.normal(0, 1, 300)[owner] + 0, owner) for _ in range(400)]
    z = np.array([found.mean / found.se for found in errors])
    # The variance of 400 z-scores has a standard error of √(2 / 400): |z| < 5.
    assert abs(z.var() - 1) < 5 * np.sqrt(2 / 400)
    found = statistics.clustered(own[owner] + rng.normal(0, 0.1, 2400), owner)
    assert found.se == pytest.approx(own.std() / np.sqrt(300), rel=0.05)
    assert found.se > 2.5 * compare_with_defaults.Mean.of(own[owner]).se


@pytest.mark.parametrize("count", [1, 3, 9])
def test_few_experiments_prove_nothing(count):
    held = situation(compare_with_defaults.HELD_OUT, np.arange(400) % count, learned=110.0, ts=100.0)
    assert not held.conclusive
    told = compare_with_defaults.in_words([held])
    assert f"Only {count} experiments were held out: too few to conclude" in told
    assert "more" not in told
    assert not np.isnan(held.gain("ts").se)


def test_rivals_are_named_as_compare_names_them():
    fitted = [priors.Hierarchical(3, 2.36347, 143.0787, 1381.4462), priors.Beta(3, 2.0698, 129.867)]
    found = compare_with_defaults.rivals(fitted)
    for name, policy in found.items():
        assert parse_policy(name) == policy
        assert "," not in name
    usual = {"uniform", "split", "split:share=0.25", "ts", "ucb1"}
    usual |= {"platform-ts", "platform-ts:rule=statsig"}
    level = "hierarchical-ts:a=2.363+b=143.1+strength=1381"
    assert set(found) == {*usual, "ts:a=2.07+b=129.9", level}
    assert set(compare_with_defaults.rivals([priors.Mixture(3, [1.0], [2.0], [3.0])])) == usual


def test_every_situation_has_its_own_instances(fitted, tmp_path, monkeypatch):
    """Held-out experiments are those held out, which here differ from those fitted beyond doubt."""
    problem, fit = problems.load(str(fitted)), problems.fit_of(str(fitted))[0]
    other = drawn(30, a=50.0, b=50.0, strength=60.0, arms=3, pulls=400, seed=9)
    known = past_experiments.load(fitted.parent / fit["file"], "fitted")
    past_experiments.save(tmp_path / fit["file"], {"fitted": known, "held-out": other})

    def played(policies, problem, instances, **how):
        means = problem.prior.instances[:instances].astype(float)
        assert problem.prior.fresh().size == instances
        rows = [Row(name, np.zeros(instances), means.mean(1), 0.0) for name in policies]
        return Comparison(tuple(rows))

    monkeypatch.setattr(compare_with_defaults, "evaluate", played)
    found = {
        entry.name: entry
        for entry in compare_with_defaults.measure(None, problem, fit, tmp_path, instances=300)
    }
    others = {"a mixture prior", "a beta prior", "a varying prior"}
    assert set(found) == {
        compare_with_defaults.AS_FITTED,
        compare_with_defaults.HELD_OUT,
        *others,
        *truths.SHIFTS,
    }
    held = found[compare_with_defaults.HELD_OUT]
    assert (held.experiments, len(held.owner)) == (30, 300)
    rates = np.add.reduceat(other.successes / other.pulls, other.starts[:-1]) / 3
    own = np.bincount(held.owner, held.table["learned"].rewards) / 10
    assert np.abs(own - rates).max() < 0.1, "each instance is of the experiment it is said to be"
    assert own.mean() > 0.45, "those fitted have rates near 0.1"
    usual = found[compare_with_defaults.AS_FITTED].reward("ts")
    assert_z(usual.mean, usual.se, problem.prior.a / (problem.prior.a + problem.prior.b))
    assert found["rates 50 % lower"].reward("ts").mean == pytest.approx(usual.mean / 2, rel=1e-5)
    assert [check.share for check in held.check] == [0.1, 0.25, 0.5]
    assert "The promise " in compare_with_defaults.in_words([held])


def test_a_gain_is_the_same_from_a_fit_and_from_its_file(tmp_path, monkeypatch):
    """Both have the same problem, the same other priors and the same experiments held out."""
    asked = []

    def measured(learned, problem, known, **how):
        others, held_out, unit = known
        assert not unit
        numbers = held_out.starts.tolist(), held_out.pulls.tolist(), held_out.successes.tolist()
        asked.append((problem.describe(), [prior.describe() for prior in others], *numbers))
        assert (how["instances"], how["seed"]) == (40, 1)
        same = {"learned": 110.0, "ts": 100.0}
        own = situation(compare_with_defaults.AS_FITTED, **same)
        return [situation(compare_with_defaults.HELD_OUT, MANY, **same), own]

    monkeypatch.setattr(gain, "measure_on", measured)
    fit = gb.fit(as_csv(tmp_path / "tests.csv", drawn(15, arms=2, pulls=300)), horizon=20, held_out=0.4)
    file = fit.save(tmp_path)["problem"]
    for source in (fit, file, tmp_path / "fitted.toml"):
        found = gb.gain("softelim", source, instances=40, seed=1)
        assert found.in_words() == found.as_dict()["words"]
        assert repr(found).startswith("Gain(+4.9")
    assert asked[0] == asked[1] == asked[2]
    assert len(asked[0][1]) == 1


def test_a_long_test_is_measured_on_fewer_instances():
    usual = priors.Beta(4)
    short, long = gb.Problem(usual, 40), gb.Problem(usual, 20_000, pulls_per_round=200)
    assert compare_with_defaults.affordable(short, 10_000) == 10_000
    assert 1000 <= compare_with_defaults.affordable(long, 10_000) < 2500
    assert compare_with_defaults.affordable(long, 300) == 300


@pytest.mark.slow
def test_learn_tells_the_gain(fitted, tmp_path, monkeypatch, capsys):
    words = ["--policy", "kl-softelim", "--iterations", "5", "--instances", "200", "--compare-on", "500"]
    monkeypatch.setattr(
        sys, "argv", ["gradband", "learn", str(fitted), *words, "--out", str(tmp_path), "--json"]
    )
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0
    result = json.loads(capsys.readouterr().out)
    assert result["optimum"] is None
    found = {entry["situation"]: entry for entry in result["gain"]}
    assert found[compare_with_defaults.HELD_OUT]["experiments"] == 24
    for entry in found.values():
        rows = {row["name"]: row for row in entry["policies"]}
        assert {"learned", "uniform", "split", "split:share=0.25", "ts", "ucb1"} < set(rows)
        assert {"platform-ts", "platform-ts:rule=statsig"} < set(rows)
        assert len(rows) == 10
        assert entry["best_rival"] != "learned"
        assert rows["learned"]["gain"] is None
        more = 1000 / 40 * (rows["learned"]["reward"]["mean"] - rows["ucb1"]["reward"]["mean"])
        assert rows["ucb1"]["gain"]["mean"] == pytest.approx(more, rel=1e-4)
        assert rows["ucb1"]["gain"]["se"] > 0
    for name in (compare_with_defaults.HELD_OUT, compare_with_defaults.AS_FITTED):
        assert all(check["holds"] for check in found[name]["check"])
    low, middle, high = (
        found[name]["policies"][0]["reward"]["mean"]
        for name in ("rates 50 % lower", "as fitted", "rates 50 % higher")
    )
    assert low < middle < high
    again = gb.gain(tmp_path / "policy.safetensors", fitted, instances=500, certify=0.5)
    standing = again.standing
    assert standing.optimum is None
    assert 0 < standing.bound.regret < standing.table["ts"].regret.mean
    assert standing.between.keys() >= {"learned", "ts"}
    assert "As fitted: Its regret is " in again.in_words()
    assert "of the way from ts to the optimum. No policy has a regret below" in again.in_words()
    assert [entry.as_dict() for entry in again.situations] == result["gain"], "in Python it is the same"


def test_the_tables_of_a_gain_can_be_read(capsys):
    owner = np.arange(400) % 50
    usual = compare_with_defaults.Mean(2.0, 0.1)
    check = thinning.Check(0.25, 50, usual, 2.5, compare_with_defaults.Mean(0.5, 0.1))
    held = dataclasses.replace(
        situation(compare_with_defaults.HELD_OUT, owner, learned=110.0, ts=100.0, uniform=90.0),
        check=(check,),
    )
    show_gain([held, situation(compare_with_defaults.AS_FITTED, learned=120.0, ts=100.0, uniform=90.0)])
    seen = capsys.readouterr().out
    for words in (
        "On 50 held-out experiments",
        "uniform",
        "25 %",
        "2.50",
        "as fitted",
        "no",
        "is off: where 25 %",
    ):
        assert words in seen


def test_held_out_experiments_are_not_those_that_were_fitted(tmp_path):
    """Here their rates are four times as high, and so is what every policy has there."""
    rates = {"fitted": 0.1, "held-out": 0.4}
    parts = {
        part: past_experiments.Experiments(np.arange(31) * 2, np.full(60, 1e5), np.full(60, 1e5 * rate))
        for part, rate in rates.items()
    }
    past_experiments.save(tmp_path / "experiments.safetensors", parts)
    problem = gb.Problem(priors.Beta(2, 1000.0, 9000.0), 8)
    fit = {"file": "experiments.safetensors", "others": []}
    found = compare_with_defaults.measure(
        learned("softelim", arms=2, horizon=8), problem, fit, tmp_path, instances=40
    )
    rewards = {situation.name: [row.reward.mean / 8 for row in situation.table.rows] for situation in found}
    np.testing.assert_allclose(rewards["as fitted"], 0.1, rtol=0.1)
    np.testing.assert_allclose(rewards["held-out experiments"], 0.4, rtol=0.1)


def test_thompson_sampling_with_a_level():
    # With a level that is known, arms are independent: κ ℓ = κ (1 − ℓ) = 1 is a flat prior.
    known = gb.policies.HierarchicalTS(a=1e6, b=1e6, strength=2.0).bind(2, 60)
    counts = Counts(jnp.array([10.0, 30.0]), jnp.array([4.0, 20.0]))
    keys = jax.random.split(jax.random.key(0), 20_000)
    means = np.asarray(jax.jit(jax.vmap(lambda key: known.sampled(key, counts, 1)[0]))(keys), float)
    for arm, (a, b) in enumerate([(5, 7), (21, 11)]):
        assert_z(means[:, arm].mean(), means[:, arm].std() / 141, a / (a + b), 1e-5)
    assert abs(np.corrcoef(means.T)[0, 1]) < 0.04
    # One that is not known is learned from the arms together: the posterior, by quadrature.
    unknown = gb.policies.HierarchicalTS(a=2.0, b=8.0, strength=8.0).bind(2, 60)
    means = np.asarray(jax.jit(jax.vmap(lambda key: unknown.sampled(key, counts, 1)[0]))(keys), float)
    level = (np.arange(2000) + 0.5) / 2000
    weights = beta.pdf(level, 2, 8)
    for pulls, ones in ((10, 4), (30, 20)):
        weights = weights * betabinom.pmf(ones, pulls, 8 * level, 8 * (1 - level))
    weights /= weights.sum()
    for arm, (pulls, ones) in enumerate(((10, 4), (30, 20))):
        truth = (weights * (8 * level + ones) / (8 + pulls)).sum()
        assert_z(means[:, arm].mean(), means[:, arm].std() / 141, truth, 1e-4)


def test_thompson_sampling_with_a_level_after_many_pulls():
    """As in a headline test, where differences of log Γ of large numbers count."""
    policy = gb.policies.HierarchicalTS(a=2.36, b=143.0, strength=1381.0).bind(2, 20_000)
    pulls, ones = np.array([9000.0, 6000.0]), np.array([140.0, 80.0])
    keys = jax.random.split(jax.random.key(0), 20_000)
    counts = Counts(jnp.asarray(pulls, jnp.float32), jnp.asarray(ones, jnp.float32))
    means = np.asarray(jax.jit(jax.vmap(lambda key: policy.sampled(key, counts, 1)[0]))(keys), float)
    level = np.linspace(1e-4, 0.06, 3000)
    log_weights = beta.logpdf(level, 2.36, 143.0)
    log_weights += betabinom.logpmf(ones, pulls, 1381 * level[:, None], 1381 * (1 - level[:, None])).sum(1)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    rng = np.random.default_rng(0)
    chosen = rng.choice(level, 400_000, p=weights)[:, None]
    truth = rng.beta(1381 * chosen + ones, 1381 * (1 - chosen) + pulls - ones)
    for one, other in ((means, truth), (means[:, :1] > means[:, 1:], truth[:, :1] > truth[:, 1:])):
        found, wanted = one.mean(0), other.mean(0)
        assert_z(found, one.std(0) / np.sqrt(len(one)), wanted, other.std(0) / np.sqrt(len(other)))


def test_thompson_sampling_with_a_level_and_an_uneven_spread():
    """Beside self-normalised importance sampling from the prior, in sampling and in the player."""
    numbers = {"a": 2.0, "b": 8.0, "strength": 30.0, "spread": 1.0, "slope": 0.5}
    policy = gb.policies.HierarchicalTS(**numbers).bind(2, 100)
    pulls, ones = np.array([40.0, 25.0]), np.array([20.0, 5.0])
    counts = Counts(jnp.asarray(pulls, jnp.float32), jnp.asarray(ones, jnp.float32))
    keys = jax.random.split(jax.random.key(0), 20_000)
    means = np.asarray(jax.jit(jax.vmap(lambda key: policy.sampled(key, counts, 1)[0]))(keys), float)
    rng = np.random.default_rng(0)
    level = rng.beta(2.0, 8.0, (400_000, 1))
    kappa = 30 * (level * 5) ** -0.5 * np.exp(rng.normal(size=level.shape))
    weights = np.exp(betabinom.logpmf(ones, pulls, kappa * level, kappa * (1 - level)).sum(1))
    drawn = rng.beta(kappa * level + ones, kappa * (1 - level) + pulls - ones)
    for one, other in ((means[:, 0], drawn[:, 0]), (means[:, 1] > means[:, 0], drawn[:, 1] > drawn[:, 0])):
        truth = np.average(other, weights=weights)
        se = np.sqrt((weights**2 * (other - truth) ** 2).sum()) / weights.sum()
        assert_z(one.mean(), one.std() / np.sqrt(len(one)), truth, se + 1e-3)
    p = policy.probabilities({}, Counts(pulls, ones))
    assert_z(p[1], 0, truth, se + 1e-3)


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
    one, other = (
        np.asarray(jax.jit(jax.vmap(prior.sample))(keys)) for prior in (base, priors.Scaled(base, 1.5))
    )
    assert other == pytest.approx(np.minimum(1.5 * one, 1.0))
    level = priors.Gaussian(2, 3.0)
    one, other = (np.asarray(prior.sample(keys[0])) for prior in (level, priors.Scaled(level, 1.5)))
    assert other == pytest.approx(1.5 * one), "rewards of any size are not capped"
    with pytest.raises(InputError, match="can be scaled"):
        priors.Scaled(priors.Table(np.zeros((2, 2, 2))), 0.5)
