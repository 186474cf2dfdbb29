"""ONNX models do what players do."""

import dataclasses
import json
import sys
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from every_policy import ALL, CONTEXTUAL, DIMS, features, learned

import gradband as gb
from gradband.cli.main import main
from gradband.play.player import Player
from gradband.policies.onnx import as_onnx, write

pytestmark = pytest.mark.brief
SAMPLING = ("ts", "hierarchical-ts", "ts-gaussian", "ts-beta", "discounted-ts", "irs-v-zero")
SAMPLING += ("bayes-ucb", "bayes-ucb-gaussian", "ogi", "explore-then-commit")
SAMPLING += ("lin-bayes-ucb", "lin-ts", "lin-v-ids")


class Session:
    """Plays a model step by step, as any runtime would: it knows only what the model says of itself."""

    def __init__(self, model):
        data = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
        self.session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        self.about = self.session.get_modelmeta().custom_metadata_map
        kinds = {"tensor(float)": np.float32, "tensor(int32)": np.int32}
        self.state = {
            entry.name: np.zeros(entry.shape, kinds[entry.type])
            for entry in self.session.get_inputs()
            if entry.name not in ("arm", "reward", "x", "features")
        }
        first = json.loads(self.about.get("first_state", "{}"))
        self.state |= {name: np.array(values, self.state[name].dtype) for name, values in first.items()}

    def step(self, arm, reward, **context):
        names = [entry.name for entry in self.session.get_outputs()]
        pulled = {"arm": np.array(arm, np.int64), "reward": np.array(reward, np.float32)}
        found = dict(zip(names, self.session.run(None, self.state | pulled | context), strict=True))
        self.state = {name: found[f"next_{name}"] for name in self.state}
        return found["probabilities"]


SAME = ("v-ids", "v-ids-gaussian", "lstm-gaussian", "index-gaussian")  # operations of policies without it


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in SAME)) for n in ALL if n not in SAMPLING],
)
def test_a_model_has_the_players_probabilities(name, tmp_path):
    given = learned(name)
    given.save(tmp_path / "policy.safetensors")
    write(as_onnx(given), tmp_path / "policy.onnx")
    rng = np.random.default_rng(0)
    for seed in range(2):
        player = Player(tmp_path / "policy.safetensors", seed)
        session = Session((tmp_path / "policy.onnx").read_bytes())
        p = session.step(-1, 0)
        means = rng.random(given.policy.arms)
        for _ in range(given.policy.horizon):
            tolerance = 1e-4 if "ids" in name else 1e-6  # it divides by differences of regrets
            np.testing.assert_allclose(p, player.probabilities(), rtol=0, atol=tolerance)
            arm = player.select()
            reward = float(rng.random() < means[arm])
            if not given.policy.binary:
                reward = float(np.float32(reward * rng.random()))
            player.update(arm, reward)
            if player.state()["rounds"] == given.policy.horizon:
                break
            p = session.step(arm, reward)
    assert session.about["policy"] == name
    assert int(session.about["arms"]) == given.policy.arms


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *(
            ("lin-softelim", {"model": model, "shape": shape, "link": link})
            for model, shape, link in (
                ("linear", "scalar", "identity"),
                ("linear", "full", "logistic"),
                ("by-arm", "diagonal", "identity"),
            )
        ),
        ("lin-softelim", {"shape": "full", "hinges": 3}),
        *(
            pytest.param(name, {"model": model}, marks=pytest.mark.slow)
            for name in CONTEXTUAL
            if name not in SAMPLING
            for model in ("linear", "by-arm")
        ),
    ],
)
def test_a_model_takes_the_features_of_arms(name, settings):
    given, rng = learned(name, **settings), np.random.default_rng(0)
    player, session = Player(given, seed=1), Session(as_onnx(given))
    x, arm, reward = np.zeros(DIMS, np.float32), -1, 0.0
    for t in range(30):
        shown = features(t)
        p = session.step(arm, reward, x=x, features=shown)
        # In single precision, errors of the belief add up over rounds.
        np.testing.assert_allclose(p, player.probabilities(shown), rtol=0, atol=1e-4)
        arm = player.select(context=shown)
        x, reward = shown[arm], float(rng.random() < 0.3 + 0.1 * arm)
        player.update(arm, reward)


