"""Guardrails, shares from counts, a stable hash, and what feature-flag systems take."""

import hashlib
import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z
from every_policy import ALL, ARMS

import gradband as gb
from gradband.play import flags
from gradband.play.player import Player
from gradband.play.settings import Settings
from gradband.play.weights import assign, weights
from gradband.policies.guardrails import guard

pytestmark = pytest.mark.brief
KNOWN = gb.policies.POLICIES | gb.policies.TABLES
GRID = (0.0, 0.05, 0.2, 0.25, 0.5, 1.0)


def simplex(arms):
    """Probabilities of arms in steps of 1/4, certain and tiny ones included."""
    for parts in itertools.product(range(5), repeat=arms):
        if sum(parts) == 4:
            yield np.array(parts) / 4
    yield np.array([1 - 1e-12 * (arms - 1), *[1e-12] * (arms - 1)])


@pytest.mark.parametrize("arms", [1, 2, 3, 4])
def test_guardrails_hold_whatever_the_policy_says(arms):
    checked = 0
    for floor, share, cap in itertools.product(GRID, GRID, (0.25, 0.3, 0.5, 0.9, 1.0)):
        floors = np.full(arms, floor)
        floors[0] = max(floor, share)
        if floors.sum() > 1 or floors.max() > cap:
            continue
        for p in simplex(arms):
            found = guard(p, floors, cap)
            assert (found >= floors).all()
            assert (found <= max(cap, 1 / arms) + 1e-15).all()
            assert abs(found.sum() - 1) < 1e-12
            if cap == 1:
                np.testing.assert_allclose(found, floors + (1 - floors.sum()) * p, rtol=0, atol=1e-15)
            if not floors.any() and p.max() <= cap:
                np.testing.assert_array_equal(found, p)
            checked += 1
        in_jax = guard(jnp.asarray(p), jnp.asarray(floors), cap)
        np.testing.assert_allclose(in_jax, found, atol=1e-6)
    assert checked > 50


@pytest.mark.parametrize("name", ALL)
def test_a_player_logs_what_its_guardrails_made_of_the_policy(files, name):
    """Propensities are exact: those of the policy, moved; and decisions follow them."""
    arms = Player(files(name)).policy.arms
    player = Player(files(name), seed=0, floor=0.05, control=1, control_share=0.3, cap=0.6)
    free = Player(files(name), seed=0)
    floors = np.array([0.05, 0.3, *[0.05] * (arms - 2)])
    events = []
    player.record = lambda event: events.append(event)
    for i in range(10):
        free.restore(player.state() | {"settings": Settings().as_dict()})
        p = player.probabilities()
        assert (p >= floors).all()
        assert p.max() <= 0.6 + 1e-15
        arm = player.select()
        assert arm.propensity == p[arm] == events[-1]["p"]
        np.testing.assert_allclose(events[-1]["ps"], p, atol=5.1e-7)
        np.testing.assert_allclose(guard(free.probabilities(), floors, 0.6), p, rtol=1e-12)
        player.update(arm, i % 2)
    if KNOWN[name].batches:
        batch = player.select_many(1000)
        assert (np.array(batch.propensities) >= floors).all()
        assert min(batch) > 5


def test_decisions_follow_the_guardrails(files):
    player = Player(files("greedy"), seed=0, floor=0.05, control=3, control_share=0.3)
    for arm in range(4):
        player.memory.state.pulls[arm], player.memory.state.sums[arm] = 10, 9 - arm
    p = player.probabilities()
    np.testing.assert_allclose(p, [0.6, 0.05, 0.05, 0.3], rtol=1e-12)
    pulls = np.bincount([player.select() for _ in range(4000)], minlength=4)
    assert_z(pulls / 4000, np.sqrt(p * (1 - p) / 4000), p)


def test_arms_come_and_go_within_guardrails(files):
    player = Player(files("ts"), seed=0, floor=0.2, control=0, control_share=0.4, cap=0.5)
    with pytest.raises(gb.InputError, match="5 arms with a floor of 0.2 .* sum to 1.2"):
        player.add_arm()
    player.retire(1)
    assert (player.probabilities()[[0, 2, 3]] >= [0.4, 0.2, 0.2]).all()
    player.add_arm("new")
    assert player.probabilities()[4] >= 0.2
    player.retire(0)  # the control
    assert (player.probabilities()[2:] >= 0.2).all()
    player.retire(2)
    player.retire(3)
    assert player.weights() == {"new": 1.0}  # whatever the cap


