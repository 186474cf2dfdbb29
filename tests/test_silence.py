"""Decisions whose rewards never come, names of arms, and units that return."""

import json

import numpy as np
import pytest
from every_policy import ALL, ARMS

import gradband as gb
from gradband.play.player import Player
from gradband.play.settings import Settings, seconds

pytestmark = pytest.mark.brief
KNOWN = gb.policies.POLICIES | gb.policies.TABLES
FORGETFUL = [name for name, policy in KNOWN.items() if getattr(policy, "forgets", False)]
CANNOT_CORRECT = ("lstm", "lstm-gaussian", "explore-then-commit", "platform-ts", "split", "optimal-graph")
CANNOT_CORRECT += tuple(FORGETFUL)


class Clock:
    """A clock that is set by hand."""

    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


def same(first, second):
    """Whether two players know the same, whenever they did."""
    states = [json.loads(json.dumps(player.state())) for player in (first, second)]
    for state in states:
        del state["t"], state["settings"], state["finished"]
    return states[0] == states[1]


@pytest.mark.parametrize("name", ALL)
def test_a_default_is_observed_as_a_reward_that_came(files, name):
    """Whoever is silent about zeros has the same test as whoever sends them when the time is over."""
    clock, rng = Clock(), np.random.default_rng(0)
    silent = Player(files(name), seed=1, wait=10, clock=clock)
    loud = Player(files(name), seed=1, clock=clock)
    for _ in range(8):
        first, second = silent.select(), loud.select()
        assert (first, first.propensity) == (second, second.propensity)
        one = rng.random() < 0.5
        if one:
            silent.update(first, 1)
        clock.now += 10
        assert silent.expire() == (not one)
        loud.update(second, float(one))
    assert same(silent, loud)


@pytest.mark.parametrize("name", ALL)
def test_a_late_reward_corrects_the_default_or_is_refused(files, name):
    clock = Clock()
    player, punctual = (Player(files(name), seed=1, wait="10s", clock=clock) for _ in range(2))
    late, early = player.select("a"), punctual.select("a")
    assert late == early
    punctual.update(early, 1)
    clock.now += 11
    assert player.expire() == 1
    assert player.finished("a")
    with pytest.raises(gb.InputError, match="cannot be made again"):
        player.select("a")
    if name in CANNOT_CORRECT:
        before = player.state()
        with pytest.raises(gb.InputError, match=f"which {name} cannot take back"):
            player.update(late, 1)
        assert player.state() == before
        return
    player.update(late, 1)
    np.testing.assert_allclose(player.probabilities(), punctual.probabilities(), rtol=1e-12)
    assert player.rounds == punctual.rounds == 1
    for repeated in (1, 0):
        with pytest.raises(gb.InputError, match="has its reward already"):
            player.update("a", repeated)


