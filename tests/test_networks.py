"""The LSTM, the index network and KL-SoftElim as functions: against their equations in plain NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z
from every_policy import compiled

import gradband as gb
from gradband.core import prng
from gradband.core.pytrees import flattened
from gradband.engine import blocks
from gradband.exact import by_enumeration
from gradband.gradient import estimator
from gradband.policies import LSTM, BetaSoftElim, Counts, IndexByArm, IndexNetwork, KLSoftElim

pytestmark = pytest.mark.brief

HISTORY = [(0, 1.0), (2, 0.0), (1, 1.0), (1, 1.0), (2, 1.0), (0, 0.0)]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_by_hand(params, history, hidden, bias):
    """Appendix F with its embeddings and PyTorch's cell: probabilities after each round."""
    p = {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}
    last = bias * p["head_bias"]
    h, c, seen = np.zeros(hidden), np.zeros(hidden), [last]
    for arm, reward in history:
        heard = (1 - reward) * p["reward"][0] + reward * p["reward"][1]
        gates = p["input"] @ np.concatenate([p["arm"][arm], heard]) + p["recurrent"] @ h + p["bias"]
        i, f, g, o = np.split(gates, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        seen.append(np.where(h > 0, h, 0.01 * h) @ p["head"].T + last)
    weights = np.exp(seen)
    return weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize("history", [HISTORY, [(0, 0.25), (1, 0.5), (0, 0.875)]], ids=["binary", "unit"])
def test_lstm_is_the_papers_network(history):
    """The folded gate table is the same function as the embeddings, for rewards of 0, 1 and between."""
    policy = LSTM(hidden=7, head=1.0, forget=0.0, bias_scale=3.0).bind(arms=3, horizon=10)
    params = compiled(policy, "init", jax.random.key(3))
    folded = compiled(policy, "folded", params)
    state, seen = compiled(policy, "begin", folded, jnp.int32(0)), []
    for arm, reward in history:
        seen.append(np.exp(compiled(policy, "log_probs", folded, state)))
        state = compiled(policy, "update", folded, state, jnp.int32(arm), jnp.float32(reward))
    seen.append(np.exp(compiled(policy, "log_probs", folded, state)))
    np.testing.assert_allclose(seen, lstm_by_hand(params, history, 7, 3.0), rtol=2e-5)


def test_a_larger_bias_is_the_same_first_policy():
    """Only how far a step moves it is another matter."""
    first = [LSTM(bias_scale=scale).bind(arms=5, horizon=10) for scale in (1.0, 20.0)]
    small, large = (compiled(policy, "init", jax.random.key(1)) for policy in first)
    np.testing.assert_allclose(20 * np.asarray(large["head_bias"]), small["head_bias"], rtol=1e-5)
    biases = [
        compiled(policy, "folded", params)["head_bias"]
        for policy, params in zip(first, (small, large), strict=True)
    ]
    np.testing.assert_allclose(*biases, rtol=1e-5)


def test_entropy_is_added_to_the_gradient():
    """With one round p is a softmax of 3 b, and the entropy's gradient is −3 p (log p + H)."""
    policy = LSTM(hidden=2, bias_scale=3.0).bind(arms=4, horizon=1)
    params = compiled(policy, "init", jax.random.key(0)) | {"head_bias": jnp.array([0.1, -0.2, 0.3, 0.0])}
    problem = gb.problems.named("distractors", arms=4, horizon=1)
    settings = params, prng.root(0), 0, 64, gb.Estimator()
    plain, with_it = (
        estimator.compute(
            estimator.gradient_job(policy, problem, *settings, estimator.Controls(entropy=beta)),
            blocks.workers(),
        ).mean
        for beta in (None, 0.7)
    )
    shapes = {name: np.zeros(leaf.shape) for name, leaf in params.items()}
    p = np.exp(3 * np.array(params["head_bias"]))
    p /= p.sum()
    entropy = -(p * np.log(p)).sum()
    shapes["head_bias"] = 0.7 * -3 * p * (np.log(p) + entropy)
    np.testing.assert_allclose(with_it - plain, flattened(shapes), atol=1e-6)


def test_lstm_begins_as_pytorch_does_but_for_what_is_asked():
    """Embeddings N(0, 1), weights uniform on ±1/√d; `forget` moves only the forget gate's bias."""
    policy = LSTM(forget=0.0, head=1.0).bind(arms=20, horizon=10)
    params = compiled(policy, "init", jax.random.key(0))
    for name in ("input", "recurrent", "head"):
        leaf, most = np.asarray(params[name]), 1 / np.sqrt(50)
        assert most * 0.99 < np.abs(leaf).max() <= most
        assert abs(leaf.mean()) < 5 * most / np.sqrt(3 * leaf.size)
    assert np.asarray(params["arm"]).std() == pytest.approx(1, abs=5 / np.sqrt(2 * 1000))
    other = compiled(LSTM(forget=2.0, head=0.5).bind(arms=20, horizon=10), "init", jax.random.key(0))
    difference = (np.asarray(other["bias"]) - np.asarray(params["bias"])).reshape(4, 50)
    np.testing.assert_allclose(difference, [[0] * 50, [2] * 50, [0] * 50, [0] * 50], atol=1e-6)
    np.testing.assert_allclose(other["head"], np.asarray(params["head"]) / 2, rtol=1e-6)


def test_entropy_of_a_policy_that_is_certain_at_first():
    """SoftElim pulls each arm once, with −inf for the others: 0 log 0 is 0."""
    policy = gb.policies.SoftElim().bind(arms=2, horizon=2)
    problem = gb.problems.named("two-point", horizon=2)
    settings = policy.init(None), prng.root(0), 0, 64, gb.Estimator()
    plain, with_it = (
        estimator.compute(
            estimator.gradient_job(policy, problem, *settings, estimator.Controls(entropy=beta)),
            blocks.workers(),
        ).mean
        for beta in (None, 9)
    )
    np.testing.assert_array_equal(with_it, plain)  # both rounds are certain


def counts_of(pulls, sums):
    return Counts(jnp.array(pulls, float), jnp.array(sums, float))


def test_index_network_does_not_care_about_the_order_of_arms():
    policy = IndexNetwork().bind(arms=5, horizon=100)
    drawn = compiled(policy, "init", jax.random.key(1))
    params = jax.tree.map(lambda leaf: leaf + 0.3, drawn)
    pulls, sums = np.array([3.0, 0, 7, 1, 20]), np.array([1.0, 0, 6.5, 1, 8])
    order = np.array([3, 1, 4, 0, 2])
    one = policy.log_probs(params, counts_of(pulls, sums))
    other = policy.log_probs(params, counts_of(pulls[order], sums[order]))
    np.testing.assert_allclose(np.asarray(one)[order], other, atol=1e-5)
    assert np.ptp(np.asarray(one)) > 1e-3  # and it does care about the arms


def test_index_network_plays_any_number_of_arms_and_rounds():
    params = compiled(IndexNetwork().bind(arms=2, horizon=20), "init", jax.random.key(1))
    for arms, horizon in ((2, 50), (50, 1000)):
        policy = IndexNetwork().bind(arms, horizon)
        assert policy.as_params(params).keys() == params.keys()
        state = compiled(policy, "begin", params, jnp.int32(0))
        log_probs = compiled(policy, "log_probs", params, state)
        np.testing.assert_allclose(np.exp(log_probs), np.full(arms, 1 / arms), rtol=1e-5)


def test_kl_softelim_is_its_formula():
    policy = KLSoftElim().bind(arms=3, horizon=100)
    params = policy.as_params({"theta": 0.7, "a": 1.5, "b": 0.4})
    pulls, sums = np.array([4.0, 0.0, 9.0]), np.array([1.0, 0.0, 6.25])
    mean = (1.5 + sums) / (1.9 + pulls)
    best = mean.max()
    kl = mean * np.log(mean / best) + (1 - mean) * np.log((1 - mean) / (1 - best))
    weights = np.exp(-pulls * kl / 0.7)
    found = np.exp(compiled(policy, "log_probs", params, counts_of(pulls, sums)))
    np.testing.assert_allclose(found, weights / weights.sum(), rtol=1e-4)


@pytest.mark.parametrize(
    "policy",
    [
        LSTM(hidden=8),
        pytest.param(IndexNetwork(hidden=8), marks=pytest.mark.slow),
        IndexByArm(hidden=8),
        KLSoftElim(),
    ],
    ids=lambda p: p.name,
)
def test_a_file_keeps_the_policy(policy, tmp_path):
    problem = gb.problems.named("two-point", horizon=10)
    learned = gb.learn(policy, problem, iterations=2, instances=40, curriculum=[])
    learned.save(tmp_path / "policy.safetensors")
    again = gb.load(tmp_path / "policy.safetensors")
    assert again.policy == learned.policy
    assert all(np.array_equal(again.params[name], learned.params[name]) for name in learned.params)


@functools.partial(jax.jit, static_argnums=0)
def moved(policy):
    """Parameters as a policy begins with, and noise."""
    key = jax.random.key(6)
    params = policy.init(jax.random.key(5))
    return {name: leaf + 0.1 * jax.random.normal(key, leaf.shape) for name, leaf in params.items()}


@pytest.mark.parametrize("baseline", [pytest.param("self", marks=pytest.mark.slow), "luck"])
@pytest.mark.parametrize(
    "policy",
    [
        LSTM(hidden=3, head=2.0),
        *(pytest.param(kind(hidden=3), marks=pytest.mark.slow) for kind in (IndexNetwork, IndexByArm)),
        BetaSoftElim(theta=0.3, a=0.8, b=1.4),
    ],
    ids=lambda p: p.name,
)
def test_gradients_through_a_rollout_agree_with_the_exact_ones(policy, baseline):
    """Reverse mode, with rounds computed again: along three directions, at |z| < 5."""
    problem = gb.problems.named("two-point", horizon=4)
    params = moved(policy.bind(2, 4))
    exact = by_enumeration(policy, problem, params)
    how = gb.Estimator(baseline)
    found = gb.estimate(policy, problem, params, instances=40_000, estimator=how, seed=1)
    gradient = np.concatenate([np.ravel(exact.gradient[name]) for name in sorted(params)])
    assert np.abs(gradient).max() > 10 * np.median(found.se)
    z = (found.mean - gradient) / (found.se + 1e-6)  # some entries have no effect but rounding
    assert np.abs(z).max() < 5.5  # of at most 200 entries: a false alarm in 10^5
    assert_z(found.regrets.mean(), found.regrets.std() / 200, exact.regret)
