"""Priors of revenue: fits against closed forms and quadratures, posteriors, reading, and gains told."""

import dataclasses
import json
import math
import sys

import numpy as np
import polars
import pytest
from conftest import assert_z
from scipy import integrate, stats

import gradband as gb
from gradband.cli.main import main
from gradband.core.errors import InputError
from gradband.core.statistics import Mean
from gradband.evaluation import compare_with_defaults, truths
from gradband.evaluation.evaluate import Comparison, Row
from gradband.problems import posteriors, priors, revenue, rewards, shrinkage, thinning
from gradband.problems.past_experiments import Columns, Experiments, load, read, save

pytestmark = pytest.mark.brief

NORMAL = priors.HierarchicalGaussian(4, 10.0, 2.0, 0.5, rewards.Gaussian(12.0))
SHOP = priors.ZeroInflated(4, 6, 194, 800, 40, 0.4, 60, rewards=rewards.ZeroInflated(1.5))


def normal_tests(count, seed, prior=NORMAL, pulls=1000):
    """Experiments with normal rewards."""
    rng, shape = np.random.default_rng(seed), (count, prior.arms)
    means = rng.normal(prior.mean, prior.between, (count, 1)) + rng.normal(0, prior.within, shape)
    each, sd = rng.integers(pulls // 2, 3 * pulls // 2, shape), prior.rewards.sd
    sums = each * rng.normal(means, sd / np.sqrt(each))
    spread = sd**2 * rng.chisquare(each - 1) / (each - 1)
    starts = np.arange(count + 1) * prior.arms
    return Experiments(starts, each.ravel() * 1.0, sums.ravel(), variances=spread.ravel())


def shop_tests(count, seed, prior=SHOP, pulls=3000):
    """Experiments with visitors, some of whom buy."""
    rng, shape = np.random.default_rng(seed), (count, prior.arms)
    level = rng.beta(prior.a, prior.b, (count, 1))
    shares = rng.beta(prior.strength * level, prior.strength * (1 - level), shape)
    amount = prior.amount * np.exp(prior.between * rng.normal(size=(count, 1)))
    amounts = prior.tightness * amount / rng.gamma(prior.tightness + 1, size=shape)
    each = rng.integers(pulls // 2, 3 * pulls // 2, shape)
    buyers = rng.binomial(each, shares).ravel()
    k = prior.rewards.shape
    paid = rng.gamma(k, np.repeat(amounts.ravel() / k, buyers))
    owner = np.repeat(np.arange(len(buyers)), buyers)
    sums, squares = (np.bincount(owner, x, len(buyers)) for x in (paid, paid**2))
    each = each.ravel() * 1.0
    spread = (squares - sums**2 / each) / (each - 1)
    starts = np.arange(count + 1) * prior.arms
    return Experiments(starts, each, sums, variances=spread, buyers=buyers * 1.0)


# Fits.

TRUE_NORMAL = {"mean": 10.0, "sd within an experiment": 0.5, "sd between experiments": 2.0}
TRUE_NORMAL |= {"sd of rewards": 12.0}
TRUE_SHOP = {
    "share of buyers": 0.03,
    "sd of shares between experiments": math.sqrt(0.03 * 0.97 / 201),
    "sd of shares within an experiment": math.sqrt(0.03 * 0.97 * 200 / 201 / 801),
    "mean amount": 40 * math.exp(0.08),
    "sd of log amounts between experiments": 0.4,
    "tightness of amounts within": 60.0,
    "shape of amounts": 1.5,
}


def assert_recovered(numbers, truth):
    assert set(numbers) == set(truth)
    for name, value in truth.items():
        assert abs(numbers[name].mean - value) < 3 * numbers[name].se, name
        assert numbers[name].se < 0.05 * value, name


def test_a_hierarchical_gaussian_prior_is_recovered():
    fit = revenue.normal("hierarchical-gaussian", normal_tests(2000, 0), normal_tests(50, 99), 4)
    assert_recovered(fit.numbers, TRUE_NORMAL)
    assert fit.prior.rewards.sd == fit.numbers["sd of rewards"].mean


@pytest.mark.slow
def test_standard_errors_are_those_of_repeated_samples():
    """Of 12 samples of 2000 experiments: all z-scores, and the mean of the squares of each parameter's."""
    for make, name, tests, truth in (
        (revenue.normal, "hierarchical-gaussian", normal_tests, TRUE_NORMAL),
        (revenue.zero_inflated, "zero-inflated", shop_tests, TRUE_SHOP),
    ):
        fits = [make(name, tests(2000, seed), tests(20, 99), 4).numbers for seed in range(12)]
        z = np.array([[(fit[key].mean - truth[key]) / fit[key].se for key in truth] for fit in fits])
        assert (np.abs(z) < 4).all()
        assert ((z**2).sum(0) < stats.chi2.isf(1e-4, 12)).all()
        assert ((z**2).sum(0) > stats.chi2.ppf(1e-4, 12)).all()


def test_amounts_are_recovered():
    """The part of the zero-inflated fit that `test_fit` does not test, on fewer experiments."""
    found = shop_tests(500, 0)
    shape = revenue.shape_of_amounts(found)
    assert abs(shape.mean - 1.5) < 3 * shape.se < 0.05
    x, covariance = revenue._fit_amounts(found, shape.mean, 40.0)
    truth = np.array([0.0, math.log(0.4), math.log(60.0)])
    assert (np.abs(x - truth) < 3 * np.sqrt(np.diag(covariance))).all()


def test_balanced_experiments_have_the_closed_form_of_random_effects():
    """Maximum likelihood of a one-way layout, from its mean squares."""
    rng, count, arms, noise = np.random.default_rng(3), 60, 5, 0.3
    means = (
        rng.normal(7, 2, (count, 1)) + rng.normal(0, 1, (count, arms)) + rng.normal(0, 0.3, (count, arms))
    )
    pulls = np.full(count * arms, 100.0)
    found = Experiments(
        np.arange(count + 1) * arms, pulls, 100 * means.ravel(), variances=100 * noise**2 + 0 * pulls
    )
    fit = revenue.normal("hierarchical-gaussian", found, found, arms)
    level = means.mean(1, keepdims=True)
    inside = ((means - level) ** 2).sum() / (count * (arms - 1))
    outside = ((level - means.mean()) ** 2).mean()
    truth = (means.mean(), math.sqrt(outside - inside / arms), math.sqrt(inside - noise**2))
    prior = fit.prior
    assert (prior.mean, prior.between, prior.within) == pytest.approx(truth, rel=1e-4)
    assert fit.numbers["mean"].se == pytest.approx(math.sqrt(outside / count), rel=1e-3)
    # And the likelihood is that of a normal vector, in the user's unit.
    covariance = prior.between**2 + np.diag(np.full(arms, prior.within**2 + noise**2))
    exact = stats.multivariate_normal(np.full(arms, prior.mean), covariance).logpdf(means)
    np.testing.assert_allclose(fit.held_out, exact, rtol=1e-6)
    np.testing.assert_allclose(shrinkage.log_likelihood(prior, found), exact, rtol=1e-6)


def test_uneven_experiments_have_the_likelihood_of_a_normal_vector():
    found = Experiments(
        np.array([0, 3, 5]),
        np.array([50.0, 200.0, 10.0, 500.0, 90.0]),
        np.array([400.0, 2100.0, 70.0, 4000.0, 1000.0]),
        variances=np.array([90.0, 150.0, 0.0, 100.0, 120.0]),
    )
    seen = revenue.Observed.of(found, 9.0, 3.0)
    value = revenue.normal_likelihood(np.array([0.2, math.log(0.3), math.log(0.6)]), seen)
    noise = revenue.noise_of(found) / found.pulls
    assert noise[2] > 0, "no arm is certain"
    for e, (first, last) in enumerate(((0, 3), (3, 5))):
        total = np.diag(0.9**2 + noise[first:last]) + 1.8**2
        means = (found.successes / found.pulls)[first:last]
        exact = stats.multivariate_normal(np.full(last - first, 9.6), total).logpdf(means)
        assert value[e] - (last - first) * math.log(3.0) == pytest.approx(exact, rel=1e-9)


def by_quadrature(found, amount, between, tightness, shape):
    """The likelihood of an experiment's sums: over each arm's mean amount, and over their level."""

    def arm(n, s, level):
        def inside(log_mean):
            # Gamma(n k) with the mean n m, times the density of log m, whose inverse is a gamma variable
            m, total, scale = math.exp(log_mean), n * shape, tightness * level
            known = total * math.log(shape * s / m) - shape * s / m - math.lgamma(total) - math.log(s)
            belief = (tightness + 1) * math.log(scale / m) - scale / m - math.lgamma(tightness + 1)
            return math.exp(known + belief)

        middle = math.log(level)
        return integrate.quad(inside, middle - 4, middle + 4, points=[middle, math.log(s / n)], limit=400)[
            0
        ]

    def whole(e):
        level = amount * math.exp(between * e)
        arms = zip(found.buyers, found.successes, strict=True)
        return stats.norm.pdf(e) * math.prod(arm(n, s, level) for n, s in arms if n)

    nodes = np.linspace(-5, 5, 61)  # of a smooth function that vanishes at both ends: no error to speak of
    return math.log(sum(map(whole, nodes)) * (nodes[1] - nodes[0]))


def test_the_likelihood_of_amounts_is_that_of_a_quadrature():
    found = Experiments(
        np.array([0, 3]),
        np.full(3, 100.0),
        np.array([340.0, 900.0, 0.0]),
        variances=np.ones(3),
        buyers=np.array([9.0, 20.0, 0.0]),
    )
    amount, between, tightness, shape, scale = 35.0, 0.4, 8.0, 1.5, 20.0
    x = np.array([math.log(amount / scale), math.log(between), math.log(tightness)])
    exact = by_quadrature(found, amount, between, tightness, shape)
    assert revenue.amounts_likelihood(x, found, shape, scale)[0] == pytest.approx(exact, abs=1e-4)
    prior = priors.ZeroInflated(
        3, 6, 94, 50, amount, between, tightness, rewards=rewards.ZeroInflated(shape)
    )
    purchases = posteriors.posterior_of(prior)
    joint = np.logaddexp.reduce(purchases.log_joint(found), axis=1)[0]
    assert joint == pytest.approx(exact, abs=1e-4)


def test_the_shape_of_amounts_is_right_for_sums_of_others():
    """By moments: log-normal amounts are noisier than their likelihood as gamma variables says."""
    rng = np.random.default_rng(0)
    buyers = np.full(600, 100.0)
    paid = rng.lognormal(3.0, 1.0, (600, 100))
    sums, squares = paid.sum(1), (paid**2).sum(1)
    found = Experiments(
        np.arange(301) * 2, buyers, sums, variances=(squares - sums**2 / 100) / 99, buyers=buyers
    )
    shape = revenue.shape_of_amounts(found)
    assert_z(1 / shape.mean, shape.se / shape.mean**2, math.e - 1, truth_se=0.05)
    same = dataclasses.replace(found, variances=np.zeros(600), successes=100 * buyers)
    assert revenue.shape_of_amounts(same).mean == revenue.LARGEST_SHAPE


def test_the_family_follows_from_the_data():
    shop, held = shop_tests(30, 1), shop_tests(10, 2)
    names = [entry.name for entry in revenue.fit(shop, held, 4)]
    assert sorted(names) == ["varying-zero-inflated", "zero-inflated"]
    names = [entry.name for entry in revenue.fit(shop, held, 4, "hierarchical-gaussian")]
    assert sorted(names) == ["gaussian", "hierarchical-gaussian"]
    few = revenue.fit(shop.only(np.arange(8)), held.only(np.arange(4)), 4)
    assert [entry.name for entry in few] == ["zero-inflated"]
    with pytest.raises(InputError, match="needs the number of buyers"):
        revenue.fit(normal_tests(20, 1), normal_tests(5, 2), 4, "zero-inflated")


# Posteriors.


def test_draws_of_normal_experiments_are_those_of_bayes():
    found = normal_tests(2, 5).with_arms(np.array([0, 3, 5]), np.array([0, 1, 2, 4, 5]))
    means, owner = shrinkage.draw(NORMAL, found, 3, 60_000, 0)
    noise = revenue.noise_of(found)[:3] / found.pulls[:3]
    prior = NORMAL.between**2 + NORMAL.within**2 * np.eye(3)
    gain = prior @ np.linalg.inv(prior + np.diag(noise))
    mean = 10 + gain @ (found.successes[:3] / found.pulls[:3] - 10)
    covariance = prior - gain @ prior
    own = means[owner == 0]
    # Arms come in random order: what does not depend on it.
    assert_z(own.mean(), own.mean(1).std() / np.sqrt(len(own)), mean.mean())
    spread = own.mean(1).var()
    assert_z(spread, spread * np.sqrt(2 / len(own)), covariance.sum() / 9)
    squares = (own**2).mean(1)
    assert_z(squares.mean(), squares.std() / np.sqrt(len(own)), (np.diag(covariance) + mean**2).mean())
    # The second experiment has two arms; the third is a new one, as the others say.
    other = means[owner == 1]
    seen = found.successes[3:] / found.pulls[3:]
    prior = NORMAL.between**2 + NORMAL.within**2 * np.eye(2)
    weights = np.linalg.solve(prior + np.diag(revenue.noise_of(found)[3:] / found.pulls[3:]), seen - 10)
    new = 10 + NORMAL.between**2 * weights.sum()
    old = 10 + prior @ weights
    assert_z(other.mean(), other.mean(1).std() / np.sqrt(len(other)), (old.sum() + new) / 3)


def test_draws_of_purchases_shrink_amounts_as_a_quadrature_says():
    found = shop_tests(1, 5).with_arms(np.array([0, 2]), np.array([0, 1]))
    found = dataclasses.replace(found, buyers=np.array([4.0, 60.0]), successes=np.array([300.0, 2600.0]))
    drawn, _ = shrinkage.draw(SHOP, found, 2, 40_000, 0)
    e = np.linspace(-6, 6, 2001)[:, None]
    level, (n, s) = 40 * np.exp(0.4 * e), (found.buyers, found.successes)
    k, tau = 1.5, 60.0
    # S is a multiple of a beta prime variable, as the ratio of two gamma variables.
    chance = stats.norm.pdf(e[:, 0]) * stats.betaprime.pdf(s, n * k, tau + 1, scale=tau * level / k).prod(1)
    means = (tau * level + k * s) / (tau + n * k)
    truth = (chance / chance.sum()) @ means.sum(1)
    sums = drawn[:, 1].sum(1)
    assert_z(sums.mean(), sums.std() / np.sqrt(len(sums)), truth)
    assert ((drawn[:, 0] > 0) & (drawn[:, 0] < 1)).all()


@pytest.mark.parametrize(
    ("prior", "make"), [(NORMAL, normal_tests), (SHOP, shop_tests)], ids=["normal", "shop"]
)
@pytest.mark.parametrize("given", [True, False])
def test_promises_are_kept_where_the_prior_is_true(prior, make, given):
    for check in thinning.check(prior, make(150, 8), 4, given):
        assert abs(check.z) < 4
        assert check.real.mean > 3 * check.real.se


def test_a_wrong_prior_is_found_out():
    wrong = dataclasses.replace(NORMAL, within=1.5)
    assert not any(check.holds for check in thinning.check(wrong, normal_tests(150, 8), 4, given=False))


# Reading.


def as_frame(found, names=("pulls", "mean", "variance", "successes")):
    columns = {
        "experiment": found.owner,
        "arm": np.arange(len(found.pulls)) - found.starts[:-1][found.owner],
    }
    columns |= {"pulls": found.pulls.astype(int), "mean": found.successes / found.pulls}
    columns |= {"variance": found.variances, "successes": found.buyers}
    return polars.DataFrame({name: columns[name] for name in ("experiment", "arm", *names)})


def test_means_and_variances_are_read_and_stored(tmp_path):
    found = shop_tests(6, 1)
    whole = read(as_frame(found), Columns(mean="mean"))
    without = read(as_frame(found, ("pulls", "mean", "variance")))
    for name in ("starts", "pulls", "successes", "variances", "buyers"):
        np.testing.assert_allclose(getattr(whole, name), getattr(found, name), rtol=1e-9)
    assert without.buyers is None
    np.testing.assert_allclose(without.variances, found.variances, rtol=1e-9)
    save(tmp_path / "file", {"fitted": whole, "held-out": without})
    np.testing.assert_array_equal(load(tmp_path / "file", "fitted").buyers, whole.buyers)
    again = load(tmp_path / "file", "held-out")
    assert again.buyers is None
    np.testing.assert_array_equal(again.variances, without.variances)
    # Successes come first, unless means are asked for.
    counted = read(as_frame(found))
    assert counted.variances is None
    assert counted.successes.tolist() == found.buyers.tolist()


def test_single_rewards_and_days_are_added_up():
    rng = np.random.default_rng(0)
    rows = polars.DataFrame(
        {
            "experiment": np.repeat(np.arange(5), 400),
            "arm": np.tile(["x", "y"], 1000),
            "reward": np.where(rng.random(2000) < 0.3, 1e4 + rng.gamma(2.0, 10.0, 2000), 0),
        }
    )
    found = read(rows)
    cells = (
        rows.group_by("experiment", "arm")
        .agg(
            polars.col("reward").sum().alias("sum"),
            polars.col("reward").var().alias("variance"),
            (polars.col("reward") > 0).sum().alias("successes"),
        )
        .sort("experiment", "arm")
    )
    np.testing.assert_allclose(found.successes, cells["sum"], rtol=1e-12)
    np.testing.assert_allclose(found.variances, cells["variance"], rtol=1e-9)
    assert found.buyers.tolist() == cells["successes"].to_list()
    assert "is not 0 and 1, and fitted as revenue; " in found.notes[0]
    days = (
        rows.with_columns(day=polars.int_range(2000) // 4 % 7)
        .group_by("experiment", "arm", "day")
        .agg(
            polars.len().alias("pulls"),
            polars.col("reward").mean().alias("mean"),
            polars.col("reward").var().fill_null(0).alias("variance"),
        )
    )
    with pytest.raises(InputError, match="of an earlier row"):
        read(days)
    daily = read(days.sort("experiment", "arm"), add_up=True)
    np.testing.assert_allclose(daily.variances, found.variances, rtol=1e-9)
    negative = rows.with_columns(reward=polars.col("reward") - 5.0)
    assert read(negative).buyers is None
    first = polars.int_range(2000) == 0
    one_typo = rows.with_columns(
        reward=polars.when(first).then(11.0).otherwise((polars.col("reward") > 0).cast(float))
    )
    with pytest.raises(InputError, match=r"1 row has reward outside \[0, 1\]"):
        read(one_typo)
    assert read(one_typo, any_size=True).variances.max() > 0.25


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"variance": -1.0}, r"1 row has negative pulls or variance \(1\)"),
        ({"variance": None}, r"1 row has no variance \(1\)"),
        ({"mean": -1.0}, r"1 row has a mean that is negative, or without successes \(1\)"),
        ({"successes": 1e9}, r"1 row has negative successes, or more than pulls \(1\)"),
        ({"successes": 0}, r"1 row has a mean that is negative, or without successes \(1\)"),
    ],
)
def test_faults_of_rows_are_named(change, words):
    frame = as_frame(shop_tests(4, 1))
    ((name, value),) = change.items()
    first = polars.int_range(polars.len()) == 0
    wrong = frame.with_columns(polars.when(first).then(value).otherwise(polars.col(name)).alias(name))
    with pytest.raises(InputError, match=words):
        read(wrong, Columns(mean="mean"))
    assert len(read(wrong, Columns(mean="mean"), drop=True)) == 4


