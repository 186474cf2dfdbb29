"""Learning by differences of regrets: their gradients, and what is kept."""

import numpy as np
import pytest

import gradband as gb
from gradband.core import prng
from gradband.engine import blocks
from gradband.gradient.estimator import Controls
from gradband.learning import differences
from gradband.learning.over_problems import suited
from gradband.learning.recipe_file import parse_recipe
from gradband.policies import BeliefIndex, DirectedSoftElim

pytestmark = pytest.mark.brief

SHORT = gb.problems.named("lin-5", horizon=10)


def test_directions_are_at_right_angles():
    one, other = (differences.directions(prng.root(seed), 5) for seed in (0, 1))
    np.testing.assert_allclose(one @ one.T, np.eye(5), atol=1e-12)
    assert not np.allclose(one, other)


def test_gradients_agree_with_theorem_2():
    policy = suited(DirectedSoftElim(a=0.8, power=2.0, patience=0.5), SHORT)
    recipe = parse_recipe({"reach": 0.05}, policy)
    stage = differences.ascent(SHORT, policy, recipe, (1, 16_000), blocks.workers(), "log")
    params = policy.init(prng.root(0))
    found = stage.compute(stage.job(params, prng.root(7), 1, Controls()))
    known = gb.estimate(policy, SHORT, instances=64_000, estimator="leave-one-out", seed=8)
    z = (found.mean - known.mean) / np.hypot(found.se, known.se)
    assert (np.abs(z) < 5).all()
    assert np.abs(known.mean / known.se).max() > 10  # so that agreement says something
    assert np.isfinite(found.norm)


def test_what_is_kept_is_no_worse_than_the_start(tmp_path):
    policy = suited(gb.policies.named("pretrained-linear"), SHORT)
    recipe = parse_recipe({"iterations": 4, "instances": 256}, policy)
    given = {"recipe": recipe, "progress": False, "checkpoint": tmp_path / "checkpoint"}
    learned = gb.learn(policy, SHORT, **given)
    choice = learned.about["choice"]
    assert learned.about["training"]["reach"] == recipe.reach
    assert choice["regrets"][choice["chosen"]] == min(choice["regrets"].values())
    assert learned.history["params"].shape == (4, 14)
    again = gb.learn(policy, SHORT, resume=True, **given)
    for name, leaf in learned.params.items():
        np.testing.assert_array_equal(leaf, again.params[name])


def test_an_estimator_takes_their_place():
    learned = gb.learn(
        "pretrained-linear", SHORT, iterations=1, instances=64, estimator="self", progress=False
    )
    assert "reach" not in learned.about["training"]


def test_networks_have_too_many_numbers():
    recipe = parse_recipe({"reach": 0.1}, suited(BeliefIndex(), SHORT))
    with pytest.raises(gb.InputError, match="at most 16 parameters"):
        gb.learn(BeliefIndex(hidden=2), SHORT, recipe=recipe)
