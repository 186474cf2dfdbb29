"""What a policy does: maps, strips and shares against exact ones, and the command that draws them."""

import contextlib
import dataclasses
import io
import itertools
import json
import sys
from collections import Counter
from pathlib import Path

import jax
import matplotlib.image
import numpy as np
import pytest
from conftest import assert_z
from scipy import stats
from test_figures import apart

import gradband as gb
from gradband.cli import figures, main
from gradband.evaluation.explain import problem_of

pytestmark = pytest.mark.brief

THETA = 0.5
HORIZON = 11  # with windows of one round each, and no history on the edge of a cell early and midway
STARTS = (2, 5, 10)


def saved(policy, problem, about=None):
    """A policy as `learn` would return it, without having learned."""
    bound = policy.bind(problem.arms, problem.horizon)
    params = bound.init(jax.random.key(0))
    return gb.Learned(bound, params, {}, {"problem": problem.describe()} if about is None else about)


@pytest.fixture(scope="module")
def two_point():
    return gb.problems.named("two-point", horizon=HORIZON)


@pytest.fixture(scope="module")
def softelim(two_point):
    return saved(gb.policies.SoftElim(theta=THETA), two_point)


@pytest.fixture(scope="module")
def found(softelim):
    return gb.explain(softelim, instances=4000)


# Exactly


def softelim_probability(counts):
    """Probability of arm 2, by eq. 5."""
    (t1, s1), (t2, s2) = counts
    if t1 + t2 < 2:
        return float(t1 + t2)
    means = np.array([s1 / t1, s2 / t2])
    weights = np.exp(-2 * (means.max() - means) ** 2 * (t1, t2) / THETA)
    return weights[1] / weights.sum()


def exact_histories(rounds):
    """Probabilities of the counts ((T₁, S₁), (T₂, S₂)) after some rounds, over both instances."""
    total = Counter()
    for means in ((0.6, 0.4), (0.4, 0.6)):
        now = {((0, 0), (0, 0)): 0.5}
        for _ in range(rounds):
            after = Counter()
            for counts, weight in now.items():
                p = softelim_probability(counts)
                for arm, reward in ((0, 0), (0, 1), (1, 0), (1, 1)):
                    chance = (p if arm else 1 - p) * (means[arm] if reward else 1 - means[arm])
                    if chance > 0:
                        moved = list(counts)
                        moved[arm] = (counts[arm][0] + 1, counts[arm][1] + reward)
                        after[tuple(moved)] += weight * chance
            now = after
        total.update(now)
    return total


def lead(counts):
    (t1, s1), (t2, s2) = counts
    return s2 / t2 - s1 / t1


@pytest.mark.parametrize("window", [0, 1])
def test_maps_are_those_of_all_histories(found, window):
    maps, instances = found.maps, found.instances
    cells = np.zeros((3, *maps.policy[window].shape))
    for counts, weight in exact_histories(STARTS[window]).items():
        p = softelim_probability(counts)
        row = np.searchsorted(maps.rows, counts[1][0] / STARTS[window], side="right") - 1
        column = np.clip(np.searchsorted(maps.leads, lead(counts)) - 1, 0, len(maps.leads) - 2)
        cells[:, row, column] += weight * np.array([1, p, p * p])
    never, often = cells[0] == 0, cells[0] * instances > 30
    assert (maps.histories[window][never] == 0).all()
    assert np.isnan(maps.policy[window][never]).all()
    assert often.sum() >= 3
    share, mean, square = cells[:, often]
    mean, square = mean / share, square / share
    assert_z(maps.histories[window][often] / instances, np.sqrt(share * (1 - share) / instances), share)
    se = np.sqrt(np.maximum(square - mean**2, 0) / (share * instances))
    assert_z(maps.policy[window][often], se + 1e-6, mean)


def test_shares_are_those_of_all_histories(found):
    for window, start in zip(found.windows, STARTS, strict=True):
        assert (window.first, window.last) == (start + 1, start + 1)
        truth = 0.0
        for counts, weight in exact_histories(start).items():
            p = softelim_probability(counts)
            ahead = lead(counts)
            truth += weight * (1 if ahead == 0 else p if ahead > 0 else 1 - p)
        assert_z(window.leading.mean, window.leading.se, truth)
    pulls = sum(weight * counts[1][0] for counts, weight in exact_histories(HORIZON).items()) / HORIZON
    assert_z(found.pulls[1].mean, found.pulls[1].se, pulls)


