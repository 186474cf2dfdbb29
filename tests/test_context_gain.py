"""The gain of a policy on past experiments with features: draws of posteriors, checks, what comes true."""

import json
import sys

import numpy as np
import pytest
from conftest import assert_z
from scipy.special import expit
from test_context_fit import CONTEXT, MEAN, SD, WITHIN, past

import gradband as gb
from gradband.cli import main
from gradband.core.errors import InputError
from gradband.core.statistics import Mean
from gradband.evaluation import compare_with_defaults, decision, evaluate, truths
from gradband.problems import context_check, context_draws, priors
from gradband.problems import rewards as laws
from gradband.problems.context_posterior import Posterior
from gradband.problems.context_rows import read
from gradband.problems.past_experiments import USUAL

pytestmark = pytest.mark.brief
KINDS = np.array([[1.0, -1, 0], [1, 1, 0], [1, -1, 1], [1, 1, 1]])


def true_prior(by_arm, counts=True, own=None):
    """The prior of `past`."""
    law = laws.Bernoulli() if counts else laws.Gaussian(2.0)
    if by_arm:
        return priors.LinearByArm(3, 3, MEAN, WITHIN, between=SD, pool=KINDS, rewards=law)
    rng = np.random.default_rng(0)
    pool = np.stack([np.ones(2000), rng.normal(size=2000), rng.integers(2, size=2000)], axis=1)
    return priors.Linear(3, 3, MEAN, SD, pool=pool, own=own, rewards=law)


def few_pulls(by_arm, counts, seed=0):
    """Experiments with so few pulls that what they say is far from normal."""
    table = past(by_arm, counts, 4, seed)
    rng, rows = np.random.default_rng(seed), len(table["pulls"])
    table["pulls"] = rng.integers(1, 12, rows).tolist()
    if counts:
        table["successes"] = [
            min(s % 4, n) for s, n in zip(table["successes"], table["pulls"], strict=True)
        ]
    return read(table, USUAL, tuple(CONTEXT))


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("by_arm", [False, True])
def test_draws_are_those_of_the_posterior(by_arm, counts):
    """Beside draws of the prior, weighted by their likelihood; one more arm is as the prior says."""
    found, rng = few_pulls(by_arm, counts), np.random.default_rng(1)
    posterior = Posterior.of(true_prior(by_arm, counts, 0.4), found)
    for e in range(2):
        rows = slice(found.starts[e], found.starts[e + 1])
        drawn, guessed = posterior.draw(e, 20_000, 1, rng), posterior.levels.draw(300_000, 4, rng)
        f = (guessed[:, found.arm[rows]] * found.features[rows]).sum(2)
        n, s = found.pulls[rows], found.successes[rows]
        log = -((s / n - f) ** 2) / (2 * posterior.noise[e, : len(n)])
        if counts:
            log = s * np.log(expit(f)) + (n - s) * np.log(expit(-f))
        weights = np.exp(log.sum(1) - log.sum(1).max())
        weights /= weights.sum()
        for power in (1, 2):
            right = np.einsum("n,nkd->kd", weights, guessed**power)
            se = np.sqrt(np.einsum("n,nkd->kd", weights**2, (guessed**power - right) ** 2))
            own = (drawn**power).std(0) / np.sqrt(20_000)
            assert_z((drawn**power).mean(0), np.hypot(own, se), right)


@pytest.mark.parametrize("by_arm", [False, True])
def test_promises_of_the_right_prior_come_true(by_arm):
    found = read(past(by_arm, experiments=60, seed=2), USUAL, tuple(CONTEXT))
    for given in (True, False):
        checks = context_check.check(true_prior(by_arm), found, 3, given)
        assert [check.share for check in checks] == [0.1, 0.25, 0.5]
        for check in checks:
            assert check.experiments == 60
            assert check.real.mean > 10
            assert_z(check.difference.mean, check.difference.se, 0)


