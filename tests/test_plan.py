"""Plans: how tests end, what they gain, and how long they should run."""

import csv
import json
import sys

import numpy as np
import pytest
from conftest import assert_z
from scipy.stats import binom

import gradband as gb
from gradband.cli.main import main
from gradband.evaluation import planning
from gradband.evaluation.endings import Endings, play_to_the_end, split_to_the_end
from gradband.evaluation.planned import Cell, Plan
from gradband.evaluation.planning import plan
from gradband.policies.policy_file import Learned

pytestmark = pytest.mark.brief
PRIOR = gb.priors.Hierarchical(3, 8.0, 72.0, 60.0)
PROBLEM = gb.Problem(PRIOR, 40, pulls_per_round=10)


@pytest.fixture(scope="module")
def means():
    return np.random.default_rng(0).beta(2, 8, (3000, 3)).astype(np.float32)


def test_endings_are_those_of_an_evaluation(means):
    """The same seed gives the same tests and rewards; and sums have the means of what was pulled."""
    ends = play_to_the_end("softelim", PROBLEM, means, seed=3)
    table = gb.evaluate(
        "softelim", PROBLEM.replace(prior=gb.priors.Drawn(means, 0)), instances=3000, seed=3
    )
    np.testing.assert_allclose(ends.rewards, table["softelim"].rewards, rtol=1e-5)
    assert (ends.pulls.sum(1) == 40).all()
    noise = ends.sums.sum(1) - ends.rewards
    assert_z(noise.mean(), noise.std() / 3000**0.5, 0.0)
    rates = np.where(ends.pulls > 0, ends.sums / np.maximum(ends.pulls, 1), -np.inf)
    np.testing.assert_array_equal(ends.arm, rates.argmax(1))
    own = np.take_along_axis(means, ends.arm[:, None], 1)[:, 0]
    np.testing.assert_allclose(ends.recommended, own)


def test_endings_of_single_pulls(means):
    """One by one, each arm is pulled once first, and every reward is counted."""
    ends = play_to_the_end("softelim", gb.Problem(PRIOR, 12), means[:300], seed=0)
    assert ends.pulls.min() >= 1
    assert (ends.pulls.sum(1) == 12).all()
    assert ((ends.sums >= 0) & (ends.sums <= ends.pulls)).all()
    noise = ends.sums.sum(1) - ends.rewards
    assert_z(noise.mean(), noise.std() / 300**0.5, 0.0)


@pytest.mark.parametrize(("batch", "explored"), [(5, 10), (1, 3)])
def test_splits_like_an_enumeration(batch, explored):
    """Two arms, half of the pulls explore: who wins and what that is worth, by SciPy's binomials.

    Of 3 pulls, an arm often has a single one.
    """
    rates, count, horizon = np.array([0.3, 0.5]), 40_000, 2 * explored
    problem = gb.Problem(gb.priors.Beta(2), horizon, pulls_per_round=batch)
    share = explored / horizon - 0.2 * batch / horizon
    ends = split_to_the_end(problem, np.tile(rates, (count, 1)), share, np.random.default_rng(0))
    right, wins = 0.0, np.arange(explored + 1)
    for first in wins:
        second = explored - first
        p0, p1 = binom.pmf(wins, first, 0.3)[:, None], binom.pmf(wins, second, 0.5)[None]
        mean0 = wins / first if first else np.full(len(wins), -1.0)
        mean1 = wins / second if second else np.full(len(wins), -1.0)
        better = (mean1[None] > mean0[:, None]) + 0.5 * (mean1[None] == mean0[:, None])
        right += binom.pmf(first, explored, 0.5) * (p0 * p1 * better).sum()
    chose = ends.recommended == 0.5
    assert_z(chose.mean(), chose.std() / count**0.5, right)
    wanted = explored * (0.4 + 0.3 + 0.2 * right)
    assert_z(ends.rewards.mean(), ends.rewards.std() / count**0.5, wanted)
    assert_z(ends.inferior.mean(), ends.inferior.std() / count**0.5, 0.25 + 0.5 * (1 - right))


def test_an_equal_split_in_the_engine_and_at_once(means):
    played = play_to_the_end("uniform", PROBLEM, means, seed=1)
    at_once = split_to_the_end(PROBLEM, means, 1.0, np.random.default_rng(1))
    for what in ("rewards", "recommended", "inferior"):
        one, other = getattr(played, what), getattr(at_once, what)
        assert_z((one - other).mean(), (one - other).std() / len(one) ** 0.5, 0.0)


