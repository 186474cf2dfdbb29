"""Policies that forget, beside plain loops over all that happened; learning their rate; playing them."""

import dataclasses
import time
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradband as gb
from gradband.core.errors import InputError
from gradband.policies import Counts
from gradband.policies.forgetting import LEAST, Faded, Forgetting

pytestmark = pytest.mark.brief

ARMS, ROUNDS = 3, 40
FORGETFUL = ("discounted-softelim", "discounted-kl-softelim", "discounted-ts", "discounted-index")


def history(seed=0, rounds=ROUNDS):
    rng = np.random.default_rng(seed)
    return [(int(rng.integers(ARMS)), float(rng.random() < 0.6)) for _ in range(rounds)]


def plain_discounted(past, gamma):
    """Σ γ^(t − s) of pulls and rewards, as Raj and Kalyani write them."""
    pulls, sums = np.zeros(ARMS), np.zeros(ARMS)
    for age, (arm, reward) in enumerate(reversed(past)):
        pulls[arm] += gamma**age
        sums[arm] += gamma**age * reward
    return pulls, sums


@pytest.mark.parametrize("name", FORGETFUL)
def test_counts_are_discounted_sums(name):
    policy = gb.policies.named(name).bind(ARMS, ROUNDS)
    params = {"forgetting": np.float64(0.07)}
    state = policy.begin(params, np.int32(0))
    for t, (arm, reward) in enumerate(history()):
        state = policy.update(params, state, arm, reward)
        pulls, sums = plain_discounted(history()[: t + 1], 0.93)
        np.testing.assert_allclose(state.pulls, pulls, rtol=1e-12)
        np.testing.assert_allclose(state.sums, sums, rtol=1e-12, atol=1e-12)
        assert state.rounds == t + 1


def test_a_batch_is_forgotten_as_often_as_it_has_pulls():
    policy = gb.policies.DiscountedSoftElim().bind(2, 100)
    params = {"theta": 1.0, "forgetting": np.float64(0.02)}
    before = Faded(np.array([3.0, 5.0]), np.array([1.0, 4.0]), np.asarray(8.0))
    after = policy.update_many(params, before, np.array([4.0, 6.0]), np.array([2.0, 3.0]))
    np.testing.assert_allclose(after.pulls, before.pulls * 0.98**10 + [4, 6], rtol=1e-12)
    np.testing.assert_allclose(after.sums, before.sums * 0.98**10 + [2, 3], rtol=1e-12)
    assert after.rounds == 18


@pytest.mark.parametrize("name", FORGETFUL)
def test_the_least_rate_forgets_nothing(name):
    """Its probabilities are those of the policy without forgetting."""
    policy = gb.policies.named(name).bind(ARMS, ROUNDS)
    still = policy.as_still
    params = policy.init(jax.random.key(1)) | {"forgetting": LEAST}
    params = {key: np.asarray(leaf, np.float64) for key, leaf in params.items()}
    state, counts = policy.begin(params, np.int32(0)), still.begin(params, np.int32(0))
    for arm, reward in history():
        state, counts = policy.update(params, state, arm, reward), still.update(params, counts, arm, reward)
    found = policy.next_probabilities(params, state)
    np.testing.assert_allclose(found, still.next_probabilities(params, counts), atol=1e-6)


def plain_window_ucb(past, window, xi):
    """The index of Garivier and Moulines, from the last pulls in a list."""
    recent = past[-window:]
    index = []
    for i in range(ARMS):
        rewards = [reward for arm, reward in recent if arm == i]
        if not rewards:
            index.append(np.inf)
            continue
        bonus = np.sqrt(xi * np.log(min(len(past) + 1, window)) / len(rewards))
        index.append(sum(rewards) / len(rewards) + bonus)
    return np.array(index)