def test_features_that_are_never_the_same_allow_no_check():
    table = past(True, experiments=10)
    table["age"] = np.random.default_rng(0).normal(size=len(table["age"])).tolist()
    found = read(table, USUAL, tuple(CONTEXT))
    assert context_check.check(true_prior(True), found, 3) == ()
    assert (
        context_check.check(true_prior(False), read(past(experiments=10), USUAL, tuple(CONTEXT)), 4) == ()
    )


@pytest.mark.parametrize("by_arm", [False, True])
def test_tests_have_the_arms_and_features_of_their_experiments(by_arm):
    found = read(past(by_arm, experiments=6), USUAL, tuple(CONTEXT))
    prior = true_prior(by_arm)
    tests, owner = context_draws.Source(prior, found, 0).given_results(prior, 60)
    assert (np.bincount(owner) == 10).all()
    assert tests.shares_context == by_arm
    for e, own in zip(owner, range(60), strict=True):
        rows = found.features[found.starts[e] : found.starts[e + 1]]
        seen = np.unique(tests.pools[e], axis=0) if by_arm else np.unique(tests.tests.features[own], axis=0)
        np.testing.assert_allclose(seen, np.unique(rows, axis=0), rtol=1e-6)
    if not by_arm:
        more = context_draws.Source(priors.Linear(4, 3, MEAN, SD, pool=prior.pool), found, 0)
        assert more.given_results(prior, 12)[0].tests.theta.shape == (12, 4, 3)
    problem = gb.Problem(tests, 8)
    row = gb.evaluate("uniform", problem, instances=60, progress=False).rows[0]
    reward, exact = row.rewards / 8, tests.all_means().mean(1)
    assert_z((reward - exact).mean(), (reward - exact).std() / np.sqrt(60), 0)
    np.testing.assert_allclose(tests.scaled(0.5).all_means(), tests.all_means() / 2, rtol=1e-6)


@pytest.mark.parametrize("by_arm", [False, True])
def test_what_is_promised_comes_true(by_arm, monkeypatch):
    """The gain of Thompson sampling with the fitted prior over an equal split, on other tests."""
    monkeypatch.setattr(compare_with_defaults, "with_contexts", lambda problem: {"uniform": "uniform"})
    found = gb.fit(past(by_arm, experiments=100, seed=4), context=CONTEXT, horizon=40, held_out=0.5)
    policy = gb.policies.references.with_prior("lin-ts", found.problem)
    promised = gb.gain(policy, found, instances=1000, progress=False)
    problem = gb.Problem(true_prior(by_arm), 40)
    table = gb.evaluate({"lin-ts": policy, "uniform": "uniform"}, problem, instances=3000, progress=False)
    true = Mean.of(1000 / 40 * (table["lin-ts"].rewards - table["uniform"].rewards))
    assert true.mean > 10 * true.se
    for situation in promised.situations[:2]:
        gain = situation.gain("uniform")
        assert_z(gain.mean, np.hypot(gain.se, true.se), true.mean)
    assert promised.held_out.experiments == 50


def test_every_situation_is_measured_from_a_file_too(tmp_path):
    found = gb.fit(past(experiments=60), context=CONTEXT, horizon=20)
    file = found.save(tmp_path)["problem"]
    assert gb.problems.load(file).prior.rewards.kind == "bernoulli"
    here, there = (gb.gain("lin-softelim", fit, instances=60, progress=False) for fit in (found, file))
    assert [entry.as_dict() for entry in here.situations] == [entry.as_dict() for entry in there.situations]
    assert [entry.name for entry in here.situations] == [
        truths.HELD_OUT,
        truths.AS_FITTED,
        "arms that differ beyond their features",
        "features that say nothing",
        "rates 50 % lower",
        "rates 50 % higher",
    ]
    names = {row.name for row in here.held_out.table.rows}
    beliefs = {"lin-greedy", "lin-ts", "lin-bayes-ucb", "lin-ucb"}
    assert names == {"learned", "uniform", "split", "split:share=0.25", "ts", *beliefs}
    assert here.held_out.experiments == 12
    assert {check.experiments for check in here.held_out.check} == {12}
    assert "held-out experiments the learned policy has" in here.in_words()
    with pytest.raises(InputError, match="a replay knows no features"):
        gb.replay(past(experiments=10), gb.policies.LinSoftElim(), problem=file)


