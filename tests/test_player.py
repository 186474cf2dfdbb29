"""Players keep their books, whatever happens to them."""

import copy
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from conftest import assert_z
from every_policy import ALL, ARMS, BY_GROUP, CONTEXTUAL, HORIZON, features, learned

import gradband as gb
from gradband.play.player import Player

pytestmark = pytest.mark.brief
KNOWN = gb.policies.POLICIES | gb.policies.TABLES


PLAYED = """
import json, sys, traceback
for gone in "jax jaxlib numba scipy optax matplotlib typer rich polars safetensors".split():
    sys.modules[gone] = None
from gradband.play.player import Player

def played(path, context):
    player = Player(path, seed=1)
    for arm in [player.select(context=context) for _ in range(3)]:
        player.update(arm, 1)
    return player.state()["decisions"]

said = {}
for name, given in json.load(sys.stdin).items():
    try:
        said[name] = played(*given)
    except Exception:
        said[name] = traceback.format_exc()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def played_alone(files):
    """What players of all policies came to in one process that can import NumPy and nothing more: the
    number of their decisions, or an error."""
    given = {
        name: (str(files(name)), None if name in ALL else features(0, name=name).tolist())
        for name in (*ALL, *CONTEXTUAL, BY_GROUP)
    }
    words = [sys.executable, "-c", PLAYED]
    done = subprocess.run(words, input=json.dumps(given), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", [*ALL, *CONTEXTUAL, BY_GROUP])
def test_a_player_needs_numpy_and_nothing_more(played_alone, name):
    """Whatever else gradband depends on can't be imported there."""
    assert played_alone[name] == 3


def test_rewards_may_come_late_and_in_any_order(files):
    rng = np.random.default_rng(0)
    player = Player(files("softelim"), seed=0)
    waiting, pulls, sums = [], np.zeros(ARMS), np.zeros(ARMS)
    for t in range(300):
        if waiting and rng.random() < 0.5:
            arm = waiting.pop(rng.integers(len(waiting)))
            reward = rng.random()
            player.update(arm.id, reward)
            pulls[arm] += 1
            sums[arm] += reward
        else:
            waiting.append(player.select(f"decision {t}"))
        if t > 2 * ARMS:
            gap = sums / np.maximum(pulls, 1)
            weights = np.exp(-2 * (gap.max() - gap) ** 2 * pulls)
            np.testing.assert_allclose(player.probabilities(), weights / weights.sum())
    assert player.open == tuple(arm.id for arm in waiting)


def test_the_first_pulls_do_not_wait_for_rewards(files):
    player = Player(files("softelim"), seed=0)
    assert [player.select() for _ in range(ARMS)] == list(range(ARMS))
    player = Player(files("explore-then-commit"), seed=0)
    assert [player.select() for _ in range(ARMS)] == list(range(ARMS))


def test_what_is_unknown_or_finished_is_refused(files):
    player = Player(files("ts"), seed=0)
    arm = player.select("a")
    assert (arm.id, player.select("a"), player.select("a").propensity) == ("a", arm, arm.propensity)
    assert player.state()["decisions"] == 1
    player.update("a", 1)
    for bad, says in (
        ("a", "has its reward already"),
        ("b", "no decision 'b'"),
        (3, "no decision for arm 3"),
    ):
        with pytest.raises(gb.InputError, match=says):
            player.update(bad, 1)
    with pytest.raises(gb.InputError, match="cannot be made again"):
        player.select("a")
    numbered = player.select()
    assert numbered.id == "#1"
    for reward in (float("nan"), "1", 1.5, -0.1, None):
        with pytest.raises(gb.InputError, match="a reward"):
            player.update(numbered, reward)
    player.update(numbered, np.float32(1))
    with pytest.raises(gb.InputError, match="has its reward already"):
        player.update("#1", 1)
    for id in ("", "#9", "x" * 300, 7):
        with pytest.raises(gb.InputError, match="an id must be"):
            player.select(id)
    assert sum(player.state()["memory"]["pulls"]) == 2


def test_an_arms_number_stands_for_its_oldest_decision(files):
    player = Player(files("uniform"), seed=4)
    first = player.select()
    while (second := player.select()) != first:
        pass
    player.update(int(first), 1)
    assert first.id not in player.open
    assert second.id in player.open


