"""A policy of the user's own, from its file to player and ONNX; and code that runs only if trusted."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from every_policy import ARMS, HORIZON
from test_export import Session

import gradband as gb
from gradband.cli.main import main
from gradband.cli.options import policy_names
from gradband.core import tensor_file
from gradband.play.player import Player
from gradband.policies import own
from gradband.policies.onnx import as_onnx

pytestmark = pytest.mark.brief
GUIDE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
SKELETON = re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL)[1]
IN_JAX = """
import dataclasses
from typing import ClassVar
import jax, jax.numpy as jnp
from gradband.policies import Policy

@dataclasses.dataclass(frozen=True, kw_only=True)
class Leaky(Policy):
    name: ClassVar[str] = "leaky"
    keep: float = 0.9

    def init(self, key):
        return {"heat": jnp.full(self.arms, 2.0)}

    def begin(self, params, latent):
        return {"value": jnp.zeros(self.arms)}

    def log_probs(self, params, state):
        return jax.nn.log_softmax(params["heat"] * state["value"])

    def update(self, params, state, arm, reward):
        return {"value": (self.keep * state["value"]).at[arm].add(reward)}

@dataclasses.dataclass(frozen=True, kw_only=True)
class Silent(Leaky):
    name: ClassVar[str] = "silent"
    differentiable: ClassVar[bool] = False

    def log_probs(self, params, state):
        raise NotImplementedError

    def act(self, key, params, state):
        return jnp.argmax(state["value"])

class Nameless(Policy):
    pass
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "my_policies.py"
    path.write_text(SKELETON)
    return path


