"""Late rewards: gradients by enumeration, brute force in NumPy, the player, and what cannot wait."""

import dataclasses
import functools

import numpy as np
import pytest
from conftest import assert_z
from every_policy import learned

import gradband as gb
from gradband import problems
from gradband.core.errors import InputError
from gradband.engine import arrivals
from gradband.play.playable import as_playable
from gradband.play.player import Player
from gradband.policies import Exp3, SoftElim
from gradband.problems import GeometricDelay, MeasuredDelay, priors
from gradband.problems.arrival_times import measure_delay

pytestmark = pytest.mark.brief

MEANS = np.array([[0.6, 0.4], [0.2, 0.7]])
MEAN = 1.5  # of a geometric delay in pulls
TINY = gb.Problem(priors.Finite(MEANS.tolist()), 4, delay=GeometricDelay(MEAN))


def softelim(theta, pulls, sums):
    """SoftElim's probabilities [..., K] by its formula, without opening pulls."""
    means = sums / np.maximum(pulls, 1)
    weights = np.exp(-2 * (means.max(-1, keepdims=True) - means) ** 2 * pulls / theta)
    return weights / weights.sum(-1, keepdims=True)


def exp3(theta, sums):
    weights = np.exp(theta / len(sums) * (sums - sums.max()))
    return theta / len(sums) + (1 - theta) * weights / weights.sum()


@functools.cache
def enumerated(name, theta, horizon=4):
    """The expected reward with single pulls, by going through all arms, rewards and delays.

    A history is a list of (arm, reward, probability, round in which it arrives); delays beyond the horizon
    are one case.
    """
    chance = 1 / (1 + MEAN)

    @functools.cache
    def value(history, means, t):
        if t == horizon:
            return 0.0
        pulls, sums = np.zeros(2), np.zeros(2)
        for arm, reward, p, arrives in history:
            if arrives <= t:
                pulls[arm] += 1
                sums[arm] += reward / p if name == "exp3" else reward
        opened = np.eye(2)[t] if t < 2 else softelim(theta, pulls, sums)
        p = exp3(theta, sums) if name == "exp3" else opened
        total = 0.0
        for arm in np.flatnonzero(p):
            total += p[arm] * means[arm]
            for reward in (0, 1):
                likely = means[arm] if reward else 1 - means[arm]
                for delay in range(horizon - t):
                    never = delay == horizon - t - 1
                    arrives = (1 - chance) ** delay * (1 if never else chance)
                    made = (arm, reward, p[arm], t + 1 + delay)
                    total += p[arm] * likely * arrives * value((*history, made), means, t + 1)
        return total

    return np.mean([value((), tuple(means), 0) for means in MEANS])