@pytest.mark.parametrize("name", [name for name in ALL if KNOWN[name].batches])
def test_batches_are_shared_out_and_heard_of_together(files, name):
    player, single = Player(files(name), seed=2), Player(files(name), seed=3)
    batch = player.select_many(30, "first")
    assert sum(batch) == 30
    assert player.select_many(30, "first") == batch
    again = single.select_many(30)
    sums = [pulls // 2 for pulls in again]
    single.update_many(again.id, sums)
    wrong = math.inf if KNOWN[name].any_sums else 31
    with pytest.raises(gb.InputError, match="sum"):
        player.update_many(batch, [wrong] + [0] * (ARMS - 1))
    with pytest.raises(gb.InputError, match="one sum for each"):
        player.update_many(batch, [1])
    with pytest.raises(gb.InputError, match="is a batch"):
        player.update("first", 1)
    player.update_many("first", np.minimum(batch, 3))
    memory = player.state()["memory"]
    if "pulls" in memory:
        assert memory["pulls"] == list(map(float, batch))
        assert memory["sums"] == np.minimum(batch, 3).tolist()
    assert player.state()["rounds"] == 30
    assert player.probabilities().sum() == pytest.approx(1)


def test_batches_follow_the_probabilities(files):
    player = Player(files("exp3"), seed=0)
    for _ in range(30):
        arm = player.select()
        player.update(arm, (0.2, 0.9, 0.4, 0.1)[arm])
    p = player.probabilities()
    total = np.sum([player.select_many(50) for _ in range(400)], axis=0)
    assert_z(total / 20_000, np.sqrt(p * (1 - p) / 20_000), p)
    with pytest.raises(gb.InputError, match="must observe each reward before the next"):
        Player(files("lstm"), seed=0).select_many(5)


@pytest.mark.parametrize("name", ALL)
def test_a_restored_player_has_the_same_future(files, name):
    player, rng = Player(files(name), seed=5, clock=lambda: 1e9), np.random.default_rng(1)
    waiting = []
    for _ in range(8):
        waiting.append(player.select())
        if rng.random() < 0.7:
            player.update(waiting.pop(0), round(rng.random(), 2))
    text = json.dumps(player.state())
    other = Player(files(name), seed=99, clock=lambda: 1e9)
    other.select()
    other.restore(json.loads(text))
    assert other.state() == player.state()
    for _ in range(4):
        first, second = player.select(), other.select()
        assert (first, first.id, first.propensity) == (second, second.id, second.propensity)
        reward = rng.random()
        player.update(first, reward)
        other.update(second, reward)
    assert json.dumps(other.state()) == json.dumps(player.state()) != text


def test_draws_do_not_come_again_after_a_restore(files):
    """A coin that is tossed again after a restart falls as it had not been tossed before."""
    player = Player(files("uniform"), seed=7)
    before = [int(player.select()) for _ in range(50)]
    other = Player(files("uniform"), seed=7)
    other.restore(player.state())
    after = [int(other.select()) for _ in range(50)]
    assert after != before
    whole = Player(files("uniform"), seed=7)
    assert [int(whole.select()) for _ in range(100)] == before + after


@pytest.mark.parametrize("name", [name for name in ALL if KNOWN[name].flexible])
def test_arms_are_added_and_retired(files, name):
    player, rng = Player(files(name), seed=0), np.random.default_rng(0)

    def play(rounds):
        for _ in range(rounds):
            arm = player.select()
            assert arm in player.arms
            player.update(arm, float(rng.random() < 0.5))

    play(10)
    late = player.select()
    player.retire(late)
    assert player.probabilities()[late] == 0
    player.update(late, 1)  # it may still come
    new = player.add_arm()
    assert new == ARMS
    assert player.arms == tuple(arm for arm in range(ARMS + 1) if arm != late)
    play(20)
    assert player.probabilities().sum() == pytest.approx(1)
    state = json.loads(json.dumps(player.state()))
    other = Player(files(name), seed=0)
    other.restore(state)
    assert int(other.select()) == int(player.select())
    with pytest.raises(gb.InputError, match="no arm"):
        player.retire(late)
    for arm in player.arms[1:]:
        player.retire(arm)
    with pytest.raises(gb.InputError, match="last one"):
        player.retire(player.arms[0])
    assert int(player.select()) == player.arms[0]


def test_an_added_arm_is_as_one_that_was_always_there(files):
    """The others' counts stay, and the new one has none: as a policy for five arms after the same pulls."""
    small, large = Player(files("ts"), seed=0), Player(files("ts", arms=5), seed=0)
    for _ in range(30):
        arm = small.select()
        small.update(arm, float(arm % 2))
    small.add_arm()
    state = large.playable.begin(0.0)
    state.pulls[:4] = small.state()["memory"]["pulls"][:4]
    state.sums[:4] = small.state()["memory"]["sums"][:4]
    np.testing.assert_allclose(small.probabilities(), large.policy.probabilities({}, state))


FLEXIBLE = [name for name in ALL if KNOWN[name].flexible]
LATE = 1000


def by_policy(player):
    """What the policy says of as many arms as there are."""
    return player.memory.policy.probabilities(player.playable.params, player.memory.state)


def with_a_new_arm(files, name, rounds=30):
    """A player that knows four arms, and then gets a fifth; and its probabilities before it did."""
    player, rng = Player(files(name), seed=0), np.random.default_rng(0)
    for _ in range(rounds):
        arm = player.select()
        player.update(arm, float(rng.random() < (0.2, 0.5, 0.6, 0.1)[arm]))
    before = player.probabilities()
    assert player.add_arm() == ARMS
    return player, before


@pytest.mark.parametrize("name", FLEXIBLE)
def test_a_new_arm_gets_an_equal_share_while_its_rewards_are_late(files, name):
    """After its first decision a fifth at most, and the others go on as they would without it."""
    player, before = with_a_new_arm(files, name)
    decisions = [player.select()]
    while decisions[-1] != ARMS and len(decisions) < LATE:  # it must have one that waits first
        decisions.append(player.select())
    uncapped = by_policy(player)
    p = player.probabilities()
    if uncapped[ARMS] > 1 / 5:
        np.testing.assert_allclose(p, [*(before * 4 / 5), 1 / 5], rtol=1e-12)
    else:
        np.testing.assert_array_equal(p, uncapped)
    expected = LATE * p
    pulls = np.bincount([player.select() for _ in range(LATE)], minlength=5)
    se = np.sqrt(expected * (1 - p))
    assert_z(pulls[se > 0], se[se > 0], expected[se > 0])
    assert pulls[ARMS] < 0.27 * LATE  # 5 standard errors above a fifth
    if name in ("ucb1", "ucb-v", "kl-ucb", "bayes-ucb", "greedy"):  # and would get it all
        assert uncapped[ARMS] > 0.99
        assert p[ARMS] == pytest.approx(1 / 5)
    other = Player(files(name))
    other.restore(json.loads(json.dumps(player.state())))
    np.testing.assert_array_equal(other.probabilities(), p)


@pytest.mark.parametrize("name", FLEXIBLE)
def test_a_new_arm_whose_rewards_come_at_once_is_played_as_the_policy_says(files, name):
    player, _ = with_a_new_arm(files, name, rounds=20)
    for i in range(30):
        p = by_policy(player)
        arm = player.select()
        assert arm.propensity == (1 if i == 0 and player.policy.opens else p[arm])
        player.update(arm, float(arm == ARMS))


@pytest.mark.parametrize("name", [name for name in FLEXIBLE if KNOWN[name].batches])
def test_a_batch_is_no_way_around_the_share_of_a_new_arm(files, name):
    """Of a hundred pulls at once it gets what it would one by one: the first, and a fifth of the rest."""
    player, before = with_a_new_arm(files, name)
    uncapped = by_policy(player)
    first, second = player.select_many(100), player.select_many(100)
    for batch, most in ((first, (1 + 99 / 5) / 100), (second, 1 / 5)):
        if uncapped[ARMS] > most:
            np.testing.assert_allclose(batch.propensities, [*(before * (1 - most)), most], rtol=1e-12)
        else:
            np.testing.assert_array_equal(batch.propensities, uncapped)
    player.update_many(first, [0] * 5)
    player.update_many(second, [0] * 5)
    if not player.policy.bounded:
        after = by_policy(player)
        np.testing.assert_array_equal(player.probabilities(), after)


@pytest.mark.parametrize("name", ["kl-softelim", "softelim", "ucb1"])
def test_a_new_arm_that_is_good_soon_gets_what_it_deserves(files, name):
    """With rewards two hundred decisions late it has an equal share at first, and most of all after four
    such delays: what is known of it doubles in each.
    """
    player, _ = with_a_new_arm(files, name)
    for arm in range(4):  # which are known to be bad
        player.memory.state.pulls[arm], player.memory.state.sums[arm] = 2000, 100
    player.memory._p, waiting, share = None, [], []
    for t in range(1600):
        waiting.append(player.select())
        share.append(waiting[-1] == ARMS)
        if t >= 200:
            late = waiting[t - 200]
            player.update(late, float(late == ARMS))
    assert 0.05 < np.mean(share[:200]) < 0.35
    assert np.mean(share[-400:]) > 0.95


def test_several_new_arms_share_alike(files):
    player, before = with_a_new_arm(files, "ucb1")
    player.add_arm()
    while len({arm for arm in (player.select() for _ in range(50)) if arm >= ARMS}) < 2:
        pass
    np.testing.assert_allclose(player.probabilities(), [*(before * 4 / 6), 1 / 6, 1 / 6])
    for arm in range(ARMS):
        player.retire(arm)
    np.testing.assert_allclose(player.probabilities()[ARMS:], 1 / 2)


def test_arms_are_fixed_where_a_policy_was_made_for_them(files):
    for name in ("lstm", "dqn", "optimal-thresholds", "exp3", "split"):
        player = Player(files(name), seed=0)
        with pytest.raises(gb.InputError, match="none can be added"):
            player.add_arm()
        with pytest.raises(gb.InputError, match="none can be retired"):
            player.retire(0)


def test_beyond_the_horizon(files):
    for name, goes_on in (("softelim", True), ("index", True), ("gittins", False)):
        player = Player(files(name), seed=0)
        for _ in range(HORIZON):
            player.update(player.select(), 1)
        if goes_on:
            assert player.probabilities().sum() == pytest.approx(1)
        else:
            with pytest.raises(gb.InputError, match="60 rounds, and all are played"):
                player.select()


def broken_states(good):
    """States that no player has returned, each wrong in one way."""
    memory, first = good["memory"], good["open"][0]

    def change(**changes):
        return good | changes

    yield None
    yield []
    yield change(format="else")
    yield change(version=1)
    yield change(fingerprint="0" * 16)
    yield {key: value for key, value in good.items() if key != "drawn"}
    yield change(more=1)
    for key in ("seed", "drawn", "decisions", "numbered", "arms", "rounds"):
        for value in (-1, 1.5, "1", None, True, 2**64):
            yield change(**{key: value})
    yield change(arms=10**9)
    for active in ([], [0, 0], [9], "01", [0.0, 1.0], [None]):
        yield change(active=active)
    yield change(fresh=[7])
    yield change(memory={})
    for name in memory:
        for value in ([], "x", None, [1e400, 0, 0, 0], [float("nan")] * 4, [-1, 0, 0, 0], [[1]], {}):
            yield change(memory=memory | {name: value})
    yield change(memory=memory | {"sums": [100, 0, 0, 0]})
    yield change(finished=[1])
    yield change(finished=[first["id"]])
    yield change(open=[first, first])
    yield change(open={})
    for key, value in (("arm", 99), ("arm", -1), ("p", 0), ("p", 2), ("p", "x"), ("id", ""), ("drawn", -1)):
        yield change(open=[first | {key: value}])
    yield change(open=[{"op": "update"}])


def test_states_that_can_not_be_are_refused_and_nothing_changes(files):
    player = Player(files("ts"), seed=0)
    player.update(player.select("done"), 1)
    player.select("open")
    good = player.state()
    for bad in broken_states(good):
        with pytest.raises(gb.InputError):
            player.restore(bad)
    assert player.state() == good


def test_states_of_another_policy_are_refused(files):
    with pytest.raises(gb.InputError, match="another policy"):
        Player(files("ts"), seed=0).restore(Player(files("softelim"), seed=0).state())
    with pytest.raises(gb.InputError, match="another policy"):
        Player(files("ts"), seed=0).restore(Player(files("ts", arms=5), seed=0).state())


def test_players_share_what_they_play(files):
    first = Player(files("index"), seed=0)
    second = Player(first.playable, seed=1)
    assert first.playable is second.playable
    first.update(first.select(), 1)
    assert (first.rounds, second.rounds) == (1, 0)
    assert sum(second.state()["memory"]["pulls"]) == 0


@pytest.mark.parametrize("given", [3, None, b"x", ["policy"]])
def test_what_is_no_policy_is_refused(given):
    with pytest.raises(gb.InputError, match="policy file"):
        Player(given)


@pytest.mark.parametrize("name", ALL)
def test_what_was_learned_is_played_without_a_file(files, name):
    given = learned(name)
    player, other = Player(given, seed=3), Player(str(files(name)), seed=3)
    assert player.playable.fingerprint == other.playable.fingerprint
    assert [player.select() for _ in range(5)] == [other.select() for _ in range(5)]


def test_players_without_a_seed_draw_differently(files):
    players = [Player(files("uniform")) for _ in range(3)]
    drawn = {tuple(int(player.select()) for _ in range(60)) for player in players}
    assert len(drawn) == len({player.seed for player in players}) == 3
    first = players[0]
    again = Player(first.playable, first.seed)  # a seed can be read, and given again
    assert tuple(int(again.select()) for _ in range(60)) in drawn
    other = Player(first.playable)
    other.restore(json.loads(json.dumps(first.state())))
    assert [int(other.select()) for _ in range(60)] == [int(first.select()) for _ in range(60)]
    for seed in (-1, 1.5, "1", True, 2**63):
        with pytest.raises(gb.InputError, match="seed must be a whole number"):
            Player(first.playable, seed)


def test_a_player_is_not_copied(files):
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(gb.InputError, match="use state and restore"):
            copied(Player(files("ts")))


def damaged(arrays, about):
    """Policy files that say what can't be."""
    yield arrays, about | {"policy": "softerlim"}
    yield arrays, about | {"policy": 3}
    yield arrays, about | {"arms": 0}
    yield arrays, about | {"arms": "4"}
    yield arrays, about | {"arms": 2**31 - 1}
    yield arrays, about | {"horizon": -1}
    yield arrays, about | {"settings": None}
    yield arrays, about | {"settings": {"size": 3}}
    yield arrays, about | {"settings": about["settings"] | {"hidden": "many"}}
    yield arrays, about | {"settings": about["settings"] | {"hidden": True}}
    yield arrays, about | {"settings": about["settings"] | {"a": -1}}
    yield arrays, {key: value for key, value in about.items() if key != "horizon"}
    yield {key: value for key, value in arrays.items() if key != "params.w0"}, about
    yield arrays | {"params.more": np.zeros(3)}, about
    yield arrays | {"params.w0": arrays["params.w0"][:2]}, about
    yield arrays | {"params.w0": arrays["params.w0"] * np.float32(np.nan)}, about
    yield arrays | {"params.w0": arrays["params.w0"] + np.float32(np.inf)}, about
    yield arrays | {"params.w0": arrays["params.w0"] > 0}, about


def test_policy_files_are_read_with_distrust(files, tmp_path):
    from gradband.core import tensor_file

    arrays, about = tensor_file.load(files("index"), "policy")
    bad = tmp_path / "bad.safetensors"
    for changed, said in damaged(arrays, about):
        tensor_file.save(bad, "policy", changed, said)
        with pytest.raises(gb.InputError, match=r"bad\.safetensors"):
            Player(bad)


def test_batches_leave_no_arm_out_and_follow_single_decisions(files):
    """No arm must come first in a batch, and those that it leaves out come first afterwards."""
    player = Player(files("softelim"), seed=0)
    player.select()
    batch = player.select_many(200)
    assert min(batch) > 20
    small = Player(files("softelim"), seed=0)
    left_out = [arm for arm, pulls in enumerate(small.select_many(2)) if not pulls]
    assert [int(small.select()) for _ in left_out] == left_out
    for _ in range(30):
        player.update(player.select(), 1)
    new = player.add_arm()
    assert 0 < player.select_many(200)[new] < 200
    assert new not in player.state()["fresh"]


def test_a_batch_may_outlive_its_arms(files):
    player = Player(files("ts"), seed=0)
    batch = player.select_many(40)
    player.retire(1)
    player.add_arm()
    player.update_many(batch, [pulls // 2 for pulls in batch])
    memory = player.state()["memory"]
    assert memory["pulls"] == [batch[0], batch[2], batch[3], 0]
    assert memory["gone"] == batch[1]
    assert player.state()["rounds"] == 40


def test_an_arm_that_was_added_is_not_added_again(files):
    player = Player(files("ts"), seed=0)
    assert [player.add_arm(4), player.add_arm(4), player.add_arm(5)] == [4, 4, 5]
    for arm in (3, 7, "", 6.0, True):
        with pytest.raises(gb.InputError, match="arm"):
            player.add_arm(arm)


@pytest.mark.parametrize(
    "id", [["x"], {}, 3, 0.5, True, b"x", ("a",), "#" + "9" * 5000, "#0", "#1", "\ud800" * 300]
)
def test_odd_ids_are_refused(files, id):
    player = Player(files("softelim"), seed=0)
    for attempt in (player.select, lambda id: player.select_many(5, id), lambda id: player.update(id, 1)):
        with pytest.raises(gb.InputError):
            attempt(id)
    assert player.state()["decisions"] == 0


def test_decisions_and_batches_can_be_copied(files):
    player = Player(files("ts"), seed=0)
    for made in (player.select(), player.select_many(3)):
        copied = copy.deepcopy(made)
        assert (copied, copied.id) == (made, made.id)
    with pytest.raises(gb.InputError, match="is a batch"):
        player.update(made, 1)
    player.update_many(made, [np.int64(0)] * ARMS)


def test_a_state_shares_nothing_with_its_player(files):
    player = Player(files("ts"), seed=0)
    player.select_many(5)
    before = json.dumps(player.state())
    state = player.state()
    state["open"][0]["arms"][0] = 77
    state["memory"]["pulls"][0] = 9
    assert json.dumps(player.state()) == before


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("lstm", {"output": [1e30] * 50}),
        ("lstm", {"cell": [1e30] * 50}),
        ("lstm", {"output": [[0] * 50]}),
        ("exp3", {"sums": ["1"] * 4}),
        ("exp3", {"sums": [0, 0, 0, 2**2000]}),
        ("optimal-graph", {"number": 10**9}),
        ("optimal-graph", {"number": 10**30}),
        ("optimal-graph", {"number": 0.5}),
        ("gittins", {"pulls": [5, 0, 0, 0]}),
        ("gittins", {"sums": [0.5, 0, 0, 0], "pulls": [1, 0, 0, 0]}),
        ("explore-then-commit", {"decided": -1}),
        ("explore-then-commit", {"length": 10**6}),
        ("explore-then-commit", {"pulls": [-1, 0, 0, 0]}),
        ("ucb1", {"gone": 3}),
    ],
)
def test_memories_that_can_not_be_are_refused(files, name, changes):
    player = Player(files(name), seed=0)
    state = player.state()
    with pytest.raises(gb.InputError, match="memory|node|whole numbers"):
        player.restore(state | {"rounds": 1, "memory": state["memory"] | changes})


def test_a_policy_for_some_rounds_is_not_restored_beyond_them(files):
    """Whatever arms a file says were retired: a table has no entry for it."""
    player = Player(files("gittins"), seed=0)
    player.retire(1)
    state = player.state()
    assert state["memory"]["gone"] == 0
    for gone in (-1, 1, 10**9):
        with pytest.raises(gb.InputError, match="whole numbers"):
            player.restore(state | {"memory": state["memory"] | {"gone": gone}})
    player.restore(state | {"rounds": 59, "memory": state["memory"] | {"gone": 59}})
    assert player.probabilities().sum() == pytest.approx(1)


def test_numbers_without_bounds_end_in_one_sentence(files, tmp_path):
    player = Player(files("exp3"), seed=0)
    state = player.state()
    player.restore(state | {"memory": state["memory"] | {"sums": [3e38, -3e38, 0, 0]}})
    assert player.probabilities().sum() == pytest.approx(1)
    huge = learned("ts", a=1e20)
    huge.save(tmp_path / "huge.safetensors")
    with pytest.raises(gb.InputError, match="a of ts must be a finite number in"):
        Player(tmp_path / "huge.safetensors")


def test_the_arm_to_stay_with_is_among_those_that_are_left(files):
    player = Player(files("softelim"), seed=0)
    for _ in range(40):
        arm = player.select()
        player.update(arm, float(arm in (0, 2)))
    assert player.recommend() in (0, 2)
    player.retire(0)
    assert player.recommend() == 2
    player.retire(2)
    assert player.recommend() in (1, 3)
