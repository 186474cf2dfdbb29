"""Replays of past experiments: with posterior draws, and with their own pulls."""

import csv
import json
import sys

import numpy as np
import pytest
from conftest import assert_z
from every_policy import learned
from test_fit import as_csv, drawn

import gradband as gb
from gradband.cli.main import main
from gradband.core.statistics import clustered
from gradband.evaluation import outside_results, replaying
from gradband.evaluation.endings import play_to_the_end
from gradband.evaluation.outside_results import Urns, from_rates, play
from gradband.evaluation.replayed import DONE, EQUAL, Played
from gradband.evaluation.replaying import Trial, replay
from gradband.policies import Counts, IndexNetwork, SoftElim, Uniform
from gradband.problems.past_experiments import Experiments

pytestmark = pytest.mark.brief
PRIOR = gb.priors.Beta(3, 8.0, 72.0)
PROBLEM = gb.Problem(PRIOR, 60, pulls_per_round=20)


class Fixed(Uniform):
    """A policy with parameters for one number of arms."""

    flexible = False


def problem_file(folder):
    text = 'horizon = 60\npulls_per_round = 20\n[prior]\nkind = "beta"\narms = 3\na = 8.0\nb = 72.0\n'
    (folder / "mine.toml").write_text(text)
    return str(folder / "mine.toml")


@pytest.fixture(scope="module")
def past():
    """Forty experiments with two or three arms, of which the first was shown most."""
    rng = np.random.default_rng(0)
    sizes = np.where(np.arange(40) % 4 == 0, 2, 3)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    pulls = rng.integers(100, 200, starts[-1])
    pulls[starts[:-1]] += 200
    wins = rng.binomial(pulls, rng.beta(8, 72, starts[-1]))
    names = tuple(f"e{i}" for i in range(40))
    return Experiments(starts, pulls.astype(float), wins.astype(float), names=names)


def test_a_replay_plays_as_the_engine_does():
    """The same tests with results from outside: equal means, and pulls that sum to the test's."""
    means = np.random.default_rng(1).beta(8, 72, (3000, 3))
    batches = replaying.rounds_of(np.full(3000, 60), 20)
    assert batches.tolist() == [[20] * 3000] * 3
    pulls = play(SoftElim(theta=0.3), batches, 3, from_rates(means, 2), seed=3)
    assert (pulls.sum(1) == 60).all()
    ends = play_to_the_end(SoftElim(theta=0.3), PROBLEM, means, seed=3)
    gap = (pulls * means).sum(1) - ends.rewards
    assert_z(gap.mean(), gap.std() / 3000**0.5, 0.0)


def test_every_test_has_its_own_horizon():
    """An index network's probabilities are those of a network that is bound to the test's own pulls."""
    policy = learned("index", arms=3, horizon=900)
    counts = Counts(np.array([30.0, 10.0, 20.0]), np.array([3.0, 1.0, 4.0]))
    for horizon in (100, 900, 5000):
        own = IndexNetwork().bind(3, horizon).log_probs(policy.params, counts)
        bound = policy.policy.bind(3, 5000)
        found = outside_results._chances(bound, policy.params, 10, None, counts, float(horizon))
        np.testing.assert_allclose(found, np.exp(own), rtol=1e-5)


def test_rounds_end_with_the_test():
    batches = replaying.rounds_of(np.array([7, 250, 1_000_000]), 100)
    assert batches.sum(0).tolist() == [7, 250, 1_000_000]
    assert (batches > 0).sum(0).tolist() == [1, 3, replaying.MOST_ROUNDS]


def test_urns_hold_what_was_pulled():
    urns = Urns(np.array([[5, 7]]), np.array([[2, 7]]), seed=0)
    total = sum(urns(np.array([pulls])) for pulls in ([2, 3], [3, 4]))
    assert total.tolist() == [[2, 7]]
    assert urns.total.tolist() == [9]


def test_posterior_draws_have_the_posteriors_means(past):
    """Under Beta(8, 72), what was done is worth Σ T (8 + s) / (80 + T), in closed form."""
    found = Trial(Uniform(), PRIOR, 50, 400, seed=0).by_arms(
        past, np.add.reduceat(past.pulls, past.starts[:-1]).astype(int), real=False
    )
    mean = (8 + past.successes) / (80 + past.pulls)
    spread = np.sqrt(mean * (1 - mean) / (81 + past.pulls))
    total = np.add.reduceat(past.pulls, past.starts[:-1])
    done = np.add.reduceat(past.pulls * mean, past.starts[:-1])
    error = np.sqrt(np.add.reduceat((past.pulls * spread) ** 2, past.starts[:-1]) / 400)
    assert_z(found.done, error, done)
    equal = total * np.add.reduceat(mean, past.starts[:-1]) / past.sizes
    assert_z(found.equal, total * spread.max() / 20, equal)
    # The policy is an equal split itself, up to who is shown what.
    gain = found.total(EQUAL)
    assert_z(gain.mean, gain.se, 0.0)


def test_own_pulls_are_a_real_test(past):
    """An equal split of an experiment's own pulls earns the mean of its observed rates."""
    least = np.minimum.reduceat(past.pulls, past.starts[:-1]).astype(int)
    found = Trial(Uniform(), PRIOR, 50, 50, seed=0).by_arms(past, least, real=True)
    rates = past.successes / past.pulls
    expected = least * np.add.reduceat(rates, past.starts[:-1]) / past.sizes
    np.testing.assert_allclose(found.equal, expected)
    gap = found.ours - expected
    assert_z(gap.mean(), gap.std() / 40**0.5, 0.0)
    assert gap.std() < 1.2, "50 times each"