@pytest.fixture(scope="module")
def in_jax(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "their_policies.py"
    path.write_text(IN_JAX)
    return path


def saved(kind, path):
    policy = kind().bind(ARMS, HORIZON)
    given = gb.Learned(policy, policy.init(jax.random.key(0)), {}, {})
    given.save(path)
    return given


@pytest.fixture(scope="module")
def tempered(module, tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "tempered.safetensors"
    saved(own.load_class(f"{module}:Tempered"), path)
    return path


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Runs a command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["gradband", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, *capsys.readouterr()

    return command


def test_the_skeleton_is_short():
    assert len(SKELETON.strip().splitlines()) <= 20


def test_help_knows_every_policy_by_its_line_in_the_package():
    assert policy_names() == list(gb.policies.POLICIES)
    assert policy_names(trained=True) == gb.policies.TRAINED


def test_a_policy_of_ones_own_goes_all_the_way(module, run, tmp_path):
    """Learned, saved, compared, explained, exported and played, from the command line."""
    (tmp_path / "my_policies.py").write_text(module.read_text())
    few = (
        "--iterations",
        2,
        "--instances",
        64,
        "--compare-on",
        100,
        "--horizon",
        20,
        "--out",
        "made",
        "--json",
    )
    code, out, err = run("learn", "two-point", "--policy", "my_policies.py:Tempered:theta=0.7", *few)
    assert code == 0, err
    file = json.loads(out)["files"]["policy"]
    about = tensor_file.load(file, "policy")[1]
    assert (about["policy"], about["class"], about["file"]) == (
        "tempered",
        "my_policies:Tempered",
        "my_policies.py",
    )
    trust = ("--trust", "my_policies.py")
    some = ("--instances", 100, "--out", "made", "--json")
    words = f"ts,my_policies.py:Tempered,{file}"
    code, out, err = run("compare", "two-point", "--horizon", 20, "--policies", words, *some, *trust)
    assert code == 0, err
    assert {row["name"] for row in json.loads(out)["policies"]} == set(words.split(","))
    code, out, err = run("explain", file, "--no-optimal", *some, *trust)
    assert (code, json.loads(out)["policy"]) == (0, "tempered"), err
    code, out, err = run("export", file, "--json", *trust)
    assert (code, json.loads(out)["policy"]) == (0, "tempered"), err
    for words in (("compare", "--policies", file), ("explain", file), ("export", file), ("play", file)):
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert "which is not gradband's: if you trust its code, use --trust my_policies.py" in err
    lines = '{"op": "select"}\n{"op": "update", "id": "#1", "reward": 1}\n{"op": "probabilities"}\n'
    done = subprocess.run(
        [sys.executable, "-m", "gradband", "play", file, *trust],
        input=lines,
        capture_output=True,
        text=True,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["op"] for answer in answers] == ["select", "update", "probabilities"], done.stderr


def test_it_is_played_with_numpy_and_nothing_more(module, tempered):
    code = f"""
import sys
for gone in "jax jaxlib numba scipy optax matplotlib typer rich polars safetensors".split():
    sys.modules[gone] = None
from gradband.play.player import Player
player = Player({str(tempered)!r}, seed=1, trust={str(module)!r})
for _ in range(9):
    player.update(player.select(), 1)
player.retire(0)
player.add_arm()
print(player.select(), player.state()["rounds"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("9\n")


@pytest.mark.parametrize("name", ["Tempered", "Leaky"])
def test_player_learning_and_onnx_have_the_same_probabilities(module, in_jax, tmp_path, name):
    """Written over the namespace or for JAX: where JAX is installed, both are played."""
    kind = own.load_class(f"{module if name == 'Tempered' else in_jax}:{name}")
    path = tmp_path / "policy.safetensors"
    saved(kind, path)
    given = gb.load(path, trust=kind)
    player, session, rng = Player(path, 0, trust=kind), Session(as_onnx(given)), np.random.default_rng(0)
    state = given.policy.begin(given.params, jax.numpy.int32(0))
    p = session.step(-1, 0)
    for _ in range(30):
        np.testing.assert_allclose(player.probabilities(), p, rtol=0, atol=1e-6)
        wanted = given.policy.next_probabilities(given.params, state)
        np.testing.assert_allclose(p, wanted, rtol=0, atol=1e-6)
        arm, reward = player.select(), float(rng.integers(2))
        player.update(arm, reward)
        state = given.policy.update(given.params, state, jax.numpy.int32(arm), jax.numpy.float32(reward))
        p = session.step(arm, reward)
    assert player.recommend() == int(given.policy.recommend(given.params, state))
    other = Player(path, 7, trust=kind)
    other.restore(json.loads(json.dumps(player.state())))
    assert other.select() == player.select()
    with Player(path, journal=tmp_path / "journal", trust=kind) as kept:
        kept.update(kept.select(), 1)
    with Player(path, journal=tmp_path / "journal", trust=kind) as again:
        np.testing.assert_array_equal(again.probabilities(), kept.probabilities())


def test_what_was_learned_is_played_and_exported_without_a_file(module):
    kind = own.load_class(f"{module}:Tempered")
    learned = gb.learn(kind(), gb.problems.named("two-point", horizon=20), iterations=1, instances=64)
    Player(learned, seed=0).select()
    assert as_onnx(learned).graph.name == "tempered"


def test_a_file_does_not_make_anything_run(tempered, tmp_path, monkeypatch):
    """Also if a module of the name that it has lies in the folder, or can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_policies.py").write_text("raise SystemExit('it was run')")
    for load in (gb.load, Player, lambda file: gb.evaluate(file, "two-point")):
        with pytest.raises(gb.InputError, match=r"'my_policies:Tempered', which is not gradband's"):
            load(str(tempered))
    with pytest.raises(gb.InputError, match="unknown policy|did you mean"):
        gb.evaluate("my_policies.py:Tempered", "two-point")


def test_what_is_trusted_must_have_the_class(module, in_jax, tempered, tmp_path):
    other, kind = own.load_class(f"{in_jax}:Leaky"), own.load_class(f"{module}:Tempered")
    for trust in (other, gb.policies.SoftElim, str(in_jax), [in_jax, other]):
        with pytest.raises(gb.InputError, match="is not among those that you trust"):
            gb.load(tempered, trust=trust)
    for trust in (kind, module, str(module), [in_jax, module]):
        assert type(gb.load(tempered, trust=trust).policy) is kind
        assert Player(tempered, trust=trust).policy.name == "tempered"
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name")
    for trust, says in (
        (tmp_path / "gone.py", "is not a Python file"),
        (tempered, "is not a Python file"),
        (broken, r"broken.py can't be run: ModuleNotFoundError"),
    ):
        with pytest.raises(gb.InputError, match=says):
            gb.load(tempered, trust=trust)
    arrays, about = tensor_file.load(tempered, "policy")
    for wrong in ("Tempered", 3, "os:system", "my_policies:__name__"):
        tensor_file.save(tmp_path / "bad.safetensors", "policy", arrays, about | {"class": wrong})
        with pytest.raises(gb.InputError, match=r"bad\.safetensors"):
            gb.load(tmp_path / "bad.safetensors", trust=module)
    tensor_file.save(tmp_path / "bad.safetensors", "policy", {}, about)
    with pytest.raises(gb.InputError, match="parameters of tempered must be: theta"):
        Player(tmp_path / "bad.safetensors", trust=module)


def test_classes_that_are_none_are_refused(in_jax, run):
    for words, says in (
        (f"{in_jax}:Missing", "has no policy 'Missing'"),
        (f"{in_jax}:jnp", "has no policy 'jnp'"),
        (f"{in_jax}:Nameless", "needs a name"),
        ("gone.py:Leaky", "gone.py is not a Python file"),
        (f"{in_jax}:Leaky:kep=1", "did you mean 'keep'"),
    ):
        code, _, err = run("compare", "--policies", words)
        assert (code, says in err) == (2, True), err


def test_a_policy_that_does_not_say_its_probabilities_is_not_played(in_jax, tmp_path):
    kind = own.load_class(f"{in_jax}:Silent")
    saved(kind, tmp_path / "silent.safetensors")
    with pytest.raises(gb.InputError, match="silent has no probabilities"):
        Player(tmp_path / "silent.safetensors", trust=kind)


def test_a_policy_written_for_jax_says_what_it_needs(in_jax, tmp_path):
    """Its file runs only where JAX is, and says so in one sentence."""
    saved(own.load_class(f"{in_jax}:Leaky"), tmp_path / "leaky.safetensors")
    code = f"""
import sys
sys.modules["jax"] = None
from gradband.play.player import Player
Player({str(tmp_path / "leaky.safetensors")!r}, trust={str(in_jax)!r})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "their_policies.py can't be run: ModuleNotFoundError: import of jax halted" in done.stderr