def cell(horizon, right, extra=0.0, arms=2):
    """A test whose recommended arm is the best, .2, with probability `right`, and .1 otherwise."""
    count = 1000
    means, arm = np.tile([0.1, 0.2], (count, 1)), (np.arange(count) < right * count).astype(int)
    noise = np.tile(np.array([[1.0, -1.0], [-1.0, 1.0]]), (count // 2, 1))
    pulls = np.tile([horizon / 2, horizon / 2], (count, 1)) + noise
    better = pulls + np.array([-extra, extra]) * horizon
    equal = Endings(means, pulls, pulls * means, arm)
    ts = Endings(means, pulls + np.array([-1, 1.0]), pulls * means, arm).first(100)
    return Cell(
        arms, horizon, 10, Endings(means, better, better * means, arm), {"uniform": equal, "ts": ts}
    )


def test_what_a_cell_says():
    found = cell(1000, right=0.9, extra=0.1)
    assert found.gain("uniform").mean == pytest.approx(1000 * 0.1 * 0.1)
    assert found.gain("uniform").se == pytest.approx(0, abs=1e-9), "what both share is no noise"
    assert found.percent("uniform").mean == pytest.approx(100 * 10 / 150)
    assert found.rival == "ts"
    assert found.gain("ts").mean == pytest.approx(10 - 0.1)
    assert found.ends_on_best.mean == pytest.approx(0.9)
    assert found.inferior.mean == pytest.approx(0.4)
    assert found.loss.mean == pytest.approx(100 * 0.01 / 0.2)
    assert found.reward_with(3000).mean == pytest.approx((160 + 2000 * 0.19) / 3)


def test_how_long_a_test_should_run():
    """The shortest with a small loss; or, if others see the winner, the one with the most successes."""
    short, middle, long = cell(100, 0.7), cell(1000, 0.99), cell(10_000, 1.0)
    found = Plan((long, short, middle), None)
    assert [length.horizon for length in found.how_long(0.01)] == [1000]
    assert [length.horizon for length in found.how_long(0.001)] == [10_000]
    assert [length.horizon for length in found.how_long(0.2)] == [100]
    (length,) = Plan((short,), None).how_long(0.01)
    assert length.horizon is None
    assert "after 100 pulls the recommended arm is still 15.00 ± " in length.reason
    # Equal splits lose .05 per pull; 10 000 more people lose .1 with probability .01 after the middle one.
    (length,) = Plan((short, middle, long), None, afterwards=10_000).how_long()
    assert length.horizon == 1000
    assert "of all 20000 people" in length.reason


def test_plans_are_results(tmp_path):
    """A data frame, HTML and a picture."""
    found = Plan((cell(100, 0.7), cell(1000, 0.99, extra=0.1)), gb.policies.named("softelim"))
    frame = found.to_frame()
    assert frame["horizon"].to_list() == [100, 1000]
    assert frame["gain_over_equal_split"][1] == pytest.approx(10)
    shown = found._repr_html_()
    assert "2 arms, 1000 by 10" in shown
    assert "run 1000 pulls" in shown
    axes = found.plot()
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        "2 arms, 100 by 10",
        "2 arms, 1000 by 10",
    ]
    axes.figure.savefig(tmp_path / "plan.png")
    assert repr(found) == "Plan(softelim, 2 sizes of tests)"


def test_guardrails_hold_for_rivals_too(monkeypatch):
    """Half of the pulls are split, then the others of three arms get a fifth each: 20/3 + 4 of 40."""
    monkeypatch.setattr(planning, "SHARES", {"split": 0.5})
    monkeypatch.setattr(planning, "THOMPSON", "split")
    guarded = PROBLEM.replace(guardrails={"floor": 0.2})
    found = planning.Simulation("softelim", 100, 0, {}).cell(guarded).rivals["split"]
    others = found.pulls[np.arange(3) != found.arm[:, None]]
    assert 20 / 3 + 3 < others.mean() < 20 / 3 + 5


def test_a_plan_of_given_sizes():
    found = plan(PROBLEM, horizons=[40], arms=[3, 2], policy="softelim", instances=200, progress=False)
    sizes = [(entry.arms, entry.horizon, entry.pulls_per_round) for entry in found.cells]
    assert sizes == [(2, 40, 10), (3, 40, 10)]
    for entry in found.cells:
        assert set(entry.rivals) == {"uniform", "split", "split:share=0.25", "ts"}
        assert entry.ours.means.shape == (200, entry.arms)
        assert [errors.exact for errors in entry.errors] == ([True, False] if entry.arms == 2 else [])
    two, three = found.cells
    exact = gb.exact.power_of_equal_split(PROBLEM.replace(prior=gb.priors.Hierarchical(2, 8.0, 72.0, 60.0)))
    assert two.errors[0].power.mean == exact.power
    ends = play_to_the_end("softelim", PROBLEM, three.ours.means, seed=0)
    np.testing.assert_array_equal(ends.pulls, three.ours.pulls)
    assert json.loads(json.dumps(found.as_dict()))["cells"][1]["arms"] == 3


def test_a_network_is_learned_once(tmp_path, monkeypatch):
    """It is kept beside the problem, for other sizes as well, and learned again for another prior."""
    calls = []

    def learn(policy, problem, **how):
        calls.append((problem.arms, problem.horizon, problem.pulls_per_round))
        bound = policy.bind(problem.arms, problem.horizon)
        return Learned(bound, _zeros(bound), {}, {})

    monkeypatch.setattr(planning, "learn", learn)
    file = tmp_path / "fitted.toml"
    file.write_text('horizon = 40\n[prior]\nkind = "beta"\narms = 2\na = 2.0\nb = 8.0\n')
    sizes = [PROBLEM.replace(prior=gb.priors.Beta(2, 2.0, 8.0), horizon=n) for n in (100, 10_000)]
    first = planning._usual_policy(file, sizes, 0)
    again = planning._usual_policy(file, sizes, 0)
    assert calls == [(2, 1000, 40)], "the middle, in 25 rounds"
    assert first.policy == again.policy
    other = [PROBLEM.replace(prior=gb.priors.Beta(2, 3.0, 8.0), horizon=n) for n in (100, 10_000)]
    planning._usual_policy(file, other, 0)
    planning._usual_policy(PROBLEM, other, 0)
    assert len(calls) == 3
    assert [path.name for path in tmp_path.iterdir() if path != file] == [planning.POLICY_FILE]


def _zeros(policy):
    return {name: np.zeros(spec.shape, np.float32) for name, spec in policy.specs().items()}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"horizons": [25]}, "25 is not a multiple of pulls_per_round = 10"),
        ({"arms": [1]}, "arms must be a whole number of at least 2"),
        ({"horizons": []}, "horizons must have at least one number"),
        ({"problem": gb.Problem(gb.priors.Table(np.zeros((2, 3, 40))), 40)}, "a plan needs known means"),
        ({"problem": gb.Problem(gb.priors.Drifting(PRIOR, 0.1), 40)}, "a plan needs means that stay"),
        ({"afterwards": -1}, "afterwards must be a whole number of at least 0"),
    ],
)
def test_other_sizes_are_refused(given, told):
    with pytest.raises(gb.InputError, match=told):
        plan(**({"problem": PROBLEM, "policy": "softelim"} | given))