@pytest.mark.parametrize("name", ALL)
def test_shares_from_counts_are_those_of_a_player(files, name):
    settings = Settings(floor=0.03, control=0, control_share=0.2, cap=0.7)
    path, rng = files(name), np.random.default_rng(0)
    player, bare = Player(path, seed=0, settings=settings), Player(path, seed=0)
    arms = player.policy.arms
    pulls, sums = np.zeros(arms), np.zeros(arms)
    more = ("lstm", "lstm-gaussian", "exp3", "explore-then-commit", "platform-ts", "split", "optimal-graph")
    if name in more or getattr(KNOWN[name], "forgets", False):
        with pytest.raises(gb.InputError, match="remembers more than counts|do not determine|forgets"):
            weights(path, pulls, sums)
        return
    for _ in range(11):
        arm, reward = player.select(), float(rng.random() < 0.5)
        player.update(arm, reward)
        pulls[arm] += 1
        sums[arm] += reward
        bare.restore(player.state() | {"settings": Settings().as_dict()})
        if not player.state()["fresh"]:
            found = [weights(path, pulls, sums, settings), weights(path, pulls.tolist(), sums.tolist())]
            np.testing.assert_allclose(found[0], player.probabilities(), rtol=0, atol=1e-12)
            np.testing.assert_allclose(found[1], bare.probabilities(), rtol=0, atol=1e-12)
    if KNOWN[name].batches:
        np.testing.assert_allclose(weights(path, [0] * arms, [0] * arms).sum(), 1)
        batch = Player(path, seed=1).select_many(100)
        np.testing.assert_allclose(weights(path, [0] * arms, [0] * arms), batch.propensities, atol=1e-12)


def test_counts_that_can_not_be_are_refused(files):
    for pulls, successes, says in (
        ([1, 2], [1], "pulls of 2 arms, but successes of 1"),
        ([1, -1], [0, 0], "pulls must be a finite number"),
        ([1, 1], [2, 0], "sums in memory must be between 0 and the pulls"),
        ([1.5, 1], [0, 0], "pulls in memory must be whole numbers"),
        ([], [], "arms must be a whole number"),
        ("12", [1, 1], "pulls must be a list of numbers"),
        ([1, float("nan")], [0, 0], "pulls must be a finite number"),
    ):
        with pytest.raises(gb.InputError, match=says):
            weights(files("ts"), pulls, successes)
    with pytest.raises(gb.InputError, match="dqn is for 4 arms, but there are counts of 3"):
        weights(files("dqn"), [1] * 3, [0] * 3)
    with pytest.raises(gb.InputError, match="60 rounds, and all are played"):
        weights(files("gittins"), [15] * 4, [0] * 4)
    assert weights(files("ts"), [10, 10], [5, 5]).tolist() == pytest.approx(
        [0.5, 0.5]
    )  # other numbers of arms
    assert gb.weights is weights
    assert gb.assign is assign


GOLDEN = {"user-0": 0, "user-1": 2, "user-2": 2, "user-3": 2, "user-4": 2, "user-5": 2, "user-6": 1}


