"""DQN: the paper's features, the arithmetic of Q-learning, and that it learns what is easy."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from every_policy import compiled

import gradband as gb
from gradband import problems
from gradband.cli import main
from gradband.core import prng
from gradband.core.errors import InputError
from gradband.learning import q_learning
from gradband.learning.q_learning import Agent, Settings, Transitions, train
from gradband.policies import DQN, Counts, SoftElim
from gradband.policies.dqn import network_inputs
from gradband.problems import Problem, priors

pytestmark = pytest.mark.brief

SMALL = problems.named("two-point", horizon=20)
QUICK = {"iterations": 3, "instances": 64}
TINY = DQN(hidden=8)


def counts(pulls, sums):
    return Counts(np.array(pulls, np.float32), np.array(sums, np.float32))


def relu_network(params, x):
    """Q [N, K] and the hidden layers, of inputs [N, 6K], in NumPy."""
    w0, b0, w1, b1, w2, b2 = (np.asarray(params[name]) for name in ("w0", "b0", "w1", "b1", "w2", "b2"))
    first = np.maximum(x @ w0 + b0, 0)
    second = np.maximum(first @ w1 + b1, 0)
    return second @ w2 + b2, first, second


# The network.


def test_the_features_are_the_papers():
    """Ones, zeros, the logarithms of both plus 1, the empirical mean and a constant, arm by arm."""
    expected = [
        *(3, 7, np.log(4), np.log(8), 0.3, 1),
        *(0, 0, 0, 0, 0, 1),
        *(2, 0, np.log(3), 0, 1, 1),
    ]
    np.testing.assert_allclose(network_inputs(counts([10, 0, 2], [3, 0, 2])), expected, rtol=1e-6)


def test_shapes_and_width():
    policy = DQN(hidden=16).bind(3, 40)
    shapes = {name: shape.shape for name, shape in policy.shapes().items()}
    weights = {"w0": (18, 16), "w1": (16, 16), "w2": (16, 3)}
    assert shapes == weights | {"b0": (16,), "b1": (16,), "b2": (3,)}
    for hidden in (0, 2.5, True, "64", float("nan")):
        with pytest.raises(InputError, match="hidden of dqn"):
            DQN(hidden=hidden).bind(3, 40)


def test_it_pulls_the_arm_with_the_greatest_value():
    policy = DQN(hidden=8).bind(3, 40)
    params = compiled(policy, "init", jax.random.key(1))
    rng = np.random.default_rng(0)
    for _ in range(10):
        pulls = rng.integers(0, 20, 3)
        state = counts(pulls, rng.integers(0, pulls + 1))
        values = compiled(policy, "values", params, state)
        reference = relu_network(params, np.asarray(network_inputs(state))[None])[0][0]
        np.testing.assert_allclose(values, reference, rtol=1e-5)
        np.testing.assert_allclose(compiled(policy, "index", params, state), values, rtol=1e-5)
        best = int(np.argmax(values))
        assert int(compiled(policy, "act", jax.random.key(2), params, state)) == best
        found = compiled(policy, "probabilities", params, state)
        np.testing.assert_array_equal(found, np.eye(3)[best])


# The arithmetic.

update = jax.jit(q_learning.update, static_argnums=(0, 1))
error_of = jax.jit(q_learning.error, static_argnums=0)


@pytest.fixture
def example():
    """A policy, two sets of weights, and four transitions, the last of them in the last round."""
    policy = DQN(hidden=5).bind(2, 6)
    params, target = (compiled(policy, "init", jax.random.key(i)) for i in (3, 4))
    before = counts([[0, 0], [1, 1], [2, 1], [3, 2]], [[0, 0], [1, 0], [1, 1], [2, 0]])
    seen = Transitions(before, np.array([0, 1, 0, 1], np.int32), np.array([1, 0, 1, 1], np.float32))
    after = counts([[1, 0], [1, 2], [3, 1], [3, 3]], [[1, 0], [1, 0], [2, 1], [2, 1]])
    return policy, params, target, seen, after


def errors_by_hand(params, target, seen, after, discount):
    """Q(s, i) less its aim [4], and what its gradient needs."""
    x = np.stack([network_inputs(Counts(*row)) for row in zip(*seen.counts[:2], strict=True)])
    following = np.stack([network_inputs(Counts(*row)) for row in zip(*after[:2], strict=True)])
    q, first, second = relu_network(params, x)
    ahead = relu_network(target, following)[0].max(1) * [1, 1, 1, 0]
    error = q[np.arange(4), seen.arm] - (np.asarray(seen.reward) + discount * ahead)
    return error, x, first, second


def test_errors_are_those_of_q_learning(example):
    policy, params, target, seen, after = example
    for discount in (0.99, 1.0, 0.5):
        found = [
            error_of(policy, discount, params, target, Counts(pulls, sums), arm, reward)
            for pulls, sums, arm, reward in zip(*seen.counts[:2], seen.arm, seen.reward, strict=True)
        ]
        expected = errors_by_hand(params, target, seen, after, discount)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("huber", [pytest.param(1.0, marks=pytest.mark.slow), 0.2, 100.0])
def test_an_update_is_a_step_of_adam_on_the_huber_loss(example, huber):
    """Backpropagation by hand; Adam's first step is α g / (|g| + ε)."""
    policy, params, target, seen, after = example
    settings = Settings(huber=huber, learning_rate=0.01)
    agent = Agent(params, target, settings.optimizer.init(params), jnp.int32(0))
    moved, norm = update(policy, settings, agent, seen)
    error, x, first, second = errors_by_hand(params, target, seen, after, settings.discount)
    slope = np.zeros((4, 2))
    slope[np.arange(4), seen.arm] = np.clip(error, -huber, huber) / 4
    at_second = (slope @ np.asarray(params["w2"]).T) * (second > 0)
    at_first = (at_second @ np.asarray(params["w1"]).T) * (first > 0)
    gradient = {"w0": x.T @ at_first, "w1": first.T @ at_second, "w2": second.T @ slope}
    gradient |= {"b0": at_first.sum(0), "b1": at_second.sum(0), "b2": slope.sum(0)}
    flat = np.concatenate([g.ravel() for g in gradient.values()])
    assert float(norm) == pytest.approx(np.linalg.norm(flat), rel=1e-5)
    for name, g in gradient.items():
        step = 0.01 * g / (np.abs(g) + settings.adam_epsilon)
        np.testing.assert_allclose(moved.params[name], params[name] - step, rtol=1e-4, atol=1e-6)