def test_other_priors_and_policies_are_refused():
    finite = gb.Problem(gb.priors.Finite([[0.2, 0.4]]), 20)
    with pytest.raises(gb.InputError, match="this finite prior has 2 arms, and cannot have 3"):
        plan(finite, arms=[3], policy="softelim")
    bound = gb.policies.DQN(hidden=4).bind(2, 20)
    fixed = Learned(bound, _zeros(bound), {}, {})
    with pytest.raises(gb.InputError, match="was learned for 2 arms, but the plan has 3"):
        plan(gb.Problem(gb.priors.Beta(2), 20), arms=[3], policy=fixed)


def test_the_command(tmp_path, monkeypatch, capsys):
    file = tmp_path / "fitted.toml"
    file.write_text(
        'horizon = 40\npulls_per_round = 10\n[prior]\nkind = "beta"\narms = 3\na = 2.0\nb = 8.0\n'
    )
    words = [
        "plan",
        str(file),
        "--horizon",
        "40",
        "--batch",
        "10",
        "--arms",
        "2,3",
        "--policy",
        "softelim",
    ]
    words += ["--instances", "200", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["gradband", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "3 arms, 40 by 10" in shown
    assert "Two arms: a two-sided z-test at 5 % in the end" in shown
    assert "2 arms, 10 per round: run longer; after 40 pulls" in shown
    with (tmp_path / "out" / "plan.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [(row["arms"], row["horizon"]) for row in rows] == [("2", "40"), ("3", "40")]
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert float(rows[1]["gain_over_best_rival"]) == result["cells"][1]["gain_over_best_rival"]
    monkeypatch.setattr(sys, "argv", ["gradband", "plan", str(file), "--arms", "two"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--arms must be whole numbers, separated by commas, not 'two'" in capsys.readouterr().err
