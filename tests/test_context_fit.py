"""Linear priors fitted to past experiments with features of arms or of visitors."""

import json
import sys

import numpy as np
import polars
import pytest
from conftest import assert_z
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import multivariate_normal

import gradband as gb
from gradband.cli import main
from gradband.core.errors import InputError
from gradband.problems.context_fit import Padded, log_likelihood
from gradband.problems.context_rows import read
from gradband.problems.past_experiments import USUAL

pytestmark = pytest.mark.brief
MEAN, SD, WITHIN = np.array([-1.5, 0.4, -0.5]), np.array([0.5, 0.2, 0.3]), np.array([0.3, 0.15, 0.4])
CONTEXT = ["age", "device"]


def past(by_arm=False, counts=True, experiments=150, seed=0):
    """Experiments of three arms: with an age and a device each, or seen by visitors of four kinds."""
    rng = np.random.default_rng(seed)
    each, count = (4, 12) if by_arm else (1, 3)
    arm = np.repeat(np.arange(3), each)
    rows = {name: [] for name in ("experiment", "arm", *CONTEXT, "pulls", "successes", "mean", "variance")}
    for experiment in range(experiments):
        theta = MEAN + SD * rng.normal(size=3) + by_arm * WITHIN * rng.normal(size=(3, 3))[arm]
        web = np.tile([0, 0, 1, 1], 3) if by_arm else rng.integers(2, size=3)
        age = np.tile([-1.0, 1, -1, 1], 3) if by_arm else rng.normal(size=3).round(2)
        f = (np.stack([np.ones(count), age, web], axis=1) * theta).sum(1)
        pulls = rng.integers(100, 400, count)
        rows["experiment"] += [f"test {experiment}"] * count
        rows["arm"] += ["ABC"[i] for i in arm]
        rows["age"] += age.tolist()
        rows["device"] += [("app", "web")[i] for i in web]
        rows["pulls"] += pulls.tolist()
        rows["successes"] += rng.binomial(pulls, expit(f)).tolist()
        rows["mean"] += (f + 2 * rng.normal(size=count) / np.sqrt(pulls)).tolist()
        rows["variance"] += [4.0] * count
    left_out = ("mean", "variance") if counts else ("successes",)
    return {name: values for name, values in rows.items() if name not in left_out}


def padded(**how):
    found = read(past(experiments=5, **how), USUAL, tuple(CONTEXT))
    return found, Padded.of(found, np.ones(3))


def covariance(found, e, by_arm):
    """The rows of an experiment, and the prior covariance of their linear functions."""
    rows = slice(found.starts[e], found.starts[e + 1])
    x, arm = found.features[rows], found.arm[rows]
    same = (arm[:, None] == arm) * by_arm
    return rows, x, x @ np.diag(SD**2) @ x.T + same * (x @ np.diag(WITHIN**2) @ x.T)


def parameters(by_arm):
    return np.concatenate([MEAN, np.log(SD), np.log(WITHIN) if by_arm else []])


@pytest.mark.parametrize("by_arm", [False, True])
def test_the_likelihood_of_means_is_that_of_normal_rows(by_arm):
    found, seen = padded(by_arm=by_arm, counts=False)
    for e, value in enumerate(log_likelihood(parameters(by_arm), seen)):
        rows, x, cov = covariance(found, e, by_arm)
        noise = np.diag(4 / found.pulls[rows])
        means = found.successes[rows] / found.pulls[rows]
        np.testing.assert_allclose(
            value, multivariate_normal(x @ MEAN, cov + noise).logpdf(means), rtol=1e-9
        )


def test_the_likelihood_of_successes_is_laplaces():
    """Around the mode of θ, found by another search in another space."""
    found, seen = padded()
    for e, value in enumerate(log_likelihood(parameters(False), seen)):
        rows, x, _ = covariance(found, e, False)
        n, s = found.pulls[rows], found.successes[rows]

        def loss(theta, x=x, n=n, s=s):
            f = x @ theta
            off = (theta - MEAN) / SD
            return -(s * log_expit(f) + (n - s) * log_expit(-f)).sum() + 0.5 * (off**2).sum()

        best = minimize(loss, MEAN, method="BFGS", options={"gtol": 1e-7})
        p = expit(x @ best.x)
        curvature = x.T @ np.diag(n * p * (1 - p)) @ x + np.diag(1 / SD**2)
        log_det = np.linalg.slogdet(curvature)[1] + 2 * np.log(SD).sum()
        np.testing.assert_allclose(value, -best.fun - 0.5 * log_det, atol=1e-6)


def test_laplace_is_near_the_integral():
    table = past(experiments=5)
    found = read(table, USUAL, ("age",))
    plain = Padded.of(found, np.ones(2))
    plain = plain._replace(x=plain.x[:, :, :1])
    theta = -1.5 + 0.5 * np.linspace(-8, 8, 20_001)
    for e, value in enumerate(log_likelihood(np.array([-1.5, np.log(0.5)]), plain)):
        rows = slice(found.starts[e], found.starts[e + 1])
        n, s = found.pulls[rows].sum(), found.successes[rows].sum()
        log = s * log_expit(theta) + (n - s) * log_expit(-theta) - 0.5 * ((theta + 1.5) / 0.5) ** 2
        step = 16 / 20_000 / np.sqrt(2 * np.pi)
        np.testing.assert_allclose(
            value, log.max() + np.log(np.exp(log - log.max()).sum() * step), atol=2e-3
        )


