"""Numbers that go wrong are caught, and named with round, instance and policy."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradband as gb
from gradband.core.errors import InputError
from gradband.policies import Counting, Policy, Uniform
from gradband.problems.rewards import Bernoulli, Reward

pytestmark = pytest.mark.brief
PROBLEM = gb.problems.named("uniform-2", horizon=12)


@dataclasses.dataclass(frozen=True)
class Wrong(Counting):
    """A policy whose probabilities are wrong once an arm was pulled five times, by a factor."""

    name: ClassVar[str] = "wrong"
    factor: float = 1.0

    def init(self, key):
        return {"w": jnp.zeros(())}

    def log_probs(self, params, state):
        late = (state.pulls >= 5).any()
        log_probs = jax.nn.log_softmax(params["w"] * state.means)
        return log_probs + jnp.where(late, jnp.log(self.factor), 0.0)


@dataclasses.dataclass(frozen=True)
class Outside(Policy):
    """A policy without a density, which pulls an arm that there is not, in the sixth round."""

    name: ClassVar[str] = "outside"
    differentiable: ClassVar[bool] = False

    def begin(self, params, latent):
        return jnp.zeros((), int)

    def act(self, key, params, state):
        return jnp.where(state == 5, self.arms, 0)

    def update(self, params, state, arm, reward):
        return state + 1


@dataclasses.dataclass(frozen=True)
class TooMuch(Reward):
    """Rewards that are said to be in [0, 1], and are 1 + μ or not a number for an arm in a hundred."""

    kind: ClassVar[str] = "too-much"
    nan: bool = False

    def draw(self, key, mean):
        wrong = jnp.where(self.nan, jnp.nan, 1 + mean)
        return jnp.where(mean > 0.99, wrong, mean)


@pytest.mark.parametrize(
    ("factor", "total"),
    [
        (np.nan, "nan"),
        pytest.param(1.1, "1.1", marks=pytest.mark.slow),
        pytest.param(np.inf, "inf", marks=pytest.mark.slow),
        pytest.param(0.0, "0", marks=pytest.mark.slow),
    ],
)
def test_probabilities_that_do_not_sum_to_one(factor, total):
    """Both arms have at most five pulls after nine rounds: the fault comes in round 6 to 10."""
    says = rf"^the probabilities of wrong sum to {total}, not to 1, in round ([6-9]|10) of instance 0$"
    with pytest.raises(InputError, match=says):
        gb.evaluate([Wrong(factor=factor)], PROBLEM, instances=600)
    with pytest.raises(InputError, match=r"probabilities of wrong .* in round \d+ of instance \d+$"):
        gb.estimate(Wrong(factor=factor), PROBLEM, instances=600)


def test_rounding_is_no_fault():
    gb.evaluate([Wrong(factor=1.0001)], PROBLEM, instances=600)
    many = gb.problems.named("bernoulli-10", arms=300, horizon=400)
    gb.evaluate([gb.policies.SoftElim(), gb.policies.Exp3()], many, instances=64)


def test_arms_that_are_not_there():
    with pytest.raises(InputError, match="^outside pulled arm 2 of 2 in round 6 of instance 0$"):
        gb.evaluate([Outside()], PROBLEM, instances=600)


@pytest.mark.parametrize(("nan", "value"), [(False, r"1\.\d+"), (True, "nan")])
def test_rewards_outside_their_range(nan, value):
    problem = gb.Problem(gb.priors.Beta(arms=2, rewards=TooMuch(nan)), 12)  # draws have not met it yet
    says = rf"^the reward was {value}, not one in \[0, 1\], in round \d+ of instance \d+ \(uniform\)$"
    with pytest.raises(InputError, match=says):
        gb.evaluate([Uniform()], problem, instances=600)


@pytest.mark.parametrize(("wrong", "value"), [(jnp.nan, "nan"), (1.5, "1.5"), (-0.25, "-0.25")])
def test_means_of_a_prior_of_ones_own(wrong, value):
    """A sampler is tried when it is made; rare faults come later, one in a thousand instances here."""

    def means(key):
        u = jax.random.uniform(key, (3,))
        return jnp.where(u[0] < 1e-3, jnp.array([0.5, wrong, 0.5]), u)

    problem = gb.Problem(gb.priors.Sampler(means, arms=3), 12)
    says = rf"^the prior gave arm 1 of instance \d+ the mean {value}, not one in \[0, 1\] \(uniform, before"
    with pytest.raises(InputError, match=says) as caught:
        gb.evaluate([Uniform()], problem, instances=20_000)
    # The instance is the first whose mean is wrong.
    found = int(str(caught.value).split("instance ")[1].split()[0])
    assert np.isfinite(gb.evaluate([Uniform()], problem, instances=found).rows[0].regrets).all()


def test_learning_stops_and_keeps_the_last_good_parameters():
    """At 0 all is well; with any other parameter, which the first step leads to, probabilities break."""

    @dataclasses.dataclass(frozen=True)
    class Fragile(Counting):
        name: ClassVar[str] = "fragile"

        def init(self, key):
            return {"w": jnp.zeros(())}

        def log_probs(self, params, state):
            scores = params["w"] * state.means
            return jax.nn.log_softmax(scores) + jnp.where(jnp.abs(params["w"]) > 0, 1.0, 0.0)

    learned = gb.learn(Fragile(), PROBLEM, iterations=5, instances=600)
    assert learned.stopped.startswith("the probabilities of fragile sum to 2.71828, not to 1, in round 1")
    assert learned.stopped.endswith(", in iteration 2")
    assert learned.params["w"] == 0
    assert np.isfinite(gb.evaluate(learned, PROBLEM, instances=600).rows[0].regret.mean)


def test_faults_in_batches_and_imitation_are_noticed():
    batches = PROBLEM.replace(pulls_per_round=4)
    with pytest.raises(InputError, match=r"sum to 1\.1, not to 1, in round 2 of instance"):
        gb.evaluate([Wrong(factor=1.1)], PROBLEM.replace(pulls_per_round=6), instances=600)
    assert gb.evaluate([Wrong(factor=1.0)], batches, instances=600)
    learned = gb.learn(Wrong(factor=1.1), PROBLEM, imitate=Uniform(), iterations=3, instances=128)
    assert learned.stopped.startswith("the probabilities of wrong sum to 1.1")


def test_good_numbers_are_left_alone():
    """Rewards at the ends of their range, means of 0 and 1, and rewards without bounds."""
    ends = gb.Problem(gb.priors.Finite([[0.0, 1.0], [1.0, 0.0]], rewards=Bernoulli()), 12)
    assert gb.evaluate([Uniform()], ends, instances=600).rows[0].regret.mean == pytest.approx(6, abs=0.5)
    wide = gb.Problem(gb.priors.Gaussian(arms=2, mean=1e6, sd=1e5), 12)
    assert np.isfinite(gb.evaluate([Uniform()], wide, instances=600).rows[0].regrets).all()