def test_strips_begin_with_each_arm_once(found):
    assert found.strips.rounds.tolist() == list(range(HORIZON + 1))
    assert found.strips.policy[:, :2] == pytest.approx(np.eye(2))
    assert found.strips.policy.sum(0) == pytest.approx(np.ones(HORIZON))
    assert found.strips.optimal.sum(0) == pytest.approx(np.ones(HORIZON))


def test_padding_of_the_last_block_is_not_counted(softelim, found):
    few = gb.explain(softelim, instances=100)
    assert found.maps.histories.sum((1, 2)).tolist() == [4000, 4000, 4000]
    assert few.maps.histories.sum((1, 2)).tolist() == [100, 100, 100]
    assert few.strips.policy.sum(0) == pytest.approx(np.ones(HORIZON))


def test_seed_decides_everything_whatever_the_devices(softelim, found):
    again = gb.explain(softelim, instances=4000, devices=2)
    other = gb.explain(softelim, instances=4000, seed=1)
    for part in ("histories", "policy", "optimal"):
        one, two, three = (getattr(entry.maps, part) for entry in (found, again, other))
        assert np.array_equal(one, two, equal_nan=True)
        assert not np.array_equal(one, three, equal_nan=True)
    assert np.array_equal(found.strips.policy, again.strips.policy)
    assert found.windows == again.windows


def test_optimal_policy_agrees_with_itself():
    problem = gb.problems.named("distractors", arms=5, horizon=20)
    found = gb.explain(gb.exact.optimum(problem).policy, instances=200)
    assert [window.agreement.mean for window in found.windows] == [1, 1, 1]
    assert np.array_equal(found.maps.policy, found.maps.optimal, equal_nan=True)
    assert np.array_equal(found.strips.policy, found.strips.optimal)
    assert found.strips.policy.mean(1) == pytest.approx([share.mean for share in found.pulls])
    assert found.left_alone == (1, 4, 5)
    assert found.maps.rows.tolist() == [0, 1, 2, 3, 4, 6, 8, 11, 16, 20]
    assert found.maps.histories.sum((1, 2)).tolist() == [200 * 2 * 5] * 3


@pytest.fixture(scope="module")
def uniform():
    problem = gb.Problem(gb.priors.Gaussian(arms=3, mean=2, sd=0.5), horizon=250)
    return saved(gb.policies.Uniform(), problem)


def test_uniform_policy_is_uniform_everywhere(uniform):
    found = gb.explain(uniform, instances=50)
    seen = found.maps.policy[found.maps.histories > 0]
    assert seen == pytest.approx(np.full(seen.shape, 1 / 3), rel=1e-5)
    assert found.strips.policy == pytest.approx(np.full((3, 100), 1 / 3), rel=1e-5)
    assert [window.agreement for window in found.windows] == [None, None, None]
    assert found.maps.optimal is None
    assert found.strips.optimal is None
    assert "gaussian rewards" in found.note
    assert [(window.first, window.last) for window in found.windows] == [(4, 28), (113, 137), (226, 250)]
    # Three standard deviations of a difference of means after 28 rounds, of 28 / 3 pulls each.
    assert found.maps.leads[-1] == pytest.approx(3 * np.sqrt(2 * (0.5**2 + 3 / 28)), rel=0.05)


# Batches and rare rewards


def test_batches_are_those_of_all_histories():
    """Uniform play in batches of 5, of which the second is shown: every history of the first, exactly."""
    problem = gb.problems.named("two-point", horizon=10).replace(pulls_per_round=5)
    found = gb.explain("uniform", problem, instances=4000)
    assert [(window.first, window.last) for window in found.windows] == [(6, 10)] * 3
    assert found.strips.rounds.tolist() == [0, 5, 10]
    assert found.strips.policy == pytest.approx(np.full((2, 2), 0.5))
    assert "batches of 5" in found.note
    cells, leading = np.zeros(found.maps.histories[0].shape), 0.0
    for pulls, ones, others in itertools.product(range(6), repeat=3):
        means = (others / (5 - pulls) if pulls < 5 else 0.5, ones / pulls if pulls else 0.5)
        weight = stats.binom.pmf(pulls, 5, 0.5) * np.mean(
            [
                stats.binom.pmf(ones, pulls, high) * stats.binom.pmf(others, 5 - pulls, 1 - high)
                for high in (0.4, 0.6)
            ]
        )
        row = np.searchsorted(found.maps.rows, np.float32(pulls / 5), side="right") - 1
        place = np.searchsorted(found.maps.leads, means[1] - means[0]) - 1
        cells[min(row, len(cells) - 1), np.clip(place, 0, cells.shape[1] - 1)] += weight
        leading += weight * (1 if means[0] == means[1] else 0.5)
    for window, histories in zip(found.windows, found.maps.histories, strict=True):
        assert_z(window.leading.mean, window.leading.se, leading)
        se = np.sqrt(cells * (1 - cells) / found.instances)
        assert_z(histories / found.instances, se + 1e-9, cells)
    assert_z(found.pulls[0].mean, found.pulls[0].se, 0.5)


