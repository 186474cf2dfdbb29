"""Baselines of one's own: unbiased if they keep to the rules, and the same numbers as the built-in ones."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z

import gradband as gb
from gradband.core.errors import InputError
from gradband.gradient.baselines import BASELINES
from gradband.policies import SoftElim

PROBLEM = gb.problems.named("two-point", horizon=5)
POLICY = SoftElim(theta=0.3)


class Constant(gb.Baseline):
    """The same in every round."""

    def of(self, round):
        return jnp.full_like(round.reward, 0.3)


class BestArm(gb.Baseline):
    """The built-in baseline optimal, written again."""

    needs_means = True

    def of(self, round):
        return round.best_reward


@dataclasses.dataclass(frozen=True)
class Expected(gb.Baseline):
    """What the policy can expect from here on, from its state and probabilities."""

    rounds: int = 5

    def ahead(self, round):
        p, counts = jnp.exp(round.log_probs), round.state
        guess = (counts.sums + 1) / (counts.pulls + 2)
        return (self.rounds - round.t) * (p * guess).sum(0)


def estimate(baseline, instances=400_000, **settings):
    how = gb.Estimator(baseline=baseline, **settings)
    return gb.estimate(POLICY, PROBLEM, instances=instances, estimator=how, seed=3)


@pytest.fixture(scope="module")
def exact():
    return float(gb.exact.by_enumeration(POLICY, PROBLEM).gradient["theta"])


@pytest.mark.parametrize("baseline", [Constant(), Expected()], ids=repr)
def test_a_baseline_of_ones_own_is_unbiased(baseline, exact):
    """Also one that sees the state and the probabilities, which has to be right about `ahead` alone."""
    found = estimate(baseline)
    assert_z(found.mean[0], found.se[0], exact)
    assert abs(exact) > 6 * found.se[0], "so that a bias would be noticed"


def test_a_prediction_from_the_state_reduces_the_variance():
    assert estimate(Expected()).spread[0] < 0.9 * estimate("none").spread[0]


@pytest.mark.brief
@pytest.mark.parametrize("returns", ["realised", "expected"])
def test_the_built_in_baseline_written_again_gives_the_same_numbers(returns):
    mine, built_in = (estimate(b, instances=600, returns=returns) for b in (BestArm(), "optimal"))
    np.testing.assert_array_equal(mine.per_instance, built_in.per_instance)


@pytest.mark.brief
def test_learning_takes_a_baseline_of_ones_own():
    problem = gb.problems.named("two-point", horizon=10)
    how = gb.Estimator(BestArm(), returns="expected")
    learned = gb.learn("softelim", problem, estimator=how, iterations=2, instances=64)
    assert learned.about["training"]["baseline"] == "BestArm"
    assert learned.about["training"]["rollouts"] == 1


def test_what_is_no_baseline_is_refused():
    @dataclasses.dataclass
    class Changing(gb.Baseline):
        level: float = 0.0

    class Three(gb.Baseline):
        least, most, rollouts = 2, 3, 3

    with pytest.raises(InputError, match="Changing must be hashable"):
        gb.Estimator(Changing())
    with pytest.raises(InputError, match="must be a Baseline"):
        gb.Estimator(Constant)
    with pytest.raises(InputError, match="Three takes at most 3 rollouts, not 4"):
        gb.Estimator(Three(), 4)
    table = gb.Problem(gb.priors.Table(np.zeros((4, 2, 9))), 9)
    with pytest.raises(InputError, match="BestArm needs to know the best arm"):
        gb.estimate(POLICY, table, estimator=BestArm())
    assert gb.Estimator(Three()).rollouts == 3


def test_built_in_baselines_say_what_they_need():
    needs = {name: (b.rollouts, b.needs_means, b.features > 0) for name, b in BASELINES.items()}
    assert needs == {
        "none": (1, False, False),
        "optimal": (1, True, False),
        "self": (2, False, False),
        "leave-one-out": (4, False, False),
        "critic": (1, True, True),
        "luck": (1, True, True),
    }