def test_the_target_is_renewed_when_it_is_due(example):
    policy, params, target, seen, _ = example
    settings = Settings(target_period=3)
    agent = Agent(params, target, settings.optimizer.init(params), jnp.int32(0))
    for i in range(1, 7):
        before = agent.target
        agent, _ = update(policy, settings, agent, seen)
        same = {name: np.array_equal(agent.target[name], before[name]) for name in before}
        assert all(same.values()) == (i % 3 != 0)
        if i % 3 == 0:
            np.testing.assert_array_equal(agent.target["w1"], agent.params["w1"])
    assert int(agent.updates) == 6
    assert isinstance(settings.optimizer, optax.GradientTransformation)


def test_the_ring_holds_the_last_transitions():
    """Eight rounds into a ring of six: what is stored in a round leads to what is stored in the next."""
    problem = problems.named("two-point", horizon=4)
    policy, settings = DQN(hidden=4).bind(2, 4), Settings(update_period=10, warmup=5)
    params = compiled(policy, "init", jax.random.key(0))
    agent = Agent(params, params, settings.optimizer.init(params), jnp.int32(0))
    ring = Transitions(
        Counts(jnp.zeros((18, 2)), jnp.zeros((18, 2))), jnp.zeros(18, jnp.int32), jnp.zeros(18)
    )
    for i in range(2):
        key, clock = prng.root(i), q_learning.Clock(np.int32(4 * i), np.float32(1))
        agent, ring, norm, regrets = q_learning._iterate(
            policy, settings, 3, problem, agent, ring, key, clock
        )
    assert int(agent.updates) == 2  # after rounds 3 and 6: 3 instances a round, 10 transitions an update
    assert np.isfinite(norm)
    assert regrets.shape == (3,)
    stored = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(6, 3, *leaf.shape[1:]), ring)
    np.testing.assert_array_equal(stored.counts.pulls.sum(2)[:, 0], [2, 3, 2, 3, 0, 1])
    for now, following in ((0, 1), (4, 5), (5, 0)):
        pulled = np.eye(2)[stored.arm[now]]
        np.testing.assert_array_equal(stored.counts.pulls[following], stored.counts.pulls[now] + pulled)
        heard = stored.counts.sums[now] + pulled * stored.reward[now][:, None]
        np.testing.assert_array_equal(stored.counts.sums[following], heard)


# Learning.


# With Dopamine's Huber loss the end of an episode is an outlier, and learning is too unstable to be tested.
STABLE = Settings(huber=100.0)


@pytest.mark.parametrize(
    ("means", "most"),
    [
        pytest.param([[0.9, 0.1], [0.9, 0.1]], 0.1, marks=pytest.mark.slow, id="one"),
        pytest.param([[0.9, 0.1], [0.1, 0.9]], 1, id="two"),
    ],
)
def test_it_learns_what_is_easy(means, most):
    """Uniform has a regret of 8. With two instances the first pull is a guess, and .6 can't be avoided."""
    problem = Problem(priors.Finite(means), 20)
    learned = train(DQN(hidden=32), problem, iterations=30, settings=STABLE)
    assert gb.evaluate([learned], problem, instances=2000).rows[0].regret.mean < most
    assert learned.history["regret"][0] > 5
    assert (learned.history["regret"][-5:] < most + 0.2).all()


def test_rewards_of_a_table():
    """Arm 0 always pays: in hindsight it is the best, and the regret of pulling only it is 0."""
    table = np.stack([np.ones((30, 12)), np.zeros((30, 12))], axis=1)
    problem = Problem(priors.Table(table), 12)
    learned = train(DQN(hidden=8), problem, iterations=30, instances=200, settings=STABLE)
    assert 4 < learned.history["regret"][0] < 8
    assert gb.evaluate([learned], problem).rows[0].regret.mean == 0