@pytest.mark.parametrize("name", ["ts", "exp3", "ucb-v", "softelim"])
def test_batches_expire_and_are_corrected_too(files, name):
    clock = Clock()
    player, punctual = (Player(files(name), seed=1, wait="1m", clock=clock) for _ in range(2))
    batch, same_batch = player.select_many(40), punctual.select_many(40)
    sums = [pulls // 2 for pulls in batch]
    punctual.update_many(same_batch, sums)
    clock.now += 60
    assert player.expire() == 1
    assert player.rounds == 40
    with pytest.raises(gb.InputError, match="its sum cannot be"):
        player.update_many(batch, [41] + [0] * (ARMS - 1))
    with pytest.raises(gb.InputError, match="is a batch"):
        player.update(batch, 1)
    player.update_many(batch, sums)
    np.testing.assert_allclose(player.probabilities(), punctual.probabilities(), rtol=1e-12)
    with pytest.raises(gb.InputError, match="has its reward already"):
        player.update_many(batch, sums)


def test_a_default_between_zero_and_one_is_rounded_at_random(files):
    clock = Clock()
    player = Player(files("ts"), seed=1, wait=1, default=0.5, clock=clock)
    for _ in range(200):
        player.select()
    clock.now += 1
    assert player.expire() == 200
    assert 60 < sum(player.state()["memory"]["sums"]) < 140
    with pytest.raises(gb.InputError, match="default must be 0 or 1 too, not 0.5"):
        player.select_many(5)
    with pytest.raises(gb.InputError, match="a reward of ts must be a finite number"):
        Player(files("ts"), wait=1, default=-1)


def test_selecting_and_updating_expire_by_the_clock(files):
    clock, events = Clock(), []
    player = Player(files("ucb1"), seed=0, record=events.append, wait=5, clock=clock)
    player.select("a")
    clock.now += 3
    player.select("b")
    clock.now += 2
    player.select("c")  # a is due
    clock.now += 4
    player.update("b", 1)  # b is due as well, but here is its reward
    told = [(event["op"], event["id"], event["t"]) for event in events]
    assert told == [
        ("select", "a", 1000.0),
        ("select", "b", 1003.0),
        ("expire", "a", 1005.0),
        ("select", "c", 1005.0),
        ("update", "b", 1009.0),
    ]
    assert player.expire(now=1010) == 1
    assert player.open == ()
    clock.now = 0.0  # a clock that was set back
    player.select("d")
    assert events[-1]["t"] == 1010


def test_nothing_expires_without_being_asked_to(files):
    player = Player(files("ts"), seed=0, clock=Clock())
    player.select("a")
    assert player.expire(now=1e10) == 0
    assert player.open == ("a",)
    for now in (-1, "1", float("nan"), 1e12):
        with pytest.raises(gb.InputError, match="a time must be"):
            player.expire(now)


def test_a_late_reward_of_a_retired_arm_changes_nothing(files):
    clock = Clock()
    player = Player(files("ts"), seed=0, wait=1, clock=clock)
    arm = player.select()
    clock.now += 2
    player.expire()
    player.retire(arm)
    before = player.state()["memory"]
    player.update(arm, 1)
    assert player.state()["memory"] == before


CLICKS = """Only the ones are reported, after exponential delays. Best arm's share of the pulls:"""


def share_of_best(policy, seed, wait, report_zeros):
    """The best arm's share in 500 decisions on `two-point`, one per second."""
    rng = np.random.default_rng(seed)
    means = np.array([0.6, 0.4])[:: int(rng.choice([1, -1]))]
    clock = Clock(0.0)
    player = Player(policy, seed=seed, wait=wait, clock=clock)
    arriving, share = [], 0
    for t in range(500):
        clock.now = float(t)
        for due, id, reward in [entry for entry in arriving if entry[0] <= t]:
            if player.waits(id) or wait is not None:
                player.update(id, reward)
            arriving.remove((due, id, reward))
        arm = player.select()
        share += means[arm] == 0.6
        reward = float(rng.random() < means[arm])
        if reward or report_zeros:
            arriving.append((t + 1 + rng.exponential(3), arm.id, reward))
    return share / 500


def test_clicks_alone_are_enough_where_the_player_waits():
    """As many pulls of the best arm as with all rewards, within 2 standard errors; far fewer without it."""
    softelim = gb.Player(gb.policies.SoftElim(theta=0.5).bind(2, 500)).playable
    shares = {
        kind: np.array([share_of_best(softelim, seed, wait, zeros) for seed in range(120)])
        for kind, (wait, zeros) in {
            "all rewards": (None, True),
            "clicks": (15.0, False),
            "clicks without wait": (None, False),
        }.items()
    }
    full, clicks, broken = (shares[kind].mean() for kind in shares)
    difference = shares["clicks"] - shares["all rewards"]
    se = difference.std(ddof=1) / np.sqrt(len(difference))
    print(CLICKS, full, clicks, broken, se)
    assert abs(clicks - full) < 2 * se
    assert broken < 0.6 < full - 0.15


def test_arms_have_names(files):
    player = Player(files("softelim"), seed=0, arms=["red", "blue", "green", "black"], clock=Clock())
    arm = player.select()
    assert (arm.label, player.labels[arm]) == ("red", "red")
    assert "label='red'" in repr(arm)
    assert list(player.weights()) == ["red", "blue", "green", "black"]
    assert player.add_arm("white") == player.add_arm("white") == 4
    player.retire("blue")
    assert player.arms == (0, 2, 3, 4)
    assert sum(player.weights().values()) == pytest.approx(1)
    assert list(player.weights()) == ["red", "green", "black", "white"]
    with pytest.raises(
        gb.InputError, match="no arm 'blue' to retire: the arms are red, green, black, white"
    ):
        player.retire("blue")
    other = Player(files("softelim"))
    other.restore(json.loads(json.dumps(player.state())))
    assert other.labels == player.labels == ("red", "blue", "green", "black", "white")
    assert other.settings == player.settings
    unnamed = Player(files("softelim"), seed=0)
    assert list(unnamed.weights()) == ["0", "1", "2", "3"]
    assert unnamed.select().label == "0"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"arms": ["a"]}, "has 4 arms here, but 1 names"),
        ({"arms": ["a", "b", "c", "a"]}, "must have different names"),
        ({"arms": "abcd"}, "must be a list of names"),
        ({"arms": ["", "b", "c", "d"]}, "an arm's name must be"),
        ({"arms": [1, 2, 3, 4]}, "an arm's name must be"),
        ({"wait": "soon"}, 'like "90s"'),
        ({"wait": 0}, "wait must be above 0"),
        ({"wait": -1}, "wait must be above 0"),
        ({"floor": 0.3}, "sum to 1.2"),
        ({"floor": -0.1}, "floor must be a finite number in"),
        ({"floor": 0.2, "control": 0, "control_share": 0.5}, "sum to 1.1"),
        ({"control_share": 0.5}, "control_share needs control"),
        ({"control": "red", "control_share": 0.5}, "control must be one of the arms, not 'red'"),
        ({"control": 4, "control_share": 0.5}, "control must be one of the arms, not 4"),
        ({"control": 0.5}, "control must be a whole number"),
        ({"cap": 0}, "cap must be above 0"),
        ({"cap": 0.4, "control": 0, "control_share": 0.5}, "cannot exceed the cap"),
        ({"window": 0}, "window must be a whole number"),
        ({"compact_every": 0}, "compact_every must be"),
        ({"keep_segments": -1}, "keep_segments must be"),
    ],
)
def test_settings_that_can_not_be_are_refused(files, given, says):
    with pytest.raises(gb.InputError, match=says):
        Player(files("ts"), **given)


