"""The policy for linear beliefs that comes with the package: other sizes, its file, what begins there."""

import numpy as np
import pytest

import gradband as gb
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