def test_history_progress_and_seeds():
    steps = []
    one = gb.learn(TINY, SMALL, seed=5, progress=steps.append, **QUICK)
    again, other = (gb.learn(TINY, SMALL, seed=seed, **QUICK) for seed in (5, 6))
    for name in one.params:
        assert np.asarray(one.params[name]).tobytes() == np.asarray(again.params[name]).tobytes()
    assert not np.array_equal(one.params["w1"], other.params["w1"])
    like = gb.learn(SoftElim(), SMALL, **QUICK)
    assert set(one.history) == set(like.history)
    assert set(one.about) == set(like.about) - {"choice"}
    for name in like.history:
        assert one.history[name].dtype == like.history[name].dtype
        assert one.history[name].tobytes() == again.history[name].tobytes()
    assert one.history["params"].shape == (3, 0)
    assert np.isfinite(one.history["norm"]).all()
    assert [step.iteration for step in steps] == [1, 2, 3]
    np.testing.assert_array_equal(np.float32([step.regret for step in steps]), one.history["regret"])
    np.testing.assert_array_equal(steps[-1].params["w0"], one.params["w0"])


def test_exploration_falls_over_a_share_of_all_rounds(monkeypatch):
    """Half of 3 iterations of 20 rounds; nothing is played here."""

    def played(*given):
        assert given[-1] == q_learning.Clock(0, 30)
        raise StopAsyncIteration

    monkeypatch.setattr(q_learning, "_iterate", played)
    with pytest.raises(StopAsyncIteration):
        train(TINY, SMALL, settings=Settings(decay=0.5), **QUICK)


def test_a_replay_that_does_not_fit_is_refused(monkeypatch):
    """A transition has pulls and sums of two arms, an arm and a reward, of four bytes each."""
    size = 64 * 100
    monkeypatch.setattr(q_learning, "budget", lambda given: 24 * size)
    with pytest.raises(InputError, match="this replay needs 154 kB of memory"):
        train(TINY, SMALL, settings=Settings(replay=size), memory="1GB", **QUICK)


def test_a_second_run_does_not_compile_again():
    train(TINY, SMALL, **QUICK)
    size = q_learning._iterate._cache_size()
    train(TINY, SMALL, seed=3, iterations=2, instances=64)
    assert q_learning._iterate._cache_size() == size


def test_weights_that_are_not_finite_stop_it():
    start = TINY.bind(2, 20).init(prng.stream(prng.root(0), "init"))
    learned = train(TINY, SMALL, settings=Settings(learning_rate=1e38, warmup=1), **QUICK)
    assert learned.stopped == "the weights were not finite in iteration 1"
    np.testing.assert_array_equal(learned.params["w1"], start["w1"])
    assert learned.history["regret"].shape == (1,)


def test_options_that_do_not_apply_are_refused(tmp_path):
    for given in (
        {"estimator": "none"},
        {"optimizer": optax.adam(0.1)},
        {"scale": "linear"},
        {"temperature": gb.annealed},
        {"curriculum": [10]},
        {"params": {}},
        {"resume": True},
    ):
        with pytest.raises(InputError, match=f"{next(iter(given))} does not apply to dqn"):
            gb.learn(DQN(), SMALL, **given, **QUICK)
    for given, match in (
        ({"epsilon": 1.5}, "epsilon"),
        ({"discount": -0.1}, "discount"),
        ({"minibatch": 0}, "minibatch"),
        ({"learning_rate": 0.0}, "learning_rate"),
    ):
        with pytest.raises(InputError, match=match):
            Settings(**given)
    with pytest.raises(InputError, match=r"rewards in \[0, 1\]"):
        gb.learn(DQN(), Problem(priors.Gaussian(2), 20))
    with pytest.raises(InputError, match="the size of the replay"):
        gb.learn(DQN(), SMALL, instances=2**30)


def test_saved_and_loaded(tmp_path):
    learned = gb.learn(TINY, SMALL, checkpoint=tmp_path / "unused", **QUICK)
    learned.save(tmp_path / "p.safetensors")
    again = gb.load(tmp_path / "p.safetensors")
    assert again.policy == learned.policy
    assert again.about == learned.about
    assert again.history["params"].shape == (3, 0)
    one, other = (gb.evaluate([x], SMALL, instances=500).rows[0].regrets for x in (learned, again))
    np.testing.assert_array_equal(one, other)


def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    given = "learn --policy dqn:hidden=8 --horizon 20 --iterations 3 --instances 64 --compare-on 500 --json"
    monkeypatch.setattr(sys, "argv", ["gradband", *given.split(), "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="0"):
        main.main()
    result = json.loads(capsys.readouterr().out)
    assert (result["policy"], len(result["params"])) == ("dqn", 6)
    assert gb.load(result["files"]["policy"]).policy == TINY.bind(2, 20)
    assert (tmp_path / "training.png").exists()
