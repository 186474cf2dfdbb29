"""Gradients of small networks, whose scores are summed along rollouts, against reverse mode."""

import dataclasses
from typing import Any, ClassVar

import jax
import numpy as np
import pytest

import gradband as gb
from gradband.core import prng
from gradband.gradient import estimator
from gradband.gradient.estimator import Controls, Estimator, gradient_job
from gradband.learning.over_problems import suited
from gradband.policies import Array, BeliefIndex, IndexNetwork, Params

pytestmark = pytest.mark.brief

LINEAR = gb.Problem(gb.priors.Linear(3, 2), horizon=6)
PLAIN = gb.problems.named("uniform-2", horizon=6)


def bound_and_drawn(policy, problem):
    """The policy for the problem, and parameters away from its start."""
    bound = suited(policy, problem)
    rng = np.random.default_rng(1)
    start = bound.init(prng.root(0))
    return bound, {n: leaf + np.float32(0.3) * rng.normal(size=leaf.shape) for n, leaf in start.items()}


@pytest.mark.parametrize(
    ("policy", "problem"), [(BeliefIndex(hidden=1), LINEAR), (IndexNetwork(hidden=2), PLAIN)]
)
def test_they_agree_with_reverse_mode(policy, problem, monkeypatch):
    bound, params = bound_and_drawn(policy, problem)
    how = Estimator("leave-one-out", returns="expected")

    def found():
        return gb.estimate(bound, problem, params, instances=64, estimator=how)

    traced = found()
    monkeypatch.setattr(estimator, "TRACED", 0)
    other = found()
    assert traced.per_instance.shape == (traced.mean.size, 64)
    assert other.per_instance is None
    np.testing.assert_allclose(traced.mean, other.mean, atol=1e-4 * np.abs(other.mean).max())
    np.testing.assert_allclose(traced.regrets, other.regrets, atol=1e-5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doubting(IndexNetwork):
    """Its counts depend on a parameter."""

    name: ClassVar[str] = "doubting"
    listed: ClassVar[bool] = False
    hidden: int = 2

    def update(self, params: Params, state: Any, arm: Array, reward: Array) -> Any:
        return super().update(params, state, arm, reward * params["doubt"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Telling(BeliefIndex):
    """What a reward tells of other arms depends on a parameter."""

    name: ClassVar[str] = "telling"
    listed: ClassVar[bool] = False
    hidden: int = 1

    def told_of_others(self, params: Params) -> Array:
        return params["told"]


def test_states_that_depend_on_parameters_take_reverse_mode():
    on_counts, on_beliefs = (jax.device_put(problem) for problem in (PLAIN, LINEAR))
    for policy, problem, traced in (
        (IndexNetwork(hidden=2), on_counts, True),
        (Doubting(), on_counts, False),
        (BeliefIndex(hidden=1), on_beliefs, True),
        (Telling(), on_beliefs, False),
    ):
        bound, params = bound_and_drawn(policy, problem)
        for controls, expected in ((Controls(), traced), (Controls(entropy=0.1), False)):
            given = bound, problem, params, prng.root(0), 1, 64, Estimator("self"), controls
            assert gradient_job(*given).settings[0].traced == expected
