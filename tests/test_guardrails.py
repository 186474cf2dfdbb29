"""Guardrails in a problem: gradients by enumeration, draws of policies without a density, the player."""

import itertools
import json

import numpy as np
import pytest
from conftest import assert_z
from every_policy import learned

import gradband as gb
from gradband import problems
from gradband.play.player import Player
from gradband.policies import Exp3, SoftElim
from gradband.policies.guardrails import guard
from gradband.problems import Guardrails, priors

pytestmark = pytest.mark.brief

MEANS = np.array([[0.6, 0.4], [0.3, 0.7]])
RAILS = Guardrails(floor=0.05, control_share=0.25, cap=0.7)
SMALL = gb.Problem(priors.Finite(MEANS.tolist()), 4, guardrails=RAILS)


def softelim(theta, pulls, sums):
    """SoftElim's probabilities after opening, from its formula."""
    means = sums / np.maximum(pulls, 1)
    weights = np.exp(-2 * (means.max() - means) ** 2 * pulls / theta)
    return weights / weights.sum()


def by_hand(theta, horizon=3, floors=(0.25, 0.05), cap=0.7):
    """The reward of SoftElim within guardrails, by going through all histories in NumPy."""
    total = 0.0
    for means in MEANS:
        for history in itertools.product(itertools.product((0, 1), (0, 1)), repeat=horizon):
            mass, pulls, sums = 1.0, np.zeros(2), np.zeros(2)
            for arm, reward in history:
                fresh = np.flatnonzero(pulls == 0)
                p = np.eye(2)[fresh[0]] if len(fresh) else softelim(theta, pulls, sums)
                p = guard(p, np.array(floors), cap)
                mass *= p[arm] * (means[arm] if reward else 1 - means[arm])
                pulls[arm] += 1
                sums[arm] += reward
            total += mass * sums.sum() / len(MEANS)
    return total


def test_enumeration_is_that_by_hand():
    for theta in (0.5, 1.5):
        exact = gb.exact.by_enumeration(SoftElim(theta=theta), SMALL.replace(horizon=3))
        assert exact.reward == pytest.approx(by_hand(theta), abs=1e-12)
        slope = (by_hand(theta + 1e-5) - by_hand(theta - 1e-5)) / 2e-5
        assert float(exact.gradient["theta"]) == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize(
    "baseline", ["self", *(pytest.param(n, marks=pytest.mark.slow) for n in ("optimal", "critic", "luck"))]
)
def test_gradients_are_those_of_enumeration(baseline):
    exact = gb.exact.by_enumeration(SoftElim(theta=1.0), SMALL)
    found = gb.estimate(SoftElim(theta=1.0), SMALL, instances=40_000, estimator=baseline, seed=1)
    assert_z(found.mean, found.se, exact.gradient["theta"])
    assert_z(found.regrets.mean(), found.regrets.std() / 200, exact.regret)
    free = gb.exact.by_enumeration(SoftElim(theta=1.0), SMALL.replace(guardrails=None))
    assert abs(exact.reward - free.reward) > 0.01


def test_importance_weights_are_those_of_the_guarded_probabilities():
    exact = gb.exact.by_enumeration(Exp3(theta=0.4), SMALL)
    found = gb.estimate(Exp3(theta=0.4), SMALL, instances=40_000, seed=1)
    assert_z(found.mean, found.se, exact.gradient["theta"])