@pytest.mark.parametrize(("window", "xi"), [(7, 0.6), (1, 0.2), (40, 1.0), (0, 0.6)])
def test_the_index_of_a_window_is_that_of_its_list(window, xi):
    policy = gb.policies.SlidingWindowUCB(window=window, xi=xi).bind(ARMS, ROUNDS)
    length = window or min(ROUNDS, int(np.ceil(2 * np.sqrt(ROUNDS * np.log(ROUNDS)))))
    state, again = (policy.begin({}, number) for number in (np.int32(0), jnp.int32(0)))
    update = jax.jit(lambda state, arm, reward: policy.update({}, state, arm, reward))
    for t, (arm, reward) in enumerate(history()):
        reward = reward * 0.25 + 0.5  # exact in float32
        state, again = policy.update({}, state, arm, reward), update(again, jnp.int32(arm), reward)
        past = [(a, r * 0.25 + 0.5) for a, r in history()[: t + 1]]
        wanted = plain_window_ucb(past, length, xi)
        np.testing.assert_allclose(policy.index({}, state), wanted, rtol=1e-9)
        np.testing.assert_allclose(policy.index({}, again), wanted, rtol=1e-5)
        policy.check_state(state, t + 1)


def test_a_window_that_was_changed_by_hand_is_refused():
    policy = gb.policies.SlidingWindowUCB(window=5).bind(ARMS, ROUNDS)
    state = policy.begin({}, np.int32(0))
    for arm, reward in history():
        state = policy.update({}, state, arm, reward)
    for wrong in (
        {"pulls": state.pulls + 1},
        {"arms": state.arms + ARMS},
        {"seen": state.seen + 1},
        {"rewards": state.rewards - 3},
        {"sums": state.pulls + 1},
    ):
        with pytest.raises(InputError, match="in memory"):
            policy.check_state(state._replace(**wrong), ROUNDS)


SHORT = gb.Problem(gb.priors.Drifting(gb.priors.Beta(3), walk=8.0), horizon=150)


def test_a_search_finds_the_rate_of_thompson_sampling():
    """No value of a grid has clearly less regret, on other instances."""
    began = time.perf_counter()
    found = gb.learn("discounted-ts", SHORT, instances=1000, seed=1)
    assert 0 < found.about["training"]["seconds"] < time.perf_counter() - began
    assert found.history["params"].shape == (len(found.history["regret"]), 1)
    rates = (1e-9, 0.003, 0.03, 0.3)
    others = {f"{rate:g}": gb.policies.DiscountedTS(forgetting=rate) for rate in rates}
    table = gb.evaluate({"found": found, **others}, SHORT, instances=2000)
    for name in others:
        gap = table.difference("found", name)
        assert gap.mean < 4 * gap.se, name
    assert table.difference("found", "1e-09").mean < 0
    for option in ({"iterations": 5}, {"estimator": "self"}, {"curriculum": [10]}, {"recipe": "gradband"}):
        with pytest.raises(InputError, match=f"{next(iter(option))} does not apply to discounted-ts"):
            gb.learn("discounted-ts", SHORT, **option)


def test_a_rate_is_learned_where_means_move():
    """The usual call: forgetting is learned, and pays."""
    found = gb.learn("discounted-softelim", SHORT, iterations=5, instances=600, seed=1)
    assert 1e-3 < found.params["forgetting"] < 0.3
    params = dict(found.params) | {"forgetting": np.float32(LEAST)}
    still = gb.Learned(found.policy, found.policy.as_params(params), {}, {})
    gap = gb.evaluate({"a": found, "b": still}, SHORT, instances=4000).difference("a", "b")
    assert gap.mean < -3 * gap.se


@pytest.mark.slow
@pytest.mark.parametrize("name", ["discounted-softelim", "discounted-kl-softelim", "discounted-ts"])
def test_nothing_is_forgotten_where_means_stay(name):
    """The regret is within 1 % of that of the same policy learned without forgetting, over seeds."""
    problem = gb.problems.named("uniform-2")
    ratios = []
    for seed in range(5):
        found = gb.learn(name, problem, seed=seed)
        usual = type(found.policy).still.name
        other = usual if usual == "ts" else gb.learn(usual, problem, seed=seed)
        table = gb.evaluate({"a": found, "b": other}, problem, instances=40_000, seed=99)
        ratios.append(table["a"].regret.mean / table["b"].regret.mean)
    assert np.mean(ratios) < 1.01