def test_arms_that_differ_beyond_their_features_are_seen():
    table = past(experiments=80)
    rng = np.random.default_rng(0)
    shares = (np.array(table["successes"]) + 0.5) / (np.array(table["pulls"]) + 1)
    odds = np.log(shares / (1 - shares)) + rng.normal(size=len(shares))
    table["successes"] = rng.binomial(table["pulls"], expit(odds)).tolist()
    found = gb.fit(table, context=CONTEXT)
    assert [fit.name for fit in found.fits] == ["beyond features", "linear", "without features"]
    own = found.chosen.numbers["sd beyond features"]
    assert found.problem.prior.own == pytest.approx(own.mean)
    assert_z(own.mean, own.se, 1.0)
    with pytest.raises(InputError, match="no bound where arms differ beyond their features"):
        gb.exact.bound(found, seconds=1)


def test_the_command_writes_a_page(tmp_path, monkeypatch, capsys):
    """For features of visitors, with a belief for each arm."""
    file = gb.fit(past(True, experiments=60), context=CONTEXT, horizon=20).save(tmp_path)["problem"]

    def few(problem):
        found = {name: gb.policies.named(name) for name in ("uniform", "split")}
        return found | {"lin-ts": gb.policies.references.with_prior("lin-ts", problem)}

    monkeypatch.setattr(compare_with_defaults, "with_contexts", few)
    monkeypatch.setattr(decision, "FACTORS", (1,))
    page = tmp_path / "page.html"
    words = ["--compare-on", "100", "--policy", "co-softelim", "--iterations", "2", "--instances", "50"]
    words += ["--report", str(page), "--out", str(tmp_path / "out"), "--json"]
    monkeypatch.setattr(sys, "argv", ["gradband", "learn", file, *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert not ended.value.code
    result = json.loads(capsys.readouterr().out)
    assert [entry["situation"] for entry in result["gain"]][:2] == [truths.HELD_OUT, truths.AS_FITTED]
    text = page.read_text(encoding="utf-8")
    for told in ("features that say nothing", "Thompson sampling with features", "Three tests played out"):
        assert told.lower() in text.lower()


def test_standard_errors_know_what_happens_in_few_tests():
    """Where no experiment has what happens in one test of fifty, draws of the prior do."""
    pulls, experiments = 1000, 40
    owner = np.repeat(np.arange(experiments), 5)

    def table(gains):
        rows = (("learned", gains), ("rival", 0 * gains))
        return evaluate.Comparison(tuple(evaluate.Row(name, -own, own, 0.0) for name, own in rows))

    rng = np.random.default_rng(0)
    twins = np.repeat(np.where(np.arange(500) % 50 == 0, 100.0, 0), 2) + rng.normal(size=1000)
    held = table(rng.normal(size=owner.size))
    blind = compare_with_defaults.Situation("held out", pulls, held, owner)
    knowing = compare_with_defaults.Situation("held out", pulls, held, owner, twins=table(twins))
    wanted = np.sqrt(100**2 * 0.02 * 0.98 / experiments + 1 / owner.size)
    assert blind.gain("rival").se < 0.2
    assert knowing.gain("rival").se == pytest.approx(wanted, rel=0.05)
    assert knowing.gain("rival").mean == blind.gain("rival").mean
    fitted = compare_with_defaults.Situation("as fitted", pulls, table(twins), twins=table(twins))
    assert fitted.gain("rival").se == pytest.approx(np.sqrt(100**2 * 0.02 * 0.98 / 500), rel=0.1)
