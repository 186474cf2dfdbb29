"""ONNX models do what players do."""

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from laws import ALL, learned

import gradband as gb
from gradband import cli
from gradband.export import as_onnx, write
from gradband.player import Player

pytestmark = pytest.mark.brief
SAMPLING = ("ts", "hierarchical-ts", "bayes-ucb", "explore-then-commit")


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
            if entry.name not in ("arm", "reward")
        }

    def step(self, arm, reward):
        names = [entry.name for entry in self.session.get_outputs()]
        pulled = {"arm": np.array(arm, np.int64), "reward": np.array(reward, np.float32)}
        found = dict(zip(names, self.session.run(None, self.state | pulled), strict=True))
        self.state = {name: found[f"next_{name}"] for name in self.state}
        return found["probabilities"]


@pytest.mark.parametrize("name", [name for name in ALL if name not in SAMPLING])
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
            np.testing.assert_allclose(p, player.probabilities(), rtol=0, atol=1e-6)
            arm = player.select()
            reward = float(rng.random() < means[arm])
            if not given.policy.binary:
                reward = float(np.float32(reward * rng.random()))
            player.update(arm, reward)
            if player.state()["memory"]["rounds"] == given.policy.horizon:
                break
            p = session.step(arm, reward)
    assert session.about["policy"] == name
    assert int(session.about["arms"]) == given.policy.arms


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


def test_the_command_writes_a_model(tmp_path, monkeypatch, capsys):
    policy, model = tmp_path / "policy.safetensors", tmp_path / "policy.onnx"
    learned("softelim").save(policy)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["gradband", "export", str(policy), *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return stopped.value.code, capsys.readouterr()

    code, said = run()
    assert (code, "takes pulls float32[4]" in said.out) == (0, True)
    code, said = run("--json")
    assert json.loads(said.out)["files"] == {"model": str(model)}
    onnx.checker.check_model(model.read_bytes(), full_check=True)
    before = policy.read_bytes()
    own = "file of its own"
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