def test_a_player_that_forgets_takes_late_rewards_and_no_corrections(tmp_path):
    policy = gb.policies.DiscountedSoftElim(theta=0.3, forgetting=0.1).bind(ARMS, 200)
    learned = gb.Learned(policy, policy.init(None), {}, {})
    learned.save(tmp_path / "policy.safetensors")
    player = gb.Player(tmp_path / "policy.safetensors", seed=0)
    arms = [player.select() for _ in range(6)]
    for arm in reversed(arms):  # rewards count from when they come
        player.update(arm, 1.0)
    pulls, sums = plain_discounted([(int(arm), 1.0) for arm in reversed(arms)], 1 - np.float32(0.1))
    np.testing.assert_allclose(player.memory.state.pulls, pulls, rtol=1e-6)
    assert policy.correct(player.memory.state, 0, 0.0, 1.0, 0.5) is None
    assert policy.correct_many(player.memory.state, np.zeros(3), np.ones(3), np.ones(3)) is None
    with pytest.raises(InputError, match="use a player"):
        gb.weights(learned, [3, 4, 5], [1, 2, 3])
    with pytest.raises(InputError, match="it has forgotten part of its counts"):
        player.swap(gb.policies.SoftElim().bind(ARMS, 200), "drift")


def test_a_policy_of_counts_is_swapped_for_one_that_forgets():
    policy = gb.policies.DiscountedSoftElim(theta=0.3, forgetting=0.1).bind(ARMS, 200)
    player = gb.Player(gb.policies.ThompsonSampling().bind(ARMS, 200), seed=0)
    for _ in range(5):
        player.update(player.select(), 1.0)
    player.swap(gb.Learned(policy, policy.init(None), {}, {}), "drift")
    assert player.memory.state.pulls.sum() == player.memory.state.seen == 5
    other = gb.Player(gb.policies.ThompsonSampling().bind(ARMS, 200), seed=0)
    with pytest.raises(InputError, match="its last pulls in order: counts do not determine them"):
        other.swap(gb.policies.SlidingWindowUCB().bind(ARMS, 200), "drift")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forgetful(Forgetting, gb.policies.Boltzmann):
    """A policy of the user's own, made to forget."""

    name: ClassVar[str] = "forgetful"
    still: ClassVar[type] = gb.policies.Boltzmann


def test_any_policy_of_counts_can_forget(tmp_path):
    policy = Forgetful().bind(ARMS, ROUNDS)
    found = gb.Learned(policy, policy.init(None), {}, {})
    assert set(found.params) == {"theta", "forgetting"}
    assert Forgetful.log_scale == {"theta", "forgetting"}
    found.save(tmp_path / "policy.safetensors")
    player = gb.Player(tmp_path / "policy.safetensors", trust=Forgetful)
    player.update(player.select(), 1.0)
    assert player.memory.state.seen == 1


def test_memories_that_cannot_be_are_refused():
    policy = gb.policies.DiscountedTS().bind(ARMS, 200)
    fine = policy.after(Counts(np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 2.0])))
    policy.check_state(fine, 6)
    for wrong in ({"pulls": fine.pulls * 2}, {"sums": fine.sums + 3}, {"seen": fine.seen + 9}):
        with pytest.raises(InputError, match="in memory"):
            policy.check_state(fine._replace(**wrong), 6)
    with pytest.raises(InputError, match="it forgets"):
        gb.exact.by_counts("discounted-softelim", gb.problems.named("two-point", horizon=10))
    with pytest.raises(InputError, match="forgetting of discounted-ts"):
        gb.policies.DiscountedTS(forgetting=0.0).bind(2, 10)