@pytest.mark.parametrize(("by_arm", "counts"), [(False, True), (False, False), (True, False)])
def test_the_truth_is_found(by_arm, counts):
    found = gb.fit(past(by_arm, counts), context=CONTEXT, seed=1)
    assert found.columns == ("intercept", "age", "device=web")
    numbers = found.chosen.numbers
    truth = {"mean of": MEAN, "sd of": SD} | ({"sd within arms of": WITHIN} if by_arm else {})
    assert len(numbers) == 3 * len(truth)
    for what, values in truth.items():
        for column, value in zip(found.columns, values, strict=True):
            fitted = numbers[f"{what} {column}"]
            assert 0 < fitted.se < 0.2
            assert_z(fitted.mean, fitted.se, value)
    prior = found.problem.prior
    assert prior.shares_context == by_arm
    np.testing.assert_allclose(prior.mean, [numbers[f"mean of {name}"].mean for name in found.columns])
    assert found.fits[-1].name == "without features"
    assert found.fits[0].score.mean > found.fits[-1].score.mean
    pool = prior.pool
    assert_z(pool[:, 1].mean(), pool[:, 1].std() / np.sqrt(100), np.mean(past(by_arm, counts)["age"]))


def test_a_fit_is_saved_and_played(tmp_path):
    found = gb.fit(past(experiments=30), context="age,device", arms=4, horizon=50, name="mine")
    paths = found.save(tmp_path)
    problem = gb.problems.load(paths["problem"])
    assert problem.describe() == found.problem.describe()
    assert (problem.arms, problem.horizon, problem.name) == (4, 50, "mine")
    assert gb.problems.fit_of(paths["problem"])[0]["context"] == list(found.columns)
    assert json.loads(json.dumps(found.as_dict()))["context"] == ["intercept", "age", "device=web"]
    rows = gb.evaluate(["lin-softelim:link=logistic", "uniform"], found, instances=50).rows
    assert {row.name for row in rows} == {"lin-softelim:link=logistic", "uniform"}
    assert found.features({"device": "web", "age": 3}) == [1.0, 3.0, 1.0]
    assert found.features({"age": -0.5, "device": "app"}) == [1.0, -0.5, 0.0]
    with pytest.raises(InputError, match="no experiment has device=watch: it is one of device=app"):
        found.features({"device": "watch", "age": 3})
    with pytest.raises(InputError, match="features need values of age, device, not of age"):
        found.features({"age": 3})
    with pytest.raises(InputError, match="no picture"):
        found.plot()


def test_the_command(tmp_path, monkeypatch, capsys):
    polars.DataFrame(past(experiments=20, counts=False)).write_csv(tmp_path / "past.csv")
    words = ["--context", "age,device", "--out", str(tmp_path / "out"), "--json"]
    monkeypatch.setattr(sys, "argv", ["gradband", "fit", str(tmp_path / "past.csv"), *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert not ended.value.code
    assert json.loads(capsys.readouterr().out)["prior"]["kind"] == "linear"
    assert gb.problems.load(str(tmp_path / "out" / "fitted.toml")).prior.dims == 3


def test_repeated_arms_may_be_kinds_of_visitors():
    """Without `context`, fit says that other columns may be features; replay does not take them."""
    rows = past(by_arm=True, experiments=4)
    with pytest.raises(InputError, match=r"earlier row.*features \(age, device\).*\(--context\)$"):
        gb.fit(rows)
    with pytest.raises(InputError, match=r"earlier row.*\(--drop-bad\)$"):
        gb.replay(rows, "ts")
    with pytest.raises(InputError, match=r"earlier row.*\(--drop-bad\)$"):
        gb.fit({name: values for name, values in rows.items() if name not in CONTEXT})


@pytest.mark.parametrize(
    ("changes", "how", "words"),
    [
        ({"age": [None] + [1.0, 2.0] * 14 + [3.0]}, {}, "1 row has no finite number in 'age' \\(1\\)"),
        ({"age": [1.0] * 30}, {}, "not independent"),
        ({"device": [f"model {i}" for i in range(30)]}, {}, "'device' has 30 values: at most 20"),
        ({"successes": [500] * 30}, {}, "whole number from 0 to the pulls .* \\(1, 2, 3, 4, 5, …\\)"),
        ({"pulls": [0] * 30}, {}, "30 rows have no whole number of at least 1 in 'pulls'"),
        ({"arm": ["A"] * 30}, {}, "0 experiments with at least two arms"),
        ({"device": [None] + ["app", "web"] * 14 + ["app"]}, {}, "1 row has nothing in 'device'"),
        ({}, {"context": ["weight"]}, "no column 'weight': it has experiment, arm, age, device, pulls"),
        ({}, {"pulls": "n"}, "no column 'n': it has experiment"),
        ({}, {"context": ["age", "age"]}, "columns must be different"),
        ({}, {"context": ["age", 3]}, "list of columns"),
        ({}, {"add_up": True}, "add_up does not work with context"),
        ({}, {"prior": "pooled"}, "prior does not work with context"),
        ({}, {"afterwards": 9}, "afterwards does not work with contexts"),
    ],
)
def test_wrong_tables_and_settings_are_refused(changes, how, words):
    with pytest.raises(InputError, match=words):
        gb.fit(past(experiments=10) | changes, **({"context": CONTEXT} | how)).problem.describe()