def test_gains_are_clustered_by_experiment():
    rng = np.random.default_rng(0)
    pulls, done = np.full(400, 1000.0), rng.normal(50, 20, 400)
    found = Played(pulls, done + rng.normal(5, 3, 400), done, done + 1)
    each = clustered(found.ours - found.done, np.arange(400))
    assert found.total(DONE).mean == pytest.approx(400 * each.mean)
    assert found.total(DONE).se == pytest.approx(400 * each.se)
    assert found.per_thousand(DONE).mean == pytest.approx(each.mean)
    assert found.per_thousand(DONE).se == pytest.approx(each.se)
    percent = found.percent(DONE)
    assert percent.mean == pytest.approx(100 * (found.ours.sum() / found.done.sum() - 1))
    again = [
        100 * (found.ours[chosen].sum() / found.done[chosen].sum() - 1)
        for chosen in rng.integers(0, 400, (2000, 400))
    ]
    assert percent.se == pytest.approx(np.std(again), rel=0.1), "as the bootstrap has it"


def test_what_was_fitted_is_not_fresh(past):
    rows = _columns(past.only(np.arange(18)))  # so few that only simple priors are fitted
    fit = gb.fit(rows, prior="pooled", horizon=60, pulls_per_round=20, progress=False)
    found = replay(rows, Uniform(), fit, draws=2, per_year=1e6, progress=False)
    assert found.fitted.sum() == 14
    assert "The prior was fitted to 14 of these experiments, which are not fresh" in found.in_words()
    assert found.yearly(DONE).mean == pytest.approx(1000 * found.modelled.per_thousand(DONE).mean)
    fresh = replay(rows, Uniform(), fit, fresh_only=True, draws=2, progress=False)
    assert len(fresh.experiments) == 4
    assert "fresh" not in fresh.in_words()
    assert {*fresh.experiments.names} == {
        name for name, fitted in zip(found.experiments.names, found.fitted, strict=True) if not fitted
    }
    assert json.dumps(fresh.as_dict())
    assert fresh.to_frame()["experiment"].to_list() == list(fresh.experiments.names)
    assert "what the policy would have gained" in found._repr_html_()
    assert found.plot().get_title() == "Past experiments"
    assert [row["experiment"] for row in found.records()] == list(past.names[:18])


def _columns(past):
    rows = {"experiment": [past.names[i] for i in past.owner], "arm": _arms(past)}
    return rows | {"pulls": past.pulls, "successes": past.successes}


def _arms(past):
    return ["ABC"[i] for i in np.arange(len(past.pulls)) - past.starts[past.owner]]


def test_policies_for_one_number_of_arms_play_those(past, tmp_path):
    assert replaying.can_play(learned("index"), past.sizes).all()
    fixed = Fixed().bind(2, 60)
    assert (replaying.can_play(fixed, past.sizes) == (past.sizes == 2)).all()
    found = replay(past, fixed, problem_file(tmp_path), draws=2, progress=False)
    assert (len(found.experiments), found.left_out) == (10, 30)
    assert "30 others are left out: it cannot play their number of arms." in found.in_words()
    for name in ("ts", "gittins", "lstm"):
        with pytest.raises(gb.InputError, match=f"{name} cannot be replayed"):
            replaying.can_play(gb.policies.named(name), past.sizes)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "replay needs the prior of a fit"),
        ({"problem": gb.Problem(gb.priors.Finite([[0.1, 0.2]]), 50)}, "replay needs the prior of a fit"),
        ({"problem": "two-point.toml"}, "replay needs the prior of a fit"),
    ],
)
def test_a_replay_needs_a_fit(past, given, told):
    with pytest.raises(gb.InputError, match=told):
        replay(past, Uniform(), **given)


def test_years_come_from_dates_or_not_at_all(past):
    dates = [f"2025-{1 + i // 4:02d}-01" for i in range(40)]
    rows = _columns(past) | {"day": [dates[i] for i in past.owner]}
    found = replaying._pulls_per_year(rows, "day", past)
    assert found == pytest.approx(past.pulls.sum() * 365.25 / 274), "from 1 January to 1 October"
    with pytest.raises(gb.InputError, match="span 0 days, but 28 are needed to say anything"):
        replaying._pulls_per_year(rows | {"day": ["2025-01-01"] * len(rows["arm"])}, "day", past)
    with pytest.raises(gb.InputError, match="must have a date in every row"):
        replaying._pulls_per_year(rows | {"day": ["soon"] * len(rows["arm"])}, "day", past)
    with pytest.raises(gb.InputError, match="has no column 'date'"):
        replaying._pulls_per_year(rows, "date", past)


def test_the_command(tmp_path, monkeypatch, capsys):
    file = as_csv(tmp_path / "past.csv", drawn(30, a=8.0, b=72.0, strength=60.0, arms=3, pulls=60))
    words = ["replay", str(file), "uniform", "--problem", problem_file(tmp_path), "--per-year", "1000000"]
    words += ["--draws", "2", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["gradband", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "past.csv: 30 past experiments: what the policy would have gained" in shown
    assert "equal split, no model, shorter" in shown
    assert "Whether the prior was fitted to these experiments is unknown." in shown
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    with (tmp_path / "out" / "replay.csv").open() as table:
        gains = [float(row["gain_over_done"]) for row in csv.DictReader(table)]
    assert sum(gains) == pytest.approx(result["modelled"][DONE]["successes"]["mean"])
    assert len(gains) == 30