@pytest.mark.slow
def test_rare_rewards_are_shown_where_they_differ():
    """With rates near .015, differences of means fill the columns; on an axis to 1 all are in one."""
    prior = gb.priors.Hierarchical(arms=4, a=2.4, b=143, strength=1400)
    problem = gb.Problem(prior, horizon=3000, pulls_per_round=100)
    found = gb.explain(saved(gb.policies.SoftElim(theta=0.01), problem), instances=200)
    assert 0.03 < found.maps.leads[-1] < 0.1
    for histories in found.maps.histories:
        columns = histories.sum(0)[1:-1]
        assert (columns > 0).sum() >= 10
        assert columns.sum() > 0.8 * histories.sum()
    assert [(window.first, window.last) for window in found.windows][0] == (101, 400)
    shown = figures.explanation("softelim on rare", found)
    titles = [axis.title for axis in shown.axes if axis.get_title()]
    labels = [label for axis in shown.axes[:3] for label in axis.get_xticklabels()]
    assert apart([*titles, shown._suptitle], shown)
    assert apart(labels, shown)


def test_a_long_name_leaves_room_for_the_other_titles(found):
    long = dataclasses.replace(found, policy="a policy of a name that is far longer than others")
    shown = figures.explanation("its title " * 12, long)
    assert apart([axis.title for axis in shown.axes if axis.get_title()], shown)


def test_a_policy_learned_on_a_fitted_problem_is_explained(run, tmp_path):
    """Its prior is in the policy file, or in a file beside it, or in the problem that is given."""
    hierarchical = gb.Problem(gb.priors.Hierarchical(2, 2, 98, 500), HORIZON)
    saved(gb.policies.SoftElim(), hierarchical).save("fitted.safetensors")
    table = np.random.default_rng(0).random((40, 2, HORIZON)).round(3)
    np.savez("rewards.npz", rewards=table)
    past = gb.Problem(gb.priors.Table(table, file="rewards.npz"), HORIZON)
    saved(gb.policies.SoftElim(), past).save("past.safetensors")
    status, _, err = run("fitted.safetensors", "--instances", 8, "--json")
    assert (status, err) == (0, "")
    assert problem_of(gb.load("past.safetensors"), folder=tmp_path).prior.trained_on == 32
    elsewhere = gb.load("past.safetensors")
    elsewhere.about["source"] = str(tmp_path / "mine.toml")
    assert problem_of(elsewhere).prior.trained_on == 32
    Path("rewards.npz").unlink()
    status, _, err = run("past.safetensors")
    assert (status, err.count("\n")) == (2, 1)
    assert "the table prior is in the file 'rewards.npz'" in err


# What can't be explained


def test_wrong_input_is_refused(two_point, softelim):
    nowhere = saved(gb.policies.SoftElim(), two_point, about={})
    broken = saved(gb.policies.SoftElim(), two_point, about={"problem": {"prior": {"kind": "beta"}}})
    own = saved(gb.policies.SoftElim(), two_point, about={"problem": {"prior": {"kind": "sampler"}}})
    odd = saved(gb.policies.SoftElim(), two_point, about={"problem": {"prior": {"kind": ["beta"]}}})
    there = {"kind": "table", "file": "rewards.npy"}
    table = saved(gb.policies.SoftElim(), two_point, about={"problem": {"prior": there}})
    for policy, words in (
        (nowhere, "does not say which problem it was learned on.*--problem"),
        (broken, "cannot be restored.*horizon.*--problem"),
        (own, "prior of kind 'sampler'.*--problem"),
        (odd, r"prior of kind \['beta'\].*--problem"),
        (table, "the table prior is in the file 'rewards.npy', not in the policy.*--problem"),
        ("softelim", "does not say which problem it was learned on.*--problem"),
    ):
        with pytest.raises(gb.InputError, match=words):
            gb.explain(policy)
    with pytest.raises(gb.InputError, match="one arm"):
        gb.explain(softelim, gb.Problem(gb.priors.Beta(arms=1), HORIZON))
    with pytest.raises(gb.InputError, match="instances must be a whole number"):
        gb.explain(softelim, instances=1)


# The command


