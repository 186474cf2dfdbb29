"""Nested parameters, as neural-network libraries have them: learned, saved, loaded and evaluated."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z

import gradband as gb
from gradband.core.errors import InputError
from gradband.core.pytrees import by_path

PROBLEM = gb.problems.named("two-point", horizon=6)
NAMES = ["head/1", "layer/w", "theta"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nested(gb.policies.Counting):
    """A softmax of two features of each arm. None, as a filtered module has it, is no parameter."""

    name: ClassVar[str] = "nested"
    log_scale: ClassVar[frozenset[str]] = frozenset({"theta"})

    def init(self, key):
        return {
            "layer": {"w": jnp.array([2.0, 0.5])},
            "head": (None, jnp.array(0.3)),
            "theta": jnp.array(3.0),
        }

    def bounds(self):
        lower, upper = super().bounds()
        return lower | {"theta": 0.1, "head/1": 0.25}, upper | {"theta": 10.0}

    def log_probs(self, params, state):
        w, (_, bonus) = params["layer"]["w"], params["head"]
        scores = w[0] * state.means + w[1] / jnp.sqrt(state.pulls + 1) + bonus * state.pulls
        return jax.nn.log_softmax(scores / params["theta"])


@pytest.fixture(scope="module")
def learned():
    return gb.learn(Nested(), PROBLEM, iterations=3, instances=128, seed=1)


@pytest.mark.brief
def test_they_have_names_by_their_paths():
    policy = Nested().bind(2, 6)
    assert list(policy.shapes()) == NAMES
    params = policy.init(None)
    for given in (params, by_path(params), {"theta": 3, "layer": {"w": [2, 0.5]}, "head": (None, 0.3)}):
        found = policy.as_params(given)
        assert jax.tree.structure(found) == jax.tree.structure(params)
        assert all(map(np.array_equal, jax.tree.leaves(found), jax.tree.leaves(params)))
    for wrong in ({"theta": 3.0}, {"layer": 1.0, "head": (), "theta": 1.0}, [3.0], 3.0):
        with pytest.raises(
            InputError, match="the parameters of nested must be: head/1, layer/w, theta; not"
        ):
            policy.as_params(wrong)
    with pytest.raises(InputError, match=r"head/1 must lie in \[0.25, inf\]"):
        policy.as_params(params | {"head": (None, 0.1)})


@pytest.mark.brief
def test_they_are_learned_saved_loaded_and_evaluated(learned, tmp_path):
    began, ended = (by_path(p) for p in (Nested().init(None), learned.params))
    assert all(np.any(began[name] != ended[name]) for name in NAMES)
    assert 0.25 <= float(ended["head/1"]) < math.inf
    assert learned.history["params"].shape == (3, 4)
    assert repr(learned) == "Learned(nested, 2 arms, 6 rounds, 4 parameters, 3 iterations)"
    learned.save(tmp_path / "nested.safetensors")
    again = gb.load(tmp_path / "nested.safetensors", trust=Nested)
    assert jax.tree.structure(again.params) == jax.tree.structure(learned.params)
    one, other = (gb.evaluate(given, PROBLEM, instances=300).rows[0] for given in (learned, again))
    np.testing.assert_array_equal(one.regrets, other.regrets)
    for given in (learned, tmp_path / "nested.safetensors"):
        player = gb.Player(given, seed=0, trust=Nested)
        arm = player.select()
        player.update(arm, 1)
        pulled = jnp.eye(2)[int(arm)]
        wanted = learned.policy.log_probs(learned.params, gb.policies.Counts(pulled, pulled))
        assert player.probabilities() == pytest.approx(np.exp(wanted), abs=1e-6)


@pytest.mark.brief
def test_they_are_learned_on_from_a_checkpoint_to_the_same_bits(learned, tmp_path):
    file = tmp_path / "checkpoint.safetensors"

    def interrupt(step):
        if step.iteration == 2:
            raise KeyboardInterrupt

    settings = {"iterations": 3, "instances": 128, "seed": 1, "checkpoint": file, "checkpoint_every": 1}
    with pytest.raises(KeyboardInterrupt):
        gb.learn(Nested(), PROBLEM, progress=interrupt, **settings)
    again = gb.learn(Nested(), PROBLEM, resume=True, **settings)
    assert all(map(np.array_equal, jax.tree.leaves(again.params), jax.tree.leaves(learned.params)))


def test_their_gradient_is_that_of_enumeration():
    exact = gb.exact.by_enumeration(Nested(), PROBLEM).gradient
    assert list(exact) == NAMES
    found = gb.estimate(Nested(), PROBLEM, instances=20_000)
    assert_z(found.mean, found.se, np.concatenate([np.ravel(exact[name]) for name in NAMES]))
