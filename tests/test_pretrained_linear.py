"""The policy for linear beliefs that comes with the package: other sizes, its file, what begins there."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import gradband as gb
from gradband.cli import app, play, weights
from gradband.gradient.estimator import Estimator
from gradband.learning.over_problems import Turns, suited
from gradband.learning.pretraining_linear import SIZES, make, normal_features, uniform_features
from gradband.policies import BeliefIndex, PretrainedLinear

pytestmark = pytest.mark.brief


@pytest.mark.parametrize("kind", [uniform_features, normal_features])
def test_it_plays_sizes_that_it_was_not_learned_on(kind):
    assert (4, 7) not in SIZES
    problem = kind(4, 7)
    table = gb.evaluate(["pretrained-linear", "lin-ts", "lin-bayes-ucb"], problem, instances=2000)
    for rival in ("lin-ts", "lin-bayes-ucb"):
        lower = table.difference(rival, "pretrained-linear")
        assert lower.mean > 5 * lower.se


def test_the_network_begins_there():
    problem = normal_features(3, 4)
    entries = {
        "own": suited(PretrainedLinear(), problem),
        "network": suited(BeliefIndex(hidden=2), problem),
    }
    table = gb.evaluate(entries, problem, instances=64)
    np.testing.assert_allclose(table["own"].regrets, table["network"].regrets, rtol=1e-4)


def test_one_command_makes_its_file(tmp_path):
    problem = uniform_features(2, 3)
    problems = [gb.Problem(problem.prior, 10, name=problem.name)]
    made = make(tmp_path / "made.safetensors", problems, Turns(2, 32, 0.05, Estimator("self")))
    learned = gb.load(tmp_path / "made.safetensors")
    assert learned.policy.name == "pretrained-linear"
    assert learned.about["training"]["problems"] == [problem.name]
    for name, leaf in PretrainedLinear().stored().items():
        np.testing.assert_array_equal(learned.params[name], made[name])
        assert np.shape(leaf) == made[name].shape


PLAY = """
import sys
for name in ("jax", "numba", "optax"):
    sys.modules[name] = None
from gradband.cli.play import play
play(sys.argv[1:])
"""


def test_commands_take_it_by_name(tmp_path):
    """In place of a file: a player that needs no JAX, and models and files of the same policy."""
    policy = PretrainedLinear(dims=2, within=0.3, sd=0.2).bind(2, 50)
    features = [[0.5, -1.0], [0.2, 1.0]]
    words = ["pretrained-linear:within=0.3+sd=0.2", "--dims", "2", "--horizon", "50"]
    request = json.dumps({"op": "probabilities", "context": features})
    ran = [sys.executable, "-c", PLAY, *words, "--arms", "red,blue"]
    done = subprocess.run(ran, input=request, capture_output=True, text=True, check=False)
    expected = gb.Player(policy).probabilities(context=features)
    assert json.loads(done.stdout)["probabilities"] == pytest.approx(list(expected)), done.stderr
    for kind in ("onnx", "safetensors"):
        out = tmp_path / f"policy.{kind}"
        found = CliRunner().invoke(
            app.app, ["export", *words, "--arms", "2", "--to", kind, "--out", str(out)]
        )
        assert found.exit_code == 0, found.output
        assert "pretrained-linear" in found.output
    assert gb.load(tmp_path / "policy.safetensors").policy == policy
    (tmp_path / "counts.csv").write_text("arm,pulls,successes\nred,40,9\nblue,40,1\n")
    with pytest.raises(gb.InputError, match="by contexts: use segment_weights"):
        weights.weights([words[0], str(tmp_path / "counts.csv"), *words[1:]])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--arms", "a,b", "--horizon", "9"], "pretrained-linear needs --arms, --horizon and --dims"),
        (["--dims", "2", "--horizon", "9"], "pretrained-linear needs --arms, --horizon and --dims"),
        (["--arms", "a,b", "--horizon", "9", "--dims", "0"], "--dims must be a whole number of at least 1"),
        (
            ["--arms", "a,b", "--horizon", "9", "--dims", "2", "--prior", "1,30"],
            "--prior is for pretrained",
        ),
    ],
)
def test_wrong_words_are_refused(words, message):
    with pytest.raises(gb.InputError, match=message):
        play.play(["pretrained-linear", *words])


def test_other_commands_say_how_to_get_a_file():
    with pytest.raises(gb.InputError, match="--segments needs a policy file.*--to safetensors"):
        weights.weights(["pretrained-linear", "--segments", "segments.json", "--journal", "test.jsonl"])
    for words, message in (
        (["policy.safetensors", "--to", "safetensors"], "is a policy file already"),
        (["policy.safetensors", "--arms", "3"], "a policy file has its own"),
    ):
        found = CliRunner().invoke(app.app, ["export", *words])
        assert message in str(found.exception)