def test_units_keep_their_arms_for_ever():
    """These values are promised: other languages may compute them too."""
    assert {unit: assign(unit, [0.2, 0.3, 0.5], "colours") for unit in GOLDEN} == GOLDEN
    for unit, arm in GOLDEN.items():
        digest = hashlib.sha256(f"colours:{unit}".encode()).hexdigest()
        u = (int(digest[:16], 16) >> 11) / 2**53
        assert arm == (u >= 0.2) + (u >= 0.5)
    assert assign("\ud800", [1, 1]) in (0, 1)
    assert assign("x", [0, 3, 0]) == 1
    for wrong in ([], [0, 0], [-1, 2], "11", [float("nan"), 1]):
        with pytest.raises(gb.InputError, match="weights must be"):
            assign("x", wrong)
    with pytest.raises(gb.InputError, match="unit and salt must be strings"):
        assign(3, [1, 1])


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")
def test_javascript_in_the_docs_assigns_alike():
    page = Path(__file__).parents[1] / "docs" / "feature-flags.md"
    (code,) = re.findall(r"```js\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    units = [*GOLDEN, "ü", ""]
    code += f'console.log(JSON.stringify({json.dumps(units)}.map(u => assign(u, [2, 3, 5], "colours"))));'
    words = ["node", "--input-type=module", "-e", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [assign(unit, [2, 3, 5], "colours") for unit in units]


def test_units_are_assigned_by_shares_and_independently_of_other_tests():
    shares, count = np.array([0.1, 0.2, 0.7]), 20_000
    arms = {salt: [assign(str(unit), shares, salt) for unit in range(count)] for salt in ("a", "b")}
    se = np.sqrt(shares * (1 - shares) / count)
    for found in arms.values():
        assert_z(np.bincount(found, minlength=3) / count, se, shares)
    both = np.bincount([3 * a + b for a, b in zip(arms["a"], arms["b"], strict=True)], minlength=9) / count
    expected = np.outer(shares, shares).ravel()
    assert_z(both, np.sqrt(expected * (1 - expected) / count), expected)


def test_shares_are_apportioned_to_whole_numbers():
    rng = np.random.default_rng(0)
    for _ in range(300):
        shares = rng.dirichlet(np.full(rng.integers(1, 12), 0.3))
        for total in (800, 1000, 10_000):
            parts = flags.apportion(shares, total)
            assert sum(parts) == total
            assert (np.abs(parts - shares * total) < 1 + 1e-9).all()


def test_payloads_are_what_the_systems_take():
    names, shares = ["red", "blue", "green"], np.array([0.623, 0.3, 0.077])
    feature = flags.payload("growthbook", "colours", names, shares)
    (rule,) = feature["rules"]
    assert rule["variations"] == names
    assert rule["weights"] == [0.623, 0.3, 0.077]
    assert (rule["hashAttribute"], rule["key"], feature["defaultValue"]) == ("id", "colours", "red")
    strategy = flags.payload("unleash", "colours", names, shares)
    assert [variant["weight"] for variant in strategy["variants"]] == [623, 300, 77]
    assert [variant["weightType"] for variant in strategy["variants"]] == ["variable", "fix", "fix"]
    assert strategy["parameters"]["groupId"] == "colours"
    flag = flags.payload("posthog", "colours", names, shares)
    variants = flag["filters"]["multivariate"]["variants"]
    assert [variant["key"] for variant in variants] == names
    assert sum(variant["rollout_percentage"] for variant in variants) == 100
    for variant, share in zip(variants, shares, strict=True):
        assert abs(variant["rollout_percentage"] - 100 * share) < 0.125
    with pytest.raises(gb.InputError, match="unknown system 'unlash': did you mean 'unleash'"):
        flags.payload("unlash", "colours", names, shares)
    with pytest.raises(gb.InputError, match="3 arms, but 2 names"):
        flags.payload("unleash", "colours", names[:2], shares)


def run(*words):
    words = [sys.executable, "-m", "gradband", "weights", *map(str, words)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_command_prints_shares(files, tmp_path):
    counts = tmp_path / "counts.csv"
    counts.write_text("arm,pulls,successes,note\nred,30,12,a\nblue,20,3,b\ngreen,25,9,\nblack,10,0,\n")
    expected = weights(files("softelim"), [30, 20, 25, 10], [12, 3, 9, 0])
    done = run(files("softelim"), counts, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert list(found) == ["red", "blue", "green", "black"]
    np.testing.assert_allclose(list(found.values()), expected, rtol=0, atol=1e-12)
    done = run(files("softelim"), counts, "--floor", "0.1", "--control", "black", "--control-share", ".3")
    assert done.stdout.splitlines()[0].split() == ["arm", "share"]
    assert [float(line.split()[1]) for line in done.stdout.splitlines()[1:]][3] >= 0.3
    done = run(files("softelim"), counts, "--format", "unleash", "--key", "colours")
    assert sum(variant["weight"] for variant in json.loads(done.stdout)["variants"]) == 1000
    for text, says in (
        ("arm,pulls\na,1\n", "must have the columns arm, pulls, successes"),
        ("arm,pulls,successes\n", "one row per arm"),
        ("arm,pulls,successes\na,x,1\n", "line 2: pulls and successes must be counts"),
        ("arm,pulls,successes\na,3\n", "line 2: pulls and successes must be counts"),
        ("arm,pulls,successes\na,3,4\n", "line 2: there cannot be 4 successes in 3 pulls"),
        ("arm,pulls,successes\na,3,1\na,3,1\n", "arms must have different names"),
        ("\xff", "must have the columns"),
    ):
        counts.write_text(text)
        with pytest.raises(gb.InputError, match=says):
            Settings(arms=flags.read_counts(counts)[0])
    done = run(files("softelim"), counts)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    done = run(files("softelim"), counts, "--format", "unleash")
    assert "give --format and --key together" in done.stderr
    assert ARMS == 4