def test_a_model_takes_a_visitors_features():
    given = learned("co-softelim", exclusive=0.5, hinges=3, link="logistic")
    player, session = Player(given, seed=1), Session(as_onnx(given))
    rng, x, arm, reward = np.random.default_rng(0), np.zeros(DIMS, np.float32), -1, 0.0
    for t in range(30):
        visitor = features(t, arms=1)[0]
        p = session.step(arm, reward, x=x, features=visitor)
        np.testing.assert_allclose(p, player.probabilities(visitor), rtol=0, atol=1e-4)
        arm = player.select(context=visitor)
        x, reward = visitor, float(rng.random() < 0.3 + 0.1 * arm)
        player.update(arm, reward)


@pytest.mark.parametrize("name", SAMPLING)
def test_what_onnx_can_not_say_is_refused(name):
    with pytest.raises(gb.InputError, match=f"{name} "):
        as_onnx(learned(name))


def test_an_arm_of_minus_one_changes_nothing():
    session = Session(as_onnx(learned("softelim")))
    session.step(2, 1.0)
    before = {name: array.copy() for name, array in session.state.items()}
    session.step(-1, 1.0)
    for name, array in session.state.items():
        np.testing.assert_array_equal(array, before[name])


def test_an_index_network_plays_on_after_its_horizon():
    given = learned("index", horizon=5)
    session = Session(as_onnx(given))
    for _ in range(12):
        p = session.step(1, 0.0)
    assert np.isfinite(p).all()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own(gb.policies.Policy):
    """A policy of one's own: nested parameters, and a nested first state that is not zero."""

    name: ClassVar[str] = "own"

    def init(self, key):
        return {"layer": {"w": jnp.array([2.0, 0.5])}, "theta": jnp.array(3.0)}

    def begin(self, params, latent):
        return {"level": jnp.full(self.arms, 0.5), "seen": {"level": jnp.arange(1.0, self.arms + 1)}}

    def log_probs(self, params, state):
        of_level, of_seen = jnp.split(params["layer"]["w"], 2)
        scores = of_level * state["level"] + of_seen / jnp.sqrt(state["seen"]["level"])
        return jax.nn.log_softmax(params["theta"] * scores)

    def update(self, params, state, arm, reward):
        hot = jnp.arange(self.arms) == arm
        seen = state["seen"]["level"] + hot
        return {"level": state["level"] + hot * (reward - state["level"]) / seen, "seen": {"level": seen}}


def test_a_first_state_that_is_not_zero_and_nested_parameters_are_exported():
    policy = Own().bind(3, 20)
    params = policy.init(jax.random.key(0))
    session = Session(as_onnx(gb.Learned(policy, params, {}, {})))
    assert set(session.state) == {"state_level", "seen_level"}
    first = json.loads(session.about["first_state"])
    assert first == {"state_level": [0.5] * 3, "seen_level": [1.0, 2.0, 3.0]}
    session.state |= {name: np.array(values, np.float32) for name, values in first.items()}
    state, rng = policy.begin(params, jnp.int32(0)), np.random.default_rng(0)
    p = session.step(-1, 0)
    for _ in range(20):
        np.testing.assert_allclose(p, policy.probabilities(params, state), rtol=0, atol=1e-6)
        arm, reward = int(rng.integers(3)), float(np.float32(rng.random()))
        state = policy.update(params, state, arm, reward)
        p = session.step(arm, reward)
    assert "first_state" not in Session(as_onnx(learned("softelim"))).about