@pytest.fixture
def run(tmp_path, monkeypatch, softelim):
    """Runs `explain` in a folder with policy.safetensors: exit code, stdout, stderr."""
    softelim.save(tmp_path / "policy.safetensors")
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        out, err = io.StringIO(), io.StringIO()
        monkeypatch.setattr(sys, "argv", ["gradband", "explain", *map(str, arguments)])
        streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
        with streams[0], streams[1], pytest.raises(SystemExit) as stop:
            main.main()
        return stop.value.code, out.getvalue(), err.getvalue()

    return run


def test_command_prints_one_json_object(run, tmp_path, found):
    status, out, err = run("policy.safetensors", "--json")
    assert (status, err, out.count("\n")) == (0, "", 1)
    result = json.loads(out)
    wanted = {"problem", "policy", "instances", "seed", "windows", "pulls", "left_alone", "note", "files"}
    wanted |= {"standing"}
    assert set(result) == wanted
    assert result["problem"]["name"] == "two-point"
    assert result["left_alone"] == []
    assert [row["name"] for row in result["windows"]] == ["early", "mid", "late"]
    for row, window in zip(result["windows"], found.windows, strict=True):
        assert set(row) == {"name", "first", "last", "leading", "agreement"}
        assert row["leading"] == {"mean": window.leading.mean, "se": window.leading.se}
        assert row["agreement"] == {"mean": window.agreement.mean, "se": window.agreement.se}
    assert result["files"] == {"figure": "explain.png", "result": "explain.json"}
    assert json.loads((tmp_path / "explain.json").read_text()) == result
    height, width = matplotlib.image.imread(tmp_path / "explain.png").shape[:2]
    assert width > 1000
    assert height > 800


def test_command_prints_a_table(run, tmp_path):
    status, out, err = run("policy.safetensors", "--instances", 100, "--out", "here")
    assert (status, err) == (0, "")
    for words in ("softelim on two-point: 2 arms, 11 rounds", "early", "agrees", "± se", "no arm"):
        assert words in out
    assert {file.name for file in (tmp_path / "here").iterdir()} == {"explain.png", "explain.json"}


def test_problem_can_be_given_and_may_have_no_optimal_policy(run, tmp_path, uniform):
    uniform.save(tmp_path / "uniform.safetensors")
    (tmp_path / "mine.toml").write_text(
        "horizon = 9\n[prior]\nkind = 'gaussian'\narms = 9\nmean = 2\nsd = 0.5\n"
    )
    given = ("--problem", "mine.toml", "--arms", 3, "--horizon", 250)
    status, out, err = run("uniform.safetensors", *given, "--instances", 50)
    assert (status, err) == (0, "")
    assert "uniform on mine: 3 arms, 250 rounds, 50 instances" in out
    assert "There is no optimal policy to show. The optimum needs bernoulli rewards, not gaussian" in out
    assert "agrees" not in out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("nothing.safetensors",), "cannot read nothing.safetensors"),
        (("policy.safetensors", "--problem", "two-points"), "did you mean 'two-point'"),
        (("policy.safetensors", "--arms", 3), "fixed by its entries"),
        (("policy.safetensors", "--instances", 1), "instances"),
        (("policy.safetensors", "--horizon", 1), "at least 2"),
        (("policy.safetensors", "--seed", -1), "seed"),
        (("policy.safetensors", "--devices", 0), "devices"),
        (("policy.safetensors", "--out", "policy.safetensors"), "can't write to"),
    ],
)
def test_mistakes_are_answered_with_one_sentence(run, arguments, word):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("gradband: ")
    assert err.count("\n") == 1
    assert word in err


def test_it_says_how_far_a_policy_is_on_the_way_to_the_optimum():
    """Beside the optimum, beside a bound, and on normal arms from Thompson sampling with their prior."""
    short = gb.explain("softelim", gb.problems.named("two-point", horizon=20), instances=100)
    assert short.standing.optimum == pytest.approx(1.1425, abs=1e-3)
    assert "% of the way from ts to the optimum." in short.tables()[0].notes
    many = gb.explain("softelim", gb.problems.named("bernoulli-10", horizon=40), instances=100, certify=1)
    least, most = many.standing.between["softelim"]
    regret, start = (many.standing.table[name].regret.mean for name in ("softelim", "ts"))
    assert least == pytest.approx((start - regret) / (start - many.standing.bound.regret))
    assert least >= most if regret > start else least <= most
    assert "No policy has a regret below" in many.tables()[0].notes
    assert many.as_dict()["standing"]["bound"]["regret"] == many.standing.bound.regret
    normal = gb.explain("softelim", gb.Problem(gb.priors.Gaussian(arms=3), 40), instances=100, certify=1)
    assert "of the way from ts-gaussian:prior to the optimum. No policy" in normal.tables()[0].notes
    assert gb.explain("softelim", "two-point", instances=100, optimal=False).standing is None