def test_settings_that_do_not_belong_together_are_refused():
    shop = as_frame(shop_tests(8, 1))
    for given, words in (
        ({"mean": "mean", "prior": "pooled"}, "a pooled prior is not for rewards of any size"),
        ({"prior": "zero-inflated"}, "a zero-inflated prior is not for rewards from 0 to 1"),
        ({"unit": "€"}, "successes have none"),
        ({"mean": "mean", "arms_matter": True}, "needs rewards from 0 to 1"),
        ({"mean": "revenue"}, "has no column 'revenue'"),
    ):
        with pytest.raises(InputError, match=words):
            gb.fit(shop, **given)
    same = shop.with_columns(variance=0.0)
    with pytest.raises(InputError, match="the same reward for all pulls"):
        gb.fit(same, mean="mean")


# From a file to a gain.


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A problem of revenue, as the command writes it."""
    folder = tmp_path_factory.mktemp("revenue")
    as_frame(shop_tests(60, 3), ("pulls", "mean", "variance", "successes")).write_csv(folder / "shop.csv")
    words = ["--mean", "mean", "--unit", "€", "--horizon", "600", "--pulls-per-round", "200"]
    words += ["--prior", "zero-inflated", "--arms", "3", "--out", str(folder)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["gradband", "fit", str(folder / "shop.csv"), *words])
        with pytest.raises(SystemExit) as stopped:
            main()
    assert stopped.value.code == 0
    return folder


def test_a_fitted_problem_of_revenue_is_a_file(fitted):
    problem = gb.problems.load(str(fitted / "fitted.toml"))
    assert problem.prior.kind == problem.prior.rewards.kind == "zero-inflated"
    assert problem.pulls_per_round == 200
    fit, _ = gb.problems.fit_of(str(fitted / "fitted.toml"))
    assert fit["unit"] == "€"
    result = json.loads((fitted / "result.json").read_text())
    assert result["unit"] == "€"
    assert result["rewards"]["kind"] == "zero-inflated"


def test_every_situation_has_arms_of_its_own(fitted, monkeypatch):
    problem, (fit, folder) = (
        gb.problems.load(str(fitted / "fitted.toml")),
        gb.problems.fit_of(str(fitted / "fitted.toml")),
    )

    def played(policies, problem, instances, **how):
        arms = problem.prior.instances[:instances].astype(float)
        rows = [Row(name, np.zeros(instances), (arms[:, 0] * arms[:, 1]).mean(1), 0.0) for name in policies]
        return Comparison(tuple(rows))

    monkeypatch.setattr(compare_with_defaults, "evaluate", played)
    monkeypatch.setattr(truths, "SHIFTS_OF_REVENUE", {"rewards 50 % lower": 0.5})
    assert [
        prior.label for prior in compare_with_defaults.other_priors(fit, folder, problem.prior.rewards)
    ] == ["varying zero-inflated"]
    found = {
        entry.name: entry
        for entry in compare_with_defaults.measure(
            None, problem, fit | {"others": []}, folder, instances=1500
        )
    }
    shifts = truths.SHIFTS_OF_REVENUE
    assert set(found) == {compare_with_defaults.HELD_OUT, compare_with_defaults.AS_FITTED, *shifts}
    usual = found[compare_with_defaults.AS_FITTED].reward("uniform")
    assert_z(usual.mean, usual.se, problem.prior.as_normal().mean)
    assert found["rewards 50 % lower"].reward("uniform").mean == pytest.approx(usual.mean / 2, rel=1e-5)
    held = found[compare_with_defaults.HELD_OUT]
    assert held.unit == "€"
    known = load(folder / fit["file"], "held-out")
    assert held.experiments == len(known)
    own = np.bincount(held.owner, held.table["uniform"].rewards) / np.bincount(held.owner)
    rates = np.add.reduceat(known.successes / known.pulls, known.starts[:-1]) / known.sizes
    assert np.corrcoef(own, rates)[0, 1] > 0.9
    assert [check.share for check in held.check] == [0.1, 0.25, 0.5]


def test_rivals_of_revenue_know_its_scale(fitted):
    problem = gb.problems.load(str(fitted / "fitted.toml"))
    found = compare_with_defaults.rivals([problem.prior])
    normal = problem.prior.as_normal()
    names = [name.partition(":")[0] for name in found]
    assert names == ["uniform", "split", "split", "ucb1", "ts-gaussian"]
    assert found[list(found)[3]].scale == pytest.approx(2 * normal.rewards.sd, rel=1e-3)
    assert found[list(found)[4]].between == pytest.approx(normal.between, rel=1e-3)
    for name, policy in found.items():
        assert gb.policies.given.parse_policy(name) == policy


def test_gains_are_told_in_their_unit():
    noise, owner = np.random.default_rng(0).normal(0, 20, 400), np.arange(400) % 50

    def situation(**means):
        rows = [Row(name, np.zeros(400), mean + noise, 0.0) for name, mean in means.items()]
        return compare_with_defaults.Situation(
            compare_with_defaults.HELD_OUT, 2000, Comparison(tuple(rows)), owner, unit="€"
        )

    told = compare_with_defaults.in_words([situation(learned=110.0, uniform=100.0)])
    assert " € per test of 2000 pulls: 10." in told
    assert "% more (5.000 ± 0.000 € per thousand pulls) than the best of the others" in told
    lost = situation(learned=-90.0, uniform=-100.0)
    assert math.isnan(lost.percent("uniform").mean)
    assert "pulls: 5.000 ± 0.000 € per thousand pulls more than" in compare_with_defaults.in_words([lost])
    worse = situation(learned=90.0, uniform=100.0)
    assert "% less (5.000" in compare_with_defaults.in_words([worse])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "shop"])
def test_pages_and_plans_know_revenue(kind, tmp_path, monkeypatch, capsys):
    make, more = (normal_tests, []) if kind == "normal" else (shop_tests, ["successes"])
    frame = as_frame(make(60, 3), ("pulls", "mean", "variance", *more))
    fit = gb.fit(frame, mean="mean", unit="€", horizon=600, pulls_per_round=200, arms=3, progress=False)
    fit.save(tmp_path)
    file, page = str(tmp_path / "fitted.toml"), tmp_path / "page.html"
    words = ["--iterations", "2", "--instances", "100", "--compare-on", "200", "--out", str(tmp_path)]
    learn = ["learn", file, *words, "--report", str(page)]
    plan = ["plan", file, "--arms", "2,3", "--policy", "softelim", "--instances", "100"]
    for given in (learn, [*plan, "--json", "--out", str(tmp_path)]):
        monkeypatch.setattr(sys, "argv", ["gradband", *given])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code, capsys.readouterr().err
    text = page.read_text(encoding="utf-8")
    assert "€ per test" in text
    assert "Thompson sampling with normal beliefs" in text
    assert "successes" not in text
    cells = json.loads((tmp_path / "result.json").read_text())["cells"]
    assert [cell["arms"] for cell in cells] == [2, 3]
    with pytest.raises(InputError, match="a replay needs rewards from 0 to 1"):
        gb.replay(frame, "softelim", fit, mean="mean")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "shop"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_promised_gain_comes_true_on_fresh_experiments(kind, seed, tmp_path):
    """The promise for held-out experiments, and what the same policy gains where the truth is known."""
    prior, make = (NORMAL, normal_tests) if kind == "normal" else (SHOP, shop_tests)
    frame = as_frame(
        make(1000, 50 + seed), ("pulls", "mean", "variance", *["successes"] * (kind == "shop"))
    )
    horizon, batch = (4000, 200) if kind == "normal" else (12_000, 600)
    fit = gb.fit(frame, mean="mean", horizon=horizon, pulls_per_round=batch, seed=seed, progress=False)
    fit.save(tmp_path)
    learned = gb.learn("softelim", fit.problem, seed=seed)
    table, folder = gb.problems.fit_of(str(tmp_path / "fitted.toml"))
    found = compare_with_defaults.measure(learned, fit.problem, table, folder, instances=4000, seed=seed)
    held = next(entry for entry in found if entry.name == compare_with_defaults.HELD_OUT)
    entries = {"learned": learned, held.rival: gb.policies.given.parse_policy(held.rival)}
    fresh = gb.evaluate(entries, fit.problem.replace(prior=prior), instances=20_000, seed=1000 + seed)
    true = Mean.of(1000 / horizon * (fresh["learned"].rewards - fresh[held.rival].rewards))
    promised = held.gain(held.rival)
    assert abs(promised.mean - true.mean) < 2 * math.hypot(promised.se, true.se)