TABLE = jnp.arange(12.0).reshape(4, 3) / 10
FORMULAS = {
    "powers": lambda x: x**0.5 + jnp.square(x) + jax.lax.rsqrt(x + 1) + x**3,
    "exponentials": lambda x: (
        jnp.expm1(x) - jnp.log1p(x) + jax.scipy.special.erf(x) + jnp.logaddexp(x, 1.0)
    ),
    "clipping": lambda x: jnp.clip(x, 0.2, 0.7) + jnp.ceil(x) - jnp.sign(x - 0.5),
    "least": lambda x: jnp.where(jnp.arange(3) == jnp.argmin(x), 2.0, x.prod()),
    "logic": lambda x: jnp.where((x > 0.1).all() ^ (x > 0.9).any(), x, -x) + jnp.isfinite(x),
    "products": lambda x: TABLE.T @ jnp.append(x, 1.0) + jnp.einsum("k,jk->j", x, TABLE[1:]),
    "lookups": lambda x: TABLE[jnp.argmax(x)] + TABLE[jnp.argmax(x), jnp.arange(3)],
    "changes": lambda x: x.at[jnp.argmin(x)].set(5.0).at[jnp.argmax(x)].add(x[0]),
    "rows": lambda x: TABLE.at[jnp.argmax(x)].add(x)[1] + TABLE.transpose()[:, 2],
    "functions": lambda x: jax.nn.gelu(x) + jax.nn.silu(x) + jax.nn.softplus(x) + jax.nn.elu(x - 0.5),
}
"""what someone may write in a policy of their own"""


@pytest.mark.parametrize("formula", FORMULAS)
def test_many_operations_are_exported(formula):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Some(gb.policies.Counting):
        name: ClassVar[str] = "some"

        def log_probs(self, params, state):
            return jax.nn.log_softmax(FORMULAS[formula](state.means))

    policy = Some().bind(3, 20)
    session, rng = Session(as_onnx(gb.Learned(policy, {}, {}, {}))), np.random.default_rng(0)
    state = policy.begin({}, jnp.int32(0))
    for _ in range(12):
        arm, reward = int(rng.integers(3)), float(np.float32(rng.random()))
        state = policy.update({}, state, jnp.int32(arm), jnp.float32(reward))
        p = session.step(arm, reward)
        np.testing.assert_allclose(p, policy.probabilities({}, state), rtol=0, atol=1e-6)


def test_a_first_state_that_can_not_be_told_is_refused():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Endless(Own):
        def begin(self, params, latent):
            return super().begin(params, latent) | {"level": jnp.full(self.arms, jnp.inf)}

    policy = Endless().bind(2, 20)
    with pytest.raises(gb.InputError, match="the first state of own has infinite numbers"):
        as_onnx(gb.Learned(policy, policy.init(jax.random.key(0)), {}, {}))


def test_the_command_writes_a_model(tmp_path, monkeypatch, capsys):
    policy, model = tmp_path / "policy.safetensors", tmp_path / "policy.onnx"
    learned("softelim").save(policy)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["gradband", "export", str(policy), *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, capsys.readouterr()

    code, said = run()
    assert (code, "takes pulls float32[4]" in said.out) == (0, True)
    code, said = run("--json")
    assert json.loads(said.out)["files"] == {"model": str(model)}
    onnx.checker.check_model(model.read_bytes(), full_check=True)
    before = policy.read_bytes()
    own = "choose another file"
    for words, says in (
        (("--to", "onx"), "did you mean"),
        (("--out", policy), own),
        (("--out", tmp_path), own),
    ):
        code, said = run(*words)
        assert code == 2
        assert says in said.err
    assert policy.read_bytes() == before


def test_a_model_is_valid_and_says_what_it_takes():
    model = as_onnx(learned("lstm"))
    onnx.checker.check_model(model, full_check=True)
    assert [entry.name for entry in model.graph.input] == ["output", "cell", "arm", "reward"]
    assert [entry.name for entry in model.graph.output] == ["next_output", "next_cell", "probabilities"]
    assert {entry.key: entry.value for entry in model.metadata_props}["rewards"] == "in [0, 1]"
