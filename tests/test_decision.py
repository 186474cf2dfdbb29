"""The page for the people who decide about a learned policy, and what it says."""

import dataclasses
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_z
from test_fit import as_csv, drawn
from test_gain import MANY, situation
from test_page import answer, needs_browser, requests, without_policy

import gradband as gb
from gradband.cli.main import main
from gradband.core import prng
from gradband.core.errors import InputError
from gradband.core.statistics import Mean
from gradband.evaluation import compare_with_defaults, decision, past_tests, played_out
from gradband.evaluation.compare_with_defaults import HELD_OUT
from gradband.evaluation.evaluate import evaluate
from gradband.play.reporting import gain_charts
from gradband.policies import LSTM, SoftElim, Uniform
from gradband.policies.policy_file import Learned
from gradband.problems import fitted, priors

pytestmark = pytest.mark.brief


def mixed():
    """Experiments of 3 and of 2 arms, in turn."""
    found = drawn(120, a=8.0, b=72.0, strength=60.0, arms=3, pulls=400)
    kept = np.flatnonzero((np.arange(360) % 6) != 5)
    starts = np.concatenate([[0], np.cumsum(np.resize([3, 2], 120))])
    return found.with_arms(starts, kept)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What `gradband learn --report` writes and prints."""
    folder = tmp_path_factory.mktemp("decision")
    path = as_csv(folder / "tests.csv", mixed())
    found = fitted.fit(
        path, arms=3, horizon=40, prior="hierarchical", name="<b>headlines & co", progress=False
    )
    found.save(folder)
    words = ["--iterations", "2", "--instances", "200", "--compare-on", "400", "--out", str(folder / "out")]
    words += ["--report", str(folder / "page.html"), "--json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision, "FACTORS", (0.5, 1))
        patch.setattr(sys, "argv", ["gradband", "learn", str(folder / "fitted.toml"), *words])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    return folder


@pytest.fixture(scope="module")
def text(written):
    return (written / "page.html").read_text(encoding="utf-8")


def test_the_page_says_what_the_result_says(written, text):
    result = json.loads((written / "out/result.json").read_text())
    found, held = result["decision"], result["gain"][0]
    assert result["files"]["page"] == str(written / "page.html")
    assert f"<strong>{found['advice']}:</strong>" in text.replace("&#x27;", "'")
    assert [entry["pulls"] for entry in found["lengths"]] == [20, 40]
    assert found["lengths"][1]["policies"] == held["policies"], (
        "the length it was learned for is not played twice"
    )
    assert [entry["arms"] for entry in found["arms"]] == [2]
    assert found["other_numbers_of_arms"] == 60
    assert "60 of the 120 past tests (50\u00a0%) have another number of variants than 3." in text
    assert len(found["examples"]) == 3
    for row in held["policies"]:
        if row["percent"]:
            assert gain_charts.signed(row["percent"]["mean"]).replace(" ", "\u00a0") in text


def test_the_page_names_no_other_host_and_escapes_names(text):
    assert "default-src 'none'" in text
    assert not re.findall(r"(?:https?:)?//[\w.-]+", text)
    assert "<script" not in text
    assert not re.search(r'(?:src|href)="', text)
    assert "<b>headlines" not in text
    assert "&lt;b&gt;headlines &amp; co: tests of 3 variants and 40 visitors." in text
    assert not re.search(
        r"\bnan\b", re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL), re.IGNORECASE
    )
    assert "<details><summary>" in text
    assert text.index("Bayes regret") > text.index("<details>"), "only behind the fold"
    assert text.index("Log-likelihood") > text.index("<details>")


@needs_browser
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_no_serious_fault_of_accessibility(text, colours, tmp_path):
    import axe_core_python

    if colours == "dark":
        text = text.replace("@media (prefers-color-scheme: dark)", "@media all")
    axe = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    script = """;axe.run().then(found => { document.getElementById("answer").textContent = JSON.stringify(
        found.violations.map(v => [v.impact, v.id, v.nodes[0].html.replaceAll("<", "(")])) })"""
    assert answer(tmp_path, without_policy(text), axe + script) == []


@needs_browser
def test_nothing_is_wider_than_the_screen_and_nothing_is_fetched(text, tmp_path):
    opened = without_policy(text).replace("<details>", "<details open>")
    frame = opened.replace("&", "&amp;").replace('"', "&quot;")
    widths = [360, 768, 1280]
    screens = "".join(f'<iframe width="{w}" height="800" srcdoc="{frame}"></iframe>' for w in widths)
    script = """addEventListener("load", () => {
        const inner = [...document.querySelectorAll("iframe")];
        document.getElementById("answer").textContent = JSON.stringify(
            inner.map(frame => frame.contentDocument.documentElement)
                .map(page => [page.scrollWidth, page.clientWidth])) })"""
    found = answer(tmp_path, f"<!DOCTYPE html><body>{screens}</body>", script)
    for width, (wide, screen) in zip(widths, found, strict=True):
        assert 0 < screen <= width
        assert wide <= screen
    assert requests(tmp_path, without_policy(text)) == []


def test_a_report_needs_past_experiments(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gradband", "learn", "two-point", "--report", "page.html"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code
    assert "--report needs a problem that gradband fit wrote" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# Advice


def test_a_clear_gain_is_adopted():
    held = situation(HELD_OUT, MANY, learned=110.0, ts=100.0, uniform=90.0)
    found = decision.advise([held])
    assert (found.word, found.cautions) == (decision.ADOPT, ())
    assert "on 50 past tests that were held out" in found.sentence
    assert decision.told(held, "uniform") in found.sentence
    assert "the best of the other policies, Thompson sampling." in found.sentence


def test_a_gain_within_the_noise_is_not():
    held = situation(HELD_OUT, MANY, learned=100.05, ts=100.0, uniform=80.0)
    found = decision.advise([held])
    assert found.word == decision.DONT_BOTHER
    gained = 100 * (held.reward("ts").mean / held.reward("uniform").mean - 1)
    assert f"It is simpler, and has {gained:.1f} % more successes than an equal split" in found.sentence
    best = situation(HELD_OUT, MANY, learned=100.05, uniform=100.0)
    assert "use that" not in decision.advise([best]).sentence


def test_few_tests_say_nothing():
    held = situation(HELD_OUT, np.arange(400) % 9, learned=110.0, ts=100.0, uniform=90.0)
    assert decision.advise([held]).word == decision.CANT_TELL


def test_what_may_go_wrong_is_said():
    held = situation(HELD_OUT, MANY, learned=110.0, ts=100.0, uniform=90.0)
    worse = situation("rates 50 % lower", learned=50.0, split=52.0, uniform=45.0)
    (caution,) = decision.advise([held, worse]).cautions
    assert "If the truth is rates 50 % lower, an equal split for 50 %, then the winner is better" in caution


def test_losses_are_told_in_their_unit():
    """Percent of what another policy loses would mean nothing."""
    rewards = {"learned": -5.0, "uniform": -9.0}
    held = dataclasses.replace(situation(HELD_OUT, MANY, **rewards), unit="€")
    assert math.isnan(held.percent("uniform").mean)
    assert decision.told(held, "uniform").startswith(f"{held.gain('uniform').mean:.3g} per thousand (")
    found = decision.advise([held])
    assert found.word == decision.ADOPT
    assert "more € than an equal split" in found.sentence


def test_every_policy_of_the_comparison_has_plain_words():
    usual = [priors.Hierarchical(3, 2.36347, 143.0787, 1381.4462), priors.Beta(3, 2.0698, 129.867)]
    amounts = [priors.Gaussian(3, 1.0, 2.0, rewards=gb.rewards.Gaussian(3.0))]
    for fits in (usual, amounts):
        for name in compare_with_defaults.rivals(fits):
            words = decision.in_plain_words(name)
            assert words != name
            assert "=" not in words


# What is measured


def test_a_test_is_played_out_as_evaluation_plays_it():
    """Rewards per test, from the pulls that are recorded and from `evaluate`, on the same instances."""
    means = np.random.default_rng(0).beta(2, 5, (400, 3))
    problem = gb.Problem(priors.Beta(3), 60, pulls_per_round=10)
    policy = SoftElim(theta=0.1)
    runs = played_out.play_out(policy, problem, means)
    own = np.array([60 * (run.total * run.means).sum() for run in runs])
    for run, row in zip(runs, means, strict=True):
        assert run.means == pytest.approx(np.sort(row)[::-1], rel=1e-6)
        assert run.shares.shape == (6, 3)
        assert run.shares.sum(1) == pytest.approx(np.ones(6), abs=1e-5)
        assert run.total.sum() == pytest.approx(1)
    fixed = problem.replace(prior=priors.Drawn(means, 0))
    rewards = evaluate(policy, fixed, instances=400, seed=1).rows[0].rewards
    found = Mean.of(own - rewards)
    assert_z(found.mean, found.se, 0.0)


def test_shares_of_an_equal_split_are_equal():
    problem = gb.Problem(priors.Beta(4), 50)
    runs = played_out.play_out(Uniform(), problem, np.full((2, 4), 0.5))
    assert runs[0].shares == pytest.approx(np.full((50, 4), 0.25), abs=1e-6)
    assert runs[0].regret == pytest.approx(0)
    assert runs[0].pulls[-1] == 50


def test_the_spread_of_a_prior_is_its_own():
    """Levels from Beta(8, 72), arms around them with strength 60: variances in closed form."""
    spread = past_tests.Spread.of(priors.Hierarchical(5, 8.0, 72.0, 60.0), count=40_000)
    level = 8 * 72 / (80**2 * 81)
    inside = (0.1 * 0.9 - level) / 61
    assert spread.mean == pytest.approx(0.1, rel=0.01)
    assert spread.between == pytest.approx(level**0.5, rel=0.03)
    assert spread.within == pytest.approx(inside**0.5, rel=0.03)


def test_numbers_of_past_tests():
    found = mixed()
    fit, held = found.split(0.2)
    past = past_tests.Past(fit, held, (priors.Hierarchical(3, 8.0, 72.0, 60.0), priors.Beta(3, 8.0, 72.0)))
    assert sorted(past.sizes) == [2] * 60 + [3] * 60
    assert past.pulls.sum() == found.pulls.sum()
    assert (past.rates * past.pulls).sum() == pytest.approx(found.successes.sum())
    first, second = past.likelihoods()
    assert first.name == "hierarchical"
    assert first.score.mean > second.score.mean


def test_policies_that_need_their_size_say_so():
    """An LSTM is learned for a number of arms; SoftElim is not."""
    two, three = (gb.Problem(priors.Beta(arms), 20) for arms in (2, 3))
    for policy, other in ((LSTM(hidden=4), False), (SoftElim(), True)):
        bound = policy.bind(2, 20)
        params = bound.init(prng.root(0))
        entry = Learned(bound, params, {}, {})
        assert decision.plays(entry, two)
        assert decision.plays(entry, three) == other


def test_a_prior_without_a_posterior_is_refused():
    past = past_tests.Past(*mixed().split(0.2), (priors.Beta(3, [1.0, 2.0, 3.0], 9.0),))
    with pytest.raises(InputError, match="has a posterior"):
        past.best_prior()


def test_intervals_and_histograms():
    assert gain_charts.interval(Mean(1.25, 0.5)) == "+1.2 % (+0.3 to +2.2)"
    counts, low, high = gain_charts.histogram(np.arange(1000.0))
    assert (counts.sum(), low) == (1000, 0)
    assert high == pytest.approx(989.01)
