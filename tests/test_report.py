"""Reports: closed forms, brute force, the order of events, and simulated tests with known means."""

import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import pytest
from conftest import Z, assert_z
from scipy import integrate, special, stats

import gradband as gb
from gradband.play.reporting import intervals, posterior, scores
from gradband.play.reporting.allocation import Allocation
from gradband.play.reporting.ledger import Ledger
from gradband.play.reporting.report import Report
from gradband.play.reporting.value import value_of

ROOT = Path(__file__).parents[1]


def benchmark():
    spec = importlib.util.spec_from_file_location("intervals", ROOT / "benchmarks" / "intervals.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_up(count=600, means=(0.2, 0.3, 0.5), seed=0, reward=None, wait=None, delay=0.0, floor=0.05):
    """Events of a test whose policy prefers good arms, as a player records them."""
    rng = np.random.default_rng(seed)
    arms, time, due = len(means), 1e9, []
    pulls, sums = np.ones(arms), np.zeros(arms)
    reward = reward or (lambda arm: float(rng.random() < means[arm]))
    for i in range(count):
        time += 10.0
        while due and due[0][0] <= time:
            at, event = due.pop(0)
            yield event | {"t": at}
        w = np.exp(4 * sums / pulls)
        p = floor + (1 - arms * floor) * w / w.sum()
        arm = int(rng.choice(arms, p=p / p.sum()))
        ps = [round(float(x), 6) for x in p]
        yield {
            "op": "select",
            "id": f"#{i + 1}",
            "arm": arm,
            "p": float(p[arm]),
            "ps": ps,
            "drawn": i,
            "t": time,
        }
        y = reward(arm)
        pulls[arm] += 1
        sums[arm] += y
        if y or wait is None:
            event = {"op": "update", "id": f"#{i + 1}", "reward": y, "heard": y, "drawn": i}
            due.append((time + (rng.exponential(delay) if delay else 0.0), event))
            due.sort(key=lambda entry: entry[0])
    for at, event in due:
        yield event | {"t": at}


def fold(events, arms=3, **settings):
    ledger = Ledger(arms, **settings)
    for event in events:
        ledger.observe(event)
    return ledger


def close(one, other, tolerance=1e-9):
    """Whether two results for JSON agree, numbers up to rounding."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key], tolerance) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(lambda a, b: close(a, b, tolerance), one, other))
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    return one == other


# Closed forms


def test_aipw_of_a_balanced_experiment_is_the_textbook_difference_in_means():
    rng = np.random.default_rng(1)
    y = rng.normal(2.0, 3.0, (2, 50))
    rows = [(arm, y[arm, i]) for i in range(50) for arm in range(2)]
    pulls = np.array([[arm == 0, arm == 1] for arm, _ in rows], float)
    rewards = pulls * np.array([[value] for _, value in rows])
    half, means = np.full((100, 2), 0.5), np.tile(y.mean(1), (100, 1))
    sums = scores.arm_sums(scores.Played(half, half, means, pulls, rewards, rewards**2)).sum(1)
    estimate, se = intervals.aipw_estimate(sums)
    assert estimate == pytest.approx(y.mean(1))
    assert estimate[1] - estimate[0] == pytest.approx(y[1].mean() - y[0].mean())
    textbook = math.sqrt(y[0].var() / 50 + y[1].var() / 50)
    assert math.hypot(*se) == pytest.approx(textbook)


def test_the_score_interval_of_a_single_arm_is_wilsons():
    pulls, ones = np.full((40, 1), 1.0), np.array([[1.0]] * 9 + [[0.0]] * 31)
    whole, zero = np.ones((40, 1)), np.zeros((40, 1))
    sums = scores.arm_sums(scores.Played(whole, whole, zero, pulls, ones, ones)).sum(1)
    (low,), (high,) = intervals.score_interval(sums, 0.95)
    wilson = stats.binomtest(9, 40).proportion_ci(0.95, "wilson")
    assert (low, high) == pytest.approx((wilson.low, wilson.high))


def test_the_predicted_variance_of_a_score_is_exact():
    """By enumeration: h²Γ² for both arms, both rewards."""
    e, m, mu = np.array([0.2, 0.8]), np.array([0.1, 0.6]), np.array([0.3, 0.5])
    first, second = np.zeros(2), np.zeros(2)
    for arm in range(2):
        for y in (0.0, 1.0):
            pulled = np.eye(2)[arm]
            sums = scores.arm_sums(scores.Played(e, e, m, pulled, y * pulled, y * pulled))
            chance = e[arm] * (mu[arm] if y else 1 - mu[arm])
            first += chance * sums[1]
            second += chance * sums[4]
    assert first == pytest.approx(np.sqrt(e) * mu)
    assert second - first**2 == pytest.approx(mu * (1 - mu) + (1 - e) * (m - mu) ** 2)


@pytest.mark.parametrize(
    ("pulls", "ones"), [(0, 0), (1, 1), (7, 0), (50, 11), (1000, 30), (20, 20), (9, 4.5)]
)
def test_the_confidence_sequence_contains_what_brute_force_finds(pulls, ones):
    grid = np.linspace(0, 1, 200_001)[1:-1]
    log = special.betaln(ones + 0.5, pulls - ones + 0.5) - special.betaln(0.5, 0.5)
    against = log - ones * np.log(grid) - (pulls - ones) * np.log1p(-grid)
    inside = grid[against < math.log(20)]
    low, high = intervals.sequence(np.array([float(pulls)]), np.array([float(ones)]), 0.95)
    assert low[0] == pytest.approx(inside[0] if ones else 0, abs=6e-6)
    assert high[0] == pytest.approx(inside[-1] if ones < pulls else 1, abs=6e-6)


def test_the_confidence_sequence_of_bernoulli_rewards_is_a_martingale_by_enumeration():
    """E[exp(evidence)] = 1 after any number of pulls, and ≤ 1 for other rewards in [0, 1]."""
    for n in (1, 2, 7):
        ones = np.arange(n + 1.0)
        chance = stats.binom.pmf(ones, n, 0.3)
        found = np.exp(intervals.evidence_against(np.full(n + 1, 0.3), np.full(n + 1, float(n)), ones))
        assert (chance * found).sum() == pytest.approx(1)
    half = np.exp(intervals.evidence_against(np.array([0.5]), np.array([2.0]), np.array([1.0])))
    assert half[0] < 1


def test_a_bet_on_a_lead_is_fair_if_both_arms_are_alike_and_loses_if_the_other_is_better():
    e, m = np.array([0.3, 0.7]), np.array([0.6, 0.2])

    def expectation(mu):
        total = 0.0
        for arm in range(2):
            for y in (0.0, 1.0):
                pulled = np.eye(2)[arm]
                lead = scores.lead_sums(scores.Played(e, e, m, pulled, y * pulled, y * pulled))
                assert lead[1, 0] == lead[0, 0] == 0
                total += e[arm] * (mu[arm] if y else 1 - mu[arm]) * math.exp(lead[0, 1])
        return total

    for level in (0.01, 0.4, 0.9):
        assert expectation((level, level)) == pytest.approx(1)
    assert expectation((0.3, 0.5)) < 1 < expectation((0.5, 0.3))


def test_a_batch_is_the_same_as_its_pulls_one_by_one():
    rng = np.random.default_rng(2)
    e, m = rng.dirichlet(np.ones(3)), rng.random(3)
    arms = rng.integers(0, 3, 12)
    ys = (rng.random(12) < 0.4).astype(float)
    pulls = np.eye(3)[arms]
    single = scores.Played(
        *(np.tile(x, (12, 1)) for x in (e, e, m)), pulls, pulls * ys[:, None], pulls * ys[:, None]
    )
    sums = (pulls * ys[:, None]).sum(0)
    batch = scores.Played(e, e, m, pulls.sum(0), sums, sums)
    active = np.ones(3, bool)
    assert scores.arm_sums(batch) == pytest.approx(scores.arm_sums(single).sum(1))
    assert scores.lead_sums(batch) == pytest.approx(scores.lead_sums(single).sum(0))
    many = scores.value_sums(single, np.tile(active, (12, 1))).sum(1)
    assert scores.value_sums(batch, active) == pytest.approx(many)


def test_p_best_and_the_expected_loss_of_two_arms_agree_with_quadrature():
    pulls, ones = np.array([40.0, 25.0]), np.array([9.0, 8.0])
    one, two = (stats.beta(1 + s, 1 + n - s) for n, s in zip(pulls, ones, strict=True))
    best, _ = integrate.quad(lambda x: two.pdf(x) * one.cdf(x), 0, 1, epsabs=1e-12)
    regret, _ = integrate.quad(lambda x: one.cdf(x) * two.sf(x), 0, 1, epsabs=1e-12)  # E[(μ₂ − μ₁)⁺]
    p, loss = posterior.best_and_loss(posterior.beta_posterior(pulls, ones))
    assert p[1] == pytest.approx(best, abs=1e-9)
    assert loss[0] == pytest.approx(regret, abs=1e-9)


def test_p_best_of_normal_means_is_that_of_their_difference():
    pulls, sums = np.array([50.0, 80.0]), np.array([100.0, 190.0])
    squares = np.array([50 * 4.0 + 49 * 9.0, 80 * 2.375**2 + 79 * 4.0])
    spread = math.sqrt(9 / 50 + 4 / 80)
    p, loss = posterior.best_and_loss(posterior.normal_posterior(pulls, sums, squares))
    assert p[1] == pytest.approx(stats.norm.cdf(0.375 / spread), abs=1e-9)
    z = 0.375 / spread
    assert loss[0] - loss[1] == pytest.approx(0.375)
    assert loss[1] == pytest.approx(spread * (stats.norm.pdf(z) - z * stats.norm.sf(z)), abs=1e-9)


def test_value_against_an_equal_split_by_the_usual_formulas():
    rng = np.random.default_rng(3)
    n, e = 400, np.array([0.2, 0.3, 0.5])
    arms = rng.choice(3, n, p=e)
    y = rng.normal(arms, 1.0)
    pulls = np.eye(3)[arms]
    e_rows, m = np.tile(e, (n, 1)), np.tile([0.1, 0.9, 2.2], (n, 1))
    played = scores.Played(e_rows, e_rows, m, pulls, pulls * y[:, None], pulls * y[:, None] ** 2)
    found = value_of(scores.value_sums(played, np.ones((n, 3), bool)).sum(1))
    w = 1 / (3 * e[arms])
    dr = m[0].mean() + w * (y - m[0][arms])
    snips = (w * y).sum() / w.sum()
    assert found.split["ips"].mean == pytest.approx((w * y).mean())
    assert found.split["ips"].se == pytest.approx((w * y).std() / math.sqrt(n))
    assert found.split["snips"].mean == pytest.approx(snips)
    assert found.split["snips"].se == pytest.approx(math.sqrt((w**2 * (y - snips) ** 2).sum()) / w.sum())
    assert found.split["dr"].mean == pytest.approx(dr.mean())
    assert found.gain["dr"].se == pytest.approx((y - dr).std() / math.sqrt(n))
    assert found.gain["ips"].se == pytest.approx((y - w * y).std() / math.sqrt(n))
    influence = (y - y.mean()) - w * (y - snips) / w.mean()
    assert found.gain["snips"].se == pytest.approx(math.sqrt((influence**2).mean() / n))
    for name, estimate in found.split.items():
        assert_z(estimate.mean, estimate.se, 1.0)
        assert found.gain[name].mean == pytest.approx(y.mean() - estimate.mean)


# Events


def test_a_report_has_the_estimates_that_a_plain_loop_finds():
    events = list(made_up(300))
    report = fold(events).report()
    made = {event["id"]: event for event in events if event["op"] == "select"}
    pulls, sums, weight, total = np.zeros((4, 3))
    means = {}
    for event in events:
        if event["op"] == "select":
            means[event["id"]] = scores.plug_in_means(pulls, sums)
            continue
        decision, m = made[event["id"]], means[event["id"]]
        arm, e = decision["arm"], np.array(decision["ps"])
        score = m.copy()
        score[arm] += (event["reward"] - m[arm]) / decision["p"]
        weight += np.sqrt(e)
        total += np.sqrt(e) * score
        pulls[arm] += 1
        sums[arm] += event["reward"]
    assert [arm.estimate.mean for arm in report.arms] == pytest.approx(list(total / weight))
    assert [arm.naive for arm in report.arms] == pytest.approx(list(sums / pulls))
    assert [arm.pulls for arm in report.arms] == pulls.tolist()
    assert sum(arm.best for arm in report.arms) == pytest.approx(1)
    assert sum(arm.share for arm in report.arms) == pytest.approx(1)
    for arm in report.arms:
        assert arm.interval[0] < arm.estimate.mean < arm.interval[1]
        assert arm.always_valid[0] < arm.naive < arm.always_valid[1]


@pytest.mark.parametrize("wait", [None, 500.0])
def test_reports_in_between_change_nothing(wait):
    events = list(made_up(700, delay=200.0, wait=wait))
    ledger = Ledger(3, wait=wait)
    for place, event in enumerate(events):
        ledger.observe(event)
        if place % 50 == 0:
            ledger.report(now=event["t"] + 1e6)
    assert close(ledger.report().as_dict(), fold(events, wait=wait).report().as_dict(), 0)


def test_with_a_wait_the_order_of_rewards_does_not_matter():
    events = list(made_up(500, wait=1e5))
    rng, last = np.random.default_rng(0), events[-1]["t"]
    selects = [event for event in events if event["op"] == "select"]
    updates = [event | {"t": last} for event in events if event["op"] == "update"]
    want = fold([*selects, *updates], wait=1e5).report(now=last + 2e5).as_dict()
    assert want["counted"] == 500
    assert want["defaults"] == 500 - len(updates)
    for _ in range(3):
        shuffled = [updates[i] for i in rng.permutation(len(updates))]
        assert close(fold([*selects, *shuffled], wait=1e5).report(now=last + 2e5).as_dict(), want)


def test_without_a_wait_the_order_of_rewards_changes_estimates_only():
    events = list(made_up(300))
    selects = [event for event in events if event["op"] == "select"]
    updates = [event | {"t": events[-1]["t"]} for event in events if event["op"] == "update"]
    one, other = (fold([*selects, *some]).report() for some in (updates, updates[::-1]))
    for a, b in zip(one.arms, other.arms, strict=True):
        assert (a.pulls, a.naive, a.always_valid) == (b.pulls, b.naive, b.always_valid)
        assert a.best == pytest.approx(b.best)
        assert a.estimate.mean == pytest.approx(b.estimate.mean)  # nothing was known at any decision


def test_only_decisions_older_than_the_wait_count():
    ledger = Ledger(2, wait=100.0)
    for i, t in enumerate((0.0, 10.0, 60.0)):
        ledger.observe(
            {"op": "select", "id": str(i), "arm": 0, "p": 0.5, "ps": [0.5, 0.5], "drawn": 0, "t": t}
        )
    ledger.observe({"op": "update", "id": "2", "reward": 1.0, "heard": 1.0, "drawn": 0, "t": 61.0})
    assert ledger.report().counted == 0
    early = ledger.report(now=111.0)
    assert (early.counted, early.defaults, early.waiting, early.arms[0].naive) == (2, 2, 1, 0.0)
    late = ledger.report(now=161.0)
    assert (late.counted, late.defaults, late.arms[0].naive) == (3, 2, pytest.approx(1 / 3))
    ledger.observe(
        {"op": "update", "id": "0", "reward": 1.0, "heard": 1.0, "drawn": 0, "t": 120.0, "late": True}
    )
    assert ledger.report(now=161.0).late == 1
    assert ledger.report(now=161.0).arms[0].naive == pytest.approx(1 / 3)


def test_clicks_alone_give_unbiased_rates_with_a_wait_and_an_alarm_without():
    means = (0.1, 0.2, 0.3)
    events = list(made_up(6000, means, wait=1e4, delay=1000.0))
    last = events[-1]["t"]
    report = fold(events, wait=1e4).report(now=last + 1e5)
    for arm, mean in zip(report.arms, means, strict=True):
        assert_z(arm.estimate.mean, arm.estimate.se, mean)
    wrong = fold(events).report()
    assert all(arm.naive == 1 for arm in wrong.arms)
    assert wrong.feedback.p_value < 1e-6
    assert wrong.advice == "can't tell"
    assert "Are zeros not reported" in wrong.sentence


def test_a_mismatch_of_allocation_is_found_and_honest_logs_are_not_blamed():
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(400):
        honest = Allocation.of(3)
        for _ in range(20):
            shares = rng.dirichlet(np.ones(3), 50)
            honest.add(shares, (rng.random((50, 1)) < shares.cumsum(1)).cumsum(1).cumsum(1) == 1)
        alarms += honest.p_value < 0.05
        assert honest.observed.sum() == 1000
    assert alarms <= 20 + Z * math.sqrt(20)
    forged = []
    for event in made_up(4000):
        if event["op"] == "select" and event["arm"] == 0 and int(event["id"][1:]) % 3 == 0:
            event = event | {"arm": 1, "p": event["ps"][1]}
        forged.append(event)
    report = fold(forged).report()
    assert report.allocation.p_value < 0.01
    assert report.allocation.z[0] < -Z
    assert report.advice == "can't tell"
    assert "logged probabilities" in report.sentence


def test_events_of_version_1_lack_weights_and_times_and_the_report_says_so():
    old = [{key: value for key, value in event.items() if key not in ("t", "ps")} for event in made_up(500)]
    report = gb.report(old, arms=3)
    full = fold(made_up(500)).report()
    for arm, known in zip(report.arms, full.arms, strict=True):
        assert (arm.estimate, arm.interval) == (None, None)
        assert (arm.naive, arm.always_valid) == (known.naive, known.always_valid)
        assert arm.best == pytest.approx(known.best)
    assert any("version 1" in note for note in report.notes)
    assert report.value.gain["dr"].mean == pytest.approx(full.value.gain["dr"].mean, rel=1e-6)
    assert "Unknown" in str(report)
    with pytest.raises(gb.InputError, match="arms must be given"):
        gb.report(old)


def test_batches_count_as_their_pulls():
    rng, events = np.random.default_rng(5), []
    for i in range(200):
        p = [0.2, 0.3, 0.5]
        pulls = rng.multinomial(30, p).tolist()
        events.append({"op": "select", "id": str(i), "arms": pulls, "p": p, "drawn": i, "t": 10.0 * i})
        sums = rng.binomial(pulls, [0.1, 0.2, 0.4]).tolist()
        events.append({"op": "update", "id": str(i), "sums": sums, "drawn": i, "t": 10.0 * i + 5})
    report = gb.report(events)
    assert (report.decisions, report.counted, report.rewards) == (6000, 6000, "0 or 1")
    for arm, mean in zip(report.arms, (0.1, 0.2, 0.4), strict=True):
        assert_z(arm.estimate.mean, arm.estimate.se, mean)
    assert report.advice == "stop"
    assert report.winner == "2"
    silent = [event for event in events if event["op"] == "select"]
    zeros = fold(silent, wait=100.0, default=0.0).report(now=1e6)
    assert (zeros.counted, zeros.defaults, zeros.arms[2].naive) == (6000, 6000, 0.0)


def test_arms_come_and_go():
    ledger = fold(made_up(400, (0.1, 0.2)), arms=2, labels=["red", "blue"])
    ledger.observe({"op": "add", "arm": 2, "label": "green", "t": 2e9})
    ledger.observe({"op": "retire", "arm": 0, "t": 2e9})
    before = ledger.report()
    rng = np.random.default_rng(1)
    for i in range(3000):
        arm = 1 + int(rng.random() < 0.5)
        ledger.observe(
            {
                "op": "select",
                "id": f"b{i}",
                "arm": arm,
                "p": 0.5,
                "ps": [0.0, 0.5, 0.5],
                "drawn": 0,
                "t": 2e9 + i,
            }
        )
        y = float(rng.random() < (0, 0.2, 0.5)[arm])
        ledger.observe({"op": "update", "id": f"b{i}", "reward": y, "heard": y, "drawn": 0, "t": 2e9 + i})
    after = ledger.report()
    red, blue, green = after.arms
    assert (red.label, red.active, red.best, red.share) == ("red", False, None, 0.0)
    assert red.estimate.mean == pytest.approx(before.arms[0].estimate.mean)
    assert before.arms[2].estimate is None
    assert_z(green.estimate.mean, green.estimate.se, 0.5)
    assert_z(blue.estimate.mean, blue.estimate.se, 0.2)
    assert after.value.decisions == 3400  # every active arm had a chance in all of them
    assert (after.advice, after.winner) == ("stop", "green")
    assert len(after.series["shares"]["shares"]) <= 200
    assert after.series["shares"]["shares"][-1][0] == 0


def test_rewards_outside_the_unit_interval():
    rng = np.random.default_rng(4)
    events = list(
        made_up(3000, (1.0, 2.0, 4.0), reward=lambda arm: rng.normal((1.0, 2.0, 4.0)[arm], 2.0), floor=0.2)
    )
    report = fold(events).report()
    assert report.rewards == "any"
    for arm, mean in zip(report.arms, (1.0, 2.0, 4.0), strict=True):
        assert_z(arm.estimate.mean, arm.estimate.se, mean)
        assert arm.always_valid[0] < mean < arm.always_valid[1]
    assert (report.advice, report.winner) == ("stop", "2")
    assert any("outside [0, 1]" in note for note in report.notes)
    few = fold([events[0], events[1] | {"reward": 5.0}]).report()
    assert few.advice == "go on"
    assert [arm.estimate for arm in few.arms] == [None] * 3
    assert few.arms[0].best is None
    json.loads(json.dumps(few.as_dict(), allow_nan=False))


def test_a_tolerance_ends_tests_of_arms_that_are_alike():
    events = list(made_up(8000, (0.3, 0.3), floor=0.4))
    assert fold(events, arms=2).report().advice == "go on"
    report = fold(events, arms=2).report(tolerance=0.15)
    assert report.advice == "stop"
    assert "will do" in report.sentence


def test_nothing_to_tell_yet():
    assert Ledger(2).report().sentence == "Can't tell: there are no decisions so far."
    ledger = fold(list(made_up(1))[:1], arms=3)
    assert "1 decision waits" in ledger.report().sentence
    assert "only one arm" in Ledger(1).report().sentence
    for report in (Ledger(2).report(), ledger.report()):
        assert str(report)
        assert "<html" in report.to_html()
        assert report.to_csv().count("\n") == 1 + len(report.arms)


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (3, "must be a dictionary"),
        ({"op": "dance"}, "no op 'dance'"),
        ({"op": "select", "id": 3}, "needs an id"),
        ({"op": "select", "id": "open", "arm": 0, "p": 0.5}, "not in use"),
        ({"op": "select", "id": "a", "arm": 2, "p": 0.5}, "there is no arm 2"),
        ({"op": "select", "id": "a", "arm": 0, "p": 0}, "an arm with probability 0"),
        ({"op": "select", "id": "a", "arm": 0, "p": math.nan}, "p must be a finite number"),
        (
            {"op": "select", "id": "a", "arm": 0, "p": 0.5, "ps": [0.5] * 3},
            "ps must have a number for each",
        ),
        ({"op": "select", "id": "a", "arm": 0, "p": 0.1, "ps": [0.1, 0.1]}, "must sum to 1"),
        ({"op": "select", "id": "a", "arms": [1, 1], "p": [0, 1]}, "an arm with probability 0"),
        (
            {"op": "select", "id": "a", "arms": [math.inf, 1.0], "p": [0.5, 0.5]},
            "arms must be a finite number",
        ),
        ({"op": "select", "id": "a", "arms": [0.5, 1.0], "p": [0.5, 0.5]}, "pulls must be a whole number"),
        ({"op": "select", "id": "a", "arm": 0, "p": 0.5, "ps": [0.4, 0.6]}, "must have the chosen arm's"),
        ({"op": "update", "id": "b", "reward": 1}, "no decision 'b' waits"),
        ({"op": "update", "id": "open", "reward": "1"}, "a reward must be a finite number"),
        ({"op": "add", "arm": 7}, "next arm has the number 2"),
        ({"op": "retire", "arm": 7}, "no arm 7"),
        ({"op": "retire", "arm": 1, "t": "now"}, "t of an event"),
    ],
)
def test_bad_events_are_refused(event, told):
    ledger = Ledger(2)
    ledger.observe({"op": "select", "id": "open", "arm": 0, "p": 0.5})
    with pytest.raises(gb.InputError, match=told):
        ledger.observe(event)


@pytest.mark.parametrize(
    ("given", "told"), [({"confidence": 1.0}, "below 1"), ({"tolerance": -1.0}, "tolerance")]
)
def test_bad_settings_are_refused(given, told):
    with pytest.raises(gb.InputError, match=told):
        Ledger(2).report(**given)
    with pytest.raises(gb.InputError, match="labels must name all 2 arms"):
        Ledger(2, ["a"])


# Coverage, as measured at length by benchmarks/intervals.py


@pytest.fixture(scope="module")
def measured():
    module = benchmark()
    setting = module.Setting((0.3, 0.35, 0.4), 40, 50)
    return module.simulate(module.thompson, setting, 2000, seed=11)


def test_intervals_cover_as_often_as_they_say(measured):
    n = measured["tests"]
    se = math.sqrt(0.95 * 0.05 / n)
    assert_z(np.array(measured["inside"]["score"]) / n, se, 0.95)
    assert np.all(np.array(measured["missed"]) / n < 0.05)
    assert measured["missed_any"] / n < 0.05
    assert measured["wrong"] / n < 0.05


def test_naive_means_are_biased_and_miss_under_peeking(measured):
    n = measured["tests"]
    naive, estimate = (np.array(found) / n for found in measured["bias"])
    spread = np.array(measured["bias2"][0]) / n - naive**2
    assert np.all((naive / np.sqrt(spread / n))[:2] < -Z)
    assert np.all(np.abs(estimate) < np.abs(naive))
    assert np.all(np.array(measured["peeked_naive"]) / n > 0.2)


def test_a_report_is_a_result():
    report = gb.report(made_up(50))
    assert isinstance(report, Report)
    assert json.loads(json.dumps(report.as_dict()))["arms"][0]["label"] == "0"