def test_settings_are_read_as_they_were_written():
    given = Settings(
        arms=["a", "b"], wait="1.5h", floor=0.1, control="a", control_share=0.3, keep_segments=2
    )
    read = Settings.from_dict(json.loads(json.dumps(given.as_dict())))
    assert read.stored_as(given) == given
    assert given.wait == 5400
    assert [seconds(text) for text in ("90", "90s", "2m", "1d", "1w", ".5h")] == [
        *(90, 90, 120, 86400, 604800, 1800)
    ]
    for wrong in (None, [], {"waits": 3}, {"keep_segments": 1}):
        with pytest.raises(gb.InputError, match="settings must be among"):
            Settings.from_dict(wrong)
    with pytest.raises(TypeError, match="waits"):
        Player(gb.policies.UCB1().bind(2, 9), waits=3)


def test_a_unit_that_returns_has_the_decision_that_it_had(files):
    events = []
    player = Player(files("uniform"), seed=0, record=events.append)
    first = {unit: player.select(unit=unit) for unit in map(str, range(30))}
    assert not any(arm.returning for arm in first.values())
    made = len(events)
    for unit, arm in first.items():
        again = player.select(unit=unit)
        assert (again, again.id, again.propensity, again.returning) == (arm, arm.id, arm.propensity, True)
    player.update(first["3"], 1)
    assert player.select(unit="3").id == first["3"].id  # with its reward, too
    assert len(events) == made + 1
    player.retire(first["3"])
    new = player.select(unit="3")
    assert (new.returning, new.id) == (False, "#31")
    assert player.select(unit="3").id == "#31"
    assert events[-1]["unit"] == "3"
    assert player.select("mine", unit="40").id == player.select("mine", unit="40").id == "mine"
    with pytest.raises(gb.InputError, match="was not made for the unit"):
        player.select("mine", unit="41")
    for unit in ("", "x" * 300, 3, ["a"]):
        with pytest.raises(gb.InputError, match="a unit must be a string"):
            player.select(unit=unit)


def test_what_is_finished_is_remembered_within_a_window(files):
    """The sizes of all books stay bounded, and a state holds no more than they do."""
    clock = Clock()
    player = Player(files("uniform"), seed=0, window=50, wait=10, clock=clock)
    for i in range(500):
        clock.now += 1
        arm = player.select(f"d{i}" if i % 2 else None, unit=f"u{i}")
        if i % 3 == 0:
            player.update(arm, 1)
    state = player.state()
    assert len(state["finished"]) == len(state["units"]) == 50
    assert len(state["open"]) <= 10
    assert len(player.pending._queue) <= 10
    assert player.select(unit="u460").returning
    assert not player.select(unit="u440").returning
    assert not player.select("d1").returning  # long forgotten, so it is a new one
    with pytest.raises(gb.InputError, match="or got its default and left the window of 50"):
        player.update("#1", 1)
    other = Player(files("uniform"))
    other.restore(json.loads(json.dumps(player.state())))
    assert other.state() == player.state()


def test_a_policy_takes_over_from_another(files):
    clock = Clock()
    player = Player(files("softelim"), seed=0, clock=clock)
    for i in range(40):
        player.update(player.select(), i % 3 == 0)
    player.retire(1)
    waiting = player.select()
    memory = player.state()["memory"]
    player.swap(files("ts"), "the prior is known now")
    assert player.policy.name == "ts"
    assert player.state()["memory"] == memory
    assert player.open == (waiting.id,)
    player.update(waiting, 1)
    fresh = Player(files("ts", arms=3), seed=0)
    other = fresh.playable.policy.after(
        gb.policies.Counts(*map(np.array, player.state()["memory"].values()))
    )
    expected = fresh.playable.policy.probabilities({}, other)
    np.testing.assert_allclose([player.weights()[str(arm)] for arm in player.arms], expected, rtol=1e-12)
    for name in ("lstm", "exp3"):
        with pytest.raises(gb.InputError, match="both must remember counts"):
            player.swap(files(name), "why not")
    with pytest.raises(gb.InputError, match="split is for 4 arms, and the test has 3"):
        player.swap(files("split"), "why not")
    with pytest.raises(gb.InputError, match="a reason must be"):
        player.swap(files("ucb1"), "")
    halves = Player(files("softelim"), seed=0)
    halves.update(halves.select(), 0.5)
    with pytest.raises(gb.InputError, match="must be whole numbers"):
        halves.swap(files("ts"), "halves are not zeros or ones")