@pytest.mark.parametrize(
    ("policy", "baseline"),
    [
        (SoftElim(theta=0.8), "self"),
        (Exp3(theta=0.4), "self"),
        pytest.param(SoftElim(theta=0.8), "optimal", marks=pytest.mark.slow),
        pytest.param(SoftElim(theta=0.8), "critic", marks=pytest.mark.slow),
        pytest.param(SoftElim(theta=0.8), "leave-one-out", marks=pytest.mark.slow),
        pytest.param(Exp3(theta=0.4), "critic", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_gradients_are_those_of_enumeration(policy, baseline):
    check_gradients(policy, baseline, TINY)


def check_gradients(policy, baseline, problem):
    name, theta, step = policy.name, policy.theta, 1e-4
    slope = (enumerated(name, theta + step) - enumerated(name, theta - step)) / (2 * step)
    found = gb.estimate(policy, problem, instances=60_000, estimator=baseline, seed=1)
    assert_z(found.mean, found.se, slope)
    best = MEANS.max(1).mean() * TINY.horizon
    assert_z(found.regrets.mean(), found.regrets.std() / 60_000**0.5, best - enumerated(name, theta))
    at_once = gb.exact.by_enumeration(policy, TINY.replace(delay=None))
    assert abs(slope - float(at_once.gradient["theta"])) > 5 * found.se[0]  # the delay matters


def test_a_calendar_has_the_same_gradients(monkeypatch):
    monkeypatch.setattr(arrivals, "FEW_AGES", 1)
    shares = GeometricDelay(MEAN).within(np.arange(1.0, 4.0))
    problem = TINY.replace(delay=MeasuredDelay((1, 2, 3), tuple(shares)))
    check_gradients(SoftElim(theta=0.8), "self", problem)


def simulated(theta, delay, means, batch, rounds, rng):
    """Expected rewards [m] of SoftElim in batches on instances [m, K], pull by pull."""
    m, arms = means.shape
    pulls, sums, gained = np.zeros((m, arms)), np.zeros((m, arms)), np.zeros(m)
    waiting = []  # arms, rewards and times of arrival of all pulls [m, batch]
    for t in range(rounds):
        p = softelim(theta, pulls, sums).cumsum(1)
        arm = (rng.random((m, batch, 1)) * p[:, None, -1:] >= p[:, None, :]).sum(2)
        mean = np.take_along_axis(means, arm, 1)
        gained += mean.sum(1)
        reward = rng.random((m, batch)) < mean
        time = t * batch + np.arange(batch) + delay(rng, (m, batch))
        waiting.append((arm, reward, time))
        pulls, sums = np.zeros((m, arms)), np.zeros((m, arms))
        for arm, reward, time in waiting:
            there = time <= (t + 1) * batch
            for i in range(arms):
                pulls[:, i] += ((arm == i) & there).sum(1)
                sums[:, i] += ((arm == i) & there & reward).sum(1)
    return gained


MEASURED = MeasuredDelay(pulls=(2, 10, 30), shares=(0.1, 0.5, 0.9))
DELAYS = {
    "geometric": (GeometricDelay(12), lambda rng, shape: rng.geometric(1 / 13, shape)),
    "measured": (
        MEASURED,
        lambda rng, shape: np.interp(rng.random(shape), (0, 0.1, 0.5, 0.9), (0, 2, 10, 30), right=1e9),
    ),
}


@pytest.mark.parametrize("kind", ["geometric", pytest.param("measured", marks=pytest.mark.slow)])
def test_batches_with_a_delay_are_those_of_a_simulation_pull_by_pull(kind):
    delay, draw = DELAYS[kind]
    batch, rounds, count = 5, 8, 4000
    problem = gb.Problem(priors.Beta(3), batch * rounds, pulls_per_round=batch, delay=delay)
    rng = np.random.default_rng(2)
    means = rng.random((count, 3))
    rewards = simulated(0.5, draw, means, batch, rounds, rng) - problem.horizon * means.mean(1)
    row = gb.evaluate(SoftElim(theta=0.5), problem, instances=10_000, seed=3).rows[0]
    se = np.hypot(rewards.std() / count**0.5, row.reward.se)
    assert_z(row.reward.mean - problem.horizon / 2, se, rewards.mean())
    at_once = gb.evaluate(SoftElim(theta=0.5), problem.replace(delay=None), instances=10_000, seed=3)
    assert (at_once.rows[0].rewards - row.rewards).mean() > 0.5


def played(playable, means, batch, rng, draw):
    """The expected reward of a test with a player that observes each reward when it arrives."""
    player, gained, waiting, time = Player(playable, seed=int(rng.integers(2**31))), 0.0, [], 0
    for _ in range(player.policy.horizon // batch):
        for _ in range(batch):
            made = player.select()
            gained += means[made]
            waiting.append((time + draw(rng, ()), made))
            time += 1
        for _, made in (each for each in waiting if each[0] <= time):
            player.update(made, float(rng.random() < means[made]))
        waiting = [each for each in waiting if each[0] > time]
    return gained


CASES = [
    ("softelim", 1, "measured"),
    ("kl-softelim", 5, "geometric"),
    ("exp3", 5, "geometric"),
    ("exp3", 1, "measured"),
    ("ts", 5, "measured"),
    ("ucb1", 1, "measured"),
    ("ts", 1, "geometric"),
    ("softelim", 1, "geometric"),
    ("index", 5, "geometric"),
]


@pytest.mark.parametrize(
    ("name", "batch", "kind"),
    [case if case == CASES[0] else pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
)
def test_a_player_with_late_rewards_earns_what_the_evaluation_says(name, batch, kind):
    delay, draw = DELAYS[kind]
    problem = gb.Problem(priors.Beta(3), 40, pulls_per_round=batch, delay=delay)
    given, rng, rewards, tests = learned(name, 3, 40), np.random.default_rng(4), [], 150
    playable = as_playable(given)
    for _ in range(tests):
        means = rng.random(3)
        rewards.append(played(playable, means, batch, rng, draw) - problem.horizon * means.mean())
    row = gb.evaluate(given, problem, instances=4000, seed=11).rows[0]
    se = np.hypot(np.std(rewards, ddof=1) / tests**0.5, row.reward.se)
    assert abs(np.mean(rewards) - (row.reward.mean - problem.horizon / 2)) < 4 * se


def test_chances_of_arrival_are_those_of_the_distribution():
    """Of a batch's rewards in random order, by counting."""
    rng = np.random.default_rng(0)
    for batch in (1, 4, 50):
        for delay, draw in DELAYS.values():
            chances, lasting = delay.hazards(batch, 30)
            time = rng.integers(batch, size=400_000) + draw(rng, 400_000)
            rounds = np.maximum(np.ceil(time / batch), 1)
            waiting = len(rounds)
            for age in range(min(6, 30)):
                chance = chances[min(age, len(chances) - 1)] if age < len(chances) or lasting else 0.0
                now = (rounds == age + 1).sum()
                assert_z(now, max(np.sqrt(waiting * chance * (1 - chance)), 1e-6), waiting * chance)
                waiting -= now
                if waiting == 0:
                    break


def test_without_a_wait_nothing_is_late():
    problem = gb.Problem(priors.Beta(2), 20, pulls_per_round=5)
    late = problem.replace(delay=GeometricDelay(0))
    one, other = (
        gb.evaluate("kl-softelim", p, instances=2000, seed=1).rows[0].rewards for p in (problem, late)
    )
    np.testing.assert_array_equal(one, other)


def test_it_is_part_of_a_problem(tmp_path):
    file = tmp_path / "mine.toml"
    text = 'horizon = 20\ndelay = {kind = "geometric", mean = 5}\n[prior]\nkind = "beta"\narms = 2\n'
    file.write_text(text)
    problem = problems.load(str(file))
    assert problem.delay == GeometricDelay(5.0)
    assert problems.parse(problem.describe()).delay == GeometricDelay(5.0)
    again = problem.replace(delay=MEASURED)
    assert problems.parse(again.describe()).delay == MEASURED


@pytest.mark.parametrize(
    ("delay", "words"),
    [
        ({"kind": "gamma"}, "unknown delay.kind 'gamma'"),
        ({"kind": "geometric"}, "'delay.mean' is missing"),
        ({"kind": "geometric", "mean": -1}, "delay.mean must be a finite number"),
        ({"kind": "geometric", "mean": 1, "sd": 2}, "unknown key 'delay.sd'"),
        ({"kind": "measured", "pulls": [5, 3], "shares": [0.5, 1.0]}, "delay.pulls must rise"),
        ({"kind": "measured", "pulls": [5], "shares": [0.0]}, "must end above 0"),
        (
            {"kind": "measured", "pulls": [5, 6], "shares": [0.5]},
            "one share for each of its 2 pulls, not 1",
        ),
        (500, "a delay must be a table"),
    ],
)
def test_wrong_delays_are_refused(delay, words):
    with pytest.raises(InputError, match=words):
        gb.Problem(priors.Beta(2), 20, delay=delay)


def test_what_cannot_wait_says_so():
    late = gb.Problem(priors.Beta(2), 20, delay=GeometricDelay(5))
    for refused in (
        lambda: gb.exact.optimum(late),
        lambda: gb.exact.by_enumeration("softelim", late),
        lambda: gb.estimate("softelim", late, estimator="luck"),
        lambda: gb.evaluate("lstm", late),
        lambda: gb.learn("index", late, imitate=gb.policies.KLSoftElim()),
    ):
        with pytest.raises(InputError, match="needs each reward before the next decision"):
            refused()
    with pytest.raises(InputError, match="a delay needs bernoulli rewards"):
        gb.Problem(priors.Gaussian(2), 20, delay=GeometricDelay(5))
    long = dataclasses.replace(MEASURED, pulls=(2.0, 10.0, 3000.0))
    with pytest.raises(InputError, match="are feasible with exp3"):
        gb.evaluate("exp3", late.replace(horizon=3000, delay=long))


def log_of_pulls(rng, experiments=40, pulls=400, mean=30.0, gone=0.2):
    """A table with one row per pull at equal distances, whose rewards come after a geometric delay."""
    owner, times = np.repeat(np.arange(experiments), pulls), np.tile(np.arange(pulls) * 60.0, experiments)
    late = rng.geometric(1 / (1 + mean), len(times)) - 1
    rewarded = np.where(rng.random(len(times)) < gone, np.nan, times + 60 * late + 30)
    arm = rng.integers(2, size=len(times))
    return {
        "experiment": owner,
        "arm": arm,
        "reward": (rng.random(len(times)) < 0.3 + 0.1 * arm).astype(int),
        "decided": times,
        "rewarded": rewarded,
    }


def test_fit_measures_delays_from_times(tmp_path):
    import polars

    table = log_of_pulls(np.random.default_rng(6))
    how = {"prior": "pooled", "horizon": 400, "pulls_per_round": 20, "progress": False}
    found = gb.fit(table, decided="decided", rewarded="rewarded", **how)
    at = np.array([1.0, 10.0, 30.0, 100.0])
    share, count = found.test.delay.within(at), (~np.isnan(table["rewarded"])).sum()
    wanted = GeometricDelay(30).within(at)
    # Between quantiles shares rise evenly, which is not quite a geometric distribution's way.
    assert_z(share, np.sqrt(wanted * (1 - wanted) / count) + 1e-3, wanted)
    assert "20 % of the rows have no time" in " ".join(found.notes)
    files = found.save(tmp_path)
    assert problems.load(files["problem"]).delay == found.problem.delay == found.test.delay
    times = {
        name: (np.datetime64("2024-05-01", "us") + (np.nan_to_num(table[name]) * 1e6).astype("m8[us]"))
        for name in ("decided", "rewarded")
    }
    frame = polars.DataFrame({**table, **times})
    frame = frame.with_columns(
        rewarded=polars.when(polars.Series(np.isnan(table["rewarded"]))).then(None).otherwise("rewarded")
    )
    frame.write_csv(tmp_path / "log.csv")
    for source in (frame, tmp_path / "log.csv"):
        again, _ = measure_delay(source, "experiment", "decided", "rewarded")
        assert again == found.test.delay


def test_times_that_make_no_sense_are_refused():
    table = log_of_pulls(np.random.default_rng(6), experiments=3, pulls=5)
    wrong = {
        "no column 'known'": ({}, "known"),
        "1 row has an earlier time in rewarded than in decided \\(2\\)": (
            {"rewarded": np.where(np.arange(15) == 1, -5.0, table["rewarded"])},
            "rewarded",
        ),
        "no time in rewarded at all": ({"rewarded": np.full(15, np.nan)}, "rewarded"),
        "row 1 does not": ({"rewarded": ["soon"] * 15}, "rewarded"),
        "2 rows have no time in decided \\(1, 2\\)": (
            {"decided": np.where(np.arange(15) < 2, np.nan, table["decided"])},
            "rewarded",
        ),
    }
    for words, (changed, column) in wrong.items():
        with pytest.raises(InputError, match=words):
            measure_delay(table | changed, "experiment", "decided", column)
    with pytest.raises(InputError, match="must be given together"):
        gb.fit(table, decided="decided")