def compared(name, batch, rails, tests=150, arms=3):
    """z of a player's mean reward within guardrails against that of the evaluation."""
    horizon = 24
    problem = gb.Problem(priors.Beta(arms), horizon, pulls_per_round=batch, guardrails=rails)
    settings = {"theta": 0.3} if name == "exp3" else {}
    given, rng, rewards = learned(name, arms, horizon, **settings), np.random.default_rng(5), []
    given = gb.Learned(given.policy, given.params, {}, {"problem": problem.describe()})
    for _ in range(tests):
        means, gained = rng.random(arms), 0.0
        player = Player(given, seed=int(rng.integers(2**31)))
        for _ in range(horizon // batch):
            if batch == 1:
                arm = player.select()
                gained += means[arm]
                player.update(arm, float(rng.random() < means[arm]))
            else:
                decided = player.select_many(batch)
                gained += np.dot(decided, means)
                player.update_many(decided, rng.binomial(decided, means))
        rewards.append(gained - horizon * means.mean())
    row = gb.evaluate(given, problem, instances=4000, seed=11).rows[0]
    free = gb.evaluate(given, problem.replace(guardrails=None), instances=4000, seed=11).rows[0]
    assert name == "lstm" or (free.rewards - row.rewards).mean() > 0.1  # guardrails matter
    se = np.hypot(np.std(rewards, ddof=1) / np.sqrt(tests), row.reward.se)
    return (np.mean(rewards) - (row.reward.mean - horizon / 2)) / se


FLOORS, CAPPED = Guardrails(floor=0.1, control_share=0.3, control=1), Guardrails(floor=0.1, cap=0.5)
CASES = [
    ("softelim", 1, CAPPED),
    ("softelim", 4, FLOORS),
    ("ts", 1, FLOORS),
    ("ts", 4, FLOORS),
    ("ts", 4, CAPPED),
    ("ts", 1, CAPPED),
    ("ucb1", 1, CAPPED),
    ("ucb1", 4, FLOORS),
    ("exp3", 1, FLOORS),
    ("exp3", 4, CAPPED),
    ("index", 1, FLOORS),
    ("lstm", 1, CAPPED),
    ("split", 4, CAPPED),
]
QUICK = CASES[:1] + CASES[3:4]


@pytest.mark.parametrize(
    ("name", "batch", "rails"),
    [case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
    ids=lambda each: "capped" if each is CAPPED else "floors" if each is FLOORS else str(each),
)
def test_a_player_within_guardrails_earns_what_the_evaluation_says(name, batch, rails):
    assert abs(compared(name, batch, rails)) < 4


def test_a_learned_policy_is_played_within_its_guardrails(tmp_path):
    problem = gb.Problem(priors.Beta(3), 20, guardrails={"floor": 0.1, "control_share": 0.3, "control": 2})
    given = learned("kl-softelim", 3, 20)
    file = tmp_path / "policy.safetensors"
    gb.Learned(given.policy, given.params, {}, {"problem": problem.describe()}).save(file)
    names = ["red", "blue", "green"]
    for player in (gb.Player(file, arms=names), gb.Player(gb.load(file), arms=names)):
        assert (player.settings.floor, player.settings.control_share) == (0.1, 0.3)
        assert player.settings.control == "green"
    shares = gb.weights(file, [100, 100, 100], [100, 0, 0])
    np.testing.assert_allclose(shares, [0.6, 0.1, 0.3], atol=1e-6)
    free = gb.Player(file, floor=0.0)
    assert not free.settings.guarded
    assert not gb.Player(file, settings=gb.Settings()).settings.guarded
    test, kept = tmp_path / "test.jsonl", gb.Settings(floor=0.2)
    with gb.Player(file, journal=test, settings=kept) as player:
        player.select()
    with gb.Player(file, journal=test) as player:  # the journal's settings are the test's
        assert player.settings.floor == 0.2


def test_a_service_keeps_to_them_too(tmp_path):
    from gradband.serve import library, operations

    given = learned("kl-softelim", 2, 20)
    about = {"problem": gb.Problem(priors.Beta(2), 20, guardrails=RAILS).describe()}
    gb.Learned(given.policy, given.params, {}, about).save(tmp_path / "policy.safetensors")
    found = library.parse_policy((tmp_path / "policy.safetensors").read_bytes())
    settings = gb.Settings(arms=["a", "b"]).guarded_as_learned(found.guardrails)
    assert (settings.floor, settings.control, settings.control_share, settings.cap) == (
        0.05,
        "a",
        0.25,
        0.7,
    )
    assert operations.describe_settings({"settings": settings.as_dict(), "seed": 1})["control"] == "a"


def test_their_price_is_paired():
    """Of a policy without anything to learn from, in closed form: f₀ + (1 − Σf) / 2 of the pulls each."""
    rails = Guardrails(control_share=0.5)
    problem = gb.Problem(priors.Finite([[0.2, 0.6]]), 40, pulls_per_round=10, guardrails=rails)
    given = gb.Learned(gb.policies.Uniform().bind(2, 40), {}, {}, {})
    price = gb.price_of_guardrails(given, problem, instances=4000)
    wanted = 1000 * (0.5 * 0.6 + 0.5 * 0.2 - (0.25 * 0.6 + 0.75 * 0.2))
    assert_z(price.per_thousand.mean, price.per_thousand.se, wanted)
    assert_z(price.percent.mean, price.percent.se, 25.0)
    # At most that of two independent sums of 40 rewards.
    assert 0 < price.percent.se < 100 / 16 * np.sqrt((16 * 0.6 + 12 * 0.7) / 4000)
    assert "control_share 0.5" in price.in_words()
    assert "compared with the same policy played without" in price.in_words()
    told = json.loads(json.dumps(price.as_dict()))
    assert (told["instances"], told["learned_without"]) == (4000, False)
    assert told["per_thousand"] == {"mean": price.per_thousand.mean, "se": price.per_thousand.se}
    learned = gb.price_of_guardrails(given, problem, given, instances=4000)
    assert "compared with the same policy learned and played without" in learned.in_words()
    assert (learned.within == price.within).all()
    assert price.to_frame()["per_thousand"].to_list() == [price.per_thousand.mean]
    assert "Price of guardrails" in price._repr_html_()
    with pytest.raises(gb.InputError, match="no guardrails"):
        gb.price_of_guardrails(given, problem.replace(guardrails=None))


@pytest.mark.slow
def test_a_gain_says_what_they_cost():
    rng = np.random.default_rng(0)
    rates = rng.beta(8, 40, size=(60, 3)).ravel()
    past = {"experiment": np.repeat(np.arange(60), 3), "arm": ["A", "B", "C"] * 60}
    past |= {"pulls": np.full(180, 400), "successes": rng.binomial(400, rates)}
    how = {"prior": "pooled", "horizon": 400, "pulls_per_round": 50, "progress": False}
    fit = gb.fit(past, guardrails={"floor": 0.2}, **how)
    assert fit.problem.guardrails == Guardrails(floor=0.2)
    found = gb.gain("kl-softelim", fit, instances=1000, progress=False)
    assert "The guardrails (floor 0.2) cost" in found.in_words()
    assert found.price.per_thousand.mean > 3 * found.price.per_thousand.se > 0


def test_they_are_part_of_a_problem(tmp_path):
    file = tmp_path / "mine.toml"
    rails = "[guardrails]\nfloor = 0.05\ncontrol_share = 0.2\ncap = 0.8\n"
    file.write_text(f'horizon = 20\n[prior]\nkind = "beta"\narms = 3\n{rails}')
    problem = problems.load(str(file))
    assert problem.guardrails == Guardrails(0.05, 0.2, 0.8)
    assert problems.parse(problem.describe()).guardrails == problem.guardrails
    for wrong, words in (
        ({}, "need a floor"),
        ({"floor": 0.4}, "sum to 1.2"),
        ({"floor": 0.2, "cap": 0.1}, "cannot exceed the cap"),
        ({"floor": 0.1, "control": 3}, "arms 0 to 2, not 3"),
        ({"floors": 0.1}, "guardrails must be a table"),
        ({"cap": 0}, "cap must be above 0"),
    ):
        with pytest.raises(gb.InputError, match=words):
            problem.replace(guardrails=wrong)


def test_exact_answers_say_what_they_do_not_know():
    with pytest.raises(gb.InputError, match="the optimum does not support guardrails"):
        gb.exact.optimum(SMALL)
    with pytest.raises(gb.InputError, match="exact evaluation does not support guardrails"):
        gb.exact.by_counts("softelim", SMALL)
