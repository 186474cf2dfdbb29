"""An LSTM's gradient by compiled code: against XLA, which knows nothing of it."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from gradband import problems
from gradband.core import prng
from gradband.core.errors import InputError
from gradband.engine import blocks
from gradband.engine.recurrent import kernel
from gradband.engine.recurrent.forward import Shape
from gradband.gradient import estimator, through_time
from gradband.gradient.estimator import Controls, Estimator
from gradband.policies import LSTM, GaussianLSTM, SoftElim
from gradband.problems import GeometricDelay, Problem, priors, rewards

pytestmark = pytest.mark.brief

UNIFORM = problems.named("uniform-2", horizon=9)
UNEVEN = Problem(priors.Beta(arms=3, a=1.0, b=[1.0, 2.0, 1.0]), horizon=5)
NORMAL = Problem(priors.Gaussian(arms=2, mean=1.0, sd=2.0, rewards=rewards.Gaussian(sd=0.5)), horizon=6)


def gradients(how, problem, policy, controls=estimator.PLAIN, instances=40, devices=1):
    """Estimates by compiled code and by XLA, of the same instances."""
    policy = policy.bind(problem.arms, problem.horizon)
    params, problem = policy.init(prng.root(3)), jax.device_put(problem)
    job = estimator.gradient_job(policy, problem, params, prng.root(4), 2, instances, how, controls)
    assert job.compiled is not None
    for engine in (None, "xla"):
        on = blocks.workers(devices=devices, engine=engine)
        yield estimator.compute(job._replace(known={}), on)


def assert_equal(one, other):
    np.testing.assert_allclose(one.regrets, other.regrets, rtol=1e-5, atol=1e-5)
    for name in ("mean", "se"):
        a, b = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-6 * abs(b).max())


CASES: dict[str, tuple[Any, ...]] = {
    "3 arms, 7 units": (Estimator("leave-one-out"), UNEVEN, LSTM(hidden=7)),
    "normal rewards": (Estimator("optimal", returns="expected"), NORMAL, GaussianLSTM(hidden=8, mean=1.0)),
    "temperature and entropy": (Estimator("self"), UNIFORM, LSTM(hidden=4), Controls(1.7, 0.3)),
    "prices": (Estimator("none", returns="priced"), UNIFORM, LSTM(hidden=6)),
    "a tail": (Estimator("self", objective="cvar:0.3"), UNIFORM, LSTM(hidden=3), Controls(threshold=1.0)),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_xla(case):
    assert_equal(*gradients(*CASES[case]))


@pytest.mark.parametrize("baseline", ["critic", "luck"])
def test_a_critic_learns_the_same(baseline):
    how = Estimator(baseline, returns="expected")
    blank = how.critic(UNIFORM.rounds)
    one, other = gradients(how, UNIFORM, LSTM(hidden=5), Controls(critic=blank))
    np.testing.assert_allclose(one.moments, other.moments, rtol=1e-4, atol=1e-3)
    one, other = gradients(how, UNIFORM, LSTM(hidden=5), Controls(critic=blank.after(other.moments)))
    assert_equal(one, other)


def test_bits_depend_neither_on_workers_nor_on_tiles(monkeypatch):
    how, policy = Estimator("self"), LSTM(hidden=6)
    found = [next(gradients(how, UNIFORM, policy, devices=devices)) for devices in (1, 2)]
    kernel.made.cache_clear()
    monkeypatch.setattr(kernel, "_tile", lambda: kernel.NARROW)
    found.append(next(gradients(how, UNIFORM, policy)))
    kernel.made.cache_clear()
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].mean, other.mean)
        np.testing.assert_array_equal(found[0].regrets, other.regrets)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faint(LSTM):
    """An LSTM with a formula of its own."""

    def log_probs(self, params, state):
        return super().log_probs(params, state) * 1


@pytest.mark.parametrize(
    ("policy", "problem", "how"),
    [
        (SoftElim(), UNIFORM, Estimator("self")),
        (Faint(), UNIFORM, Estimator("self")),
        (LSTM(), UNIFORM.replace(delay=GeometricDelay(mean=2)), Estimator("self")),
        (LSTM(), UNIFORM.replace(afterwards=3), Estimator("self")),
        (LSTM(), UNIFORM.replace(horizon=4, pulls_per_round=2), Estimator("self")),
        (LSTM(), problems.named("distractors", arms=17), Estimator("self")),
        (LSTM(), problems.named("beta-10"), Estimator("self")),
        (GaussianLSTM(), NORMAL, Estimator("luck")),
    ],
    ids=[
        "other policies",
        "own formulas",
        "delay",
        "afterwards",
        "batches",
        "many arms",
        "beta rewards",
        "luck",
    ],
)
def test_the_rest_is_left_to_xla(policy, problem, how):
    bound = policy.bind(problem.arms, problem.horizon)
    params, key = bound.init(prng.root(0)), prng.root(0)
    controls = Controls(critic=how.critic(problem.rounds))
    job = estimator.gradient_job(bound, problem, params, key, 1, 64, how, controls)
    assert job.compiled is None


def test_lanes_alone_cannot():
    with pytest.raises(InputError, match="xla"):
        estimator.estimate(LSTM(hidden=4), UNIFORM, instances=64, engine="lanes")


def test_numbers_that_go_wrong_are_told():
    policy = LSTM(hidden=4).bind(2, UNIFORM.horizon)
    params = policy.init(prng.root(0))
    params["head_bias"] = params["head_bias"] * 0 + 3e38  # infinite, once it is multiplied by 20
    told = []
    for engine in (None, "xla"):
        with pytest.raises(InputError) as error:
            estimator.estimate(policy, UNIFORM, params, instances=64, engine=engine)
        told.append(str(error.value))
    assert told[0] == told[1]
    assert "lstm" in told[0]


def test_a_product_is_turned():
    """Columns of padding, which no input fills, get no derivative."""
    found = kernel.kernel_for(Shape(5, 2))
    assert found.shape.padded == 16
    n, count = 3, 64
    rng = np.random.default_rng(0)
    policy = LSTM(hidden=5).bind(2, n)
    weights = jax.tree.map(np.asarray, through_time.weights(policy, policy.init(prng.root(0)), None))
    drawn = rng.random((n, 2, count), np.float32)
    arms, log_probs, _ = found.play(weights, drawn[:, 0].copy(), drawn)
    np.testing.assert_allclose(np.exp(log_probs).sum(1), 1, rtol=1e-5)
    slopes = found.differentiate(weights, drawn, arms, log_probs)
    assert not slopes.gates[..., found.shape.inputs :].any()
    assert slopes.gates[..., : found.shape.inputs].any()
