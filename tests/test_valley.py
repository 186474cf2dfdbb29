"""The minimum of a narrow valley that is seen with noise."""

import numpy as np
import pytest

from gradband.core.arrays import on_device
from gradband.learning import choice
from gradband.learning.ascent import PLAIN, Steps
from gradband.learning.valley import LONGEST, Valley
from gradband.policies import KLSoftElim, SoftElim

# A valley as KL-SoftElim has on ten arms: steep along θ, and flat where a rises while b and θ fall.
FLAT = np.array([1.0, -1.0, -0.8]) / np.sqrt(2.64)
TRUTH = 0.7 * FLAT


def excess(x):
    """What is lost at points [D, 3], in percent of the least."""
    x = np.atleast_2d(x) - TRUTH
    along = x @ FLAT
    across = x - np.outer(along, FLAT)
    return 6 * along**2 + 200 * (across**2).sum(1)


def searched(noise, seed, rounds=3):
    rng = np.random.default_rng(seed)
    valley, points, values = Valley.around(3, 0.3), np.zeros((0, 3)), np.zeros(0)
    for _ in range(rounds):
        more = valley.points()
        points = np.vstack([points, more])
        values = np.append(values, 100 + excess(more) + noise * rng.normal(size=len(more)))
        valley = valley.fitted(points, values, 5 * noise)
    return valley, points[values.argmin()]


def test_a_quadratic_finds_what_the_best_of_noisy_points_does_not():
    found = [searched(0.8, seed) for seed in range(100)]
    by_valley = np.array([excess(valley.centre)[0] for valley, _ in found])
    by_luck = np.array([excess(point)[0] for _, point in found])
    assert by_valley.mean() < 0.4
    assert by_valley.max() < 3
    assert by_luck.mean() > 2 * by_valley.mean()


def test_without_noise_it_is_exact():
    valley, _ = searched(1e-3, 0)
    assert excess(valley.centre)[0] < 1e-4
    assert abs(abs(valley.axes[:, valley.lengths.argmax()] @ FLAT) - 1) < 1e-3, "the way the valley goes"


@pytest.mark.parametrize("count", [2, 3, 8])
def test_there_are_points_enough_for_a_quadratic(count):
    points = Valley.around(count, 0.3).points()
    coefficients = 1 + count + count * (count + 1) // 2
    first, second = np.triu_indices(count)
    columns = np.hstack([np.ones((len(points), 1)), points, points[:, first] * points[:, second]])
    assert np.linalg.matrix_rank(columns) == coefficients


def test_what_is_no_valley_is_left_with_small_steps():
    start = Valley.around(2, 0.3)
    points = start.points()
    slope = start.fitted(points, points[:, 0], 0.1)
    assert np.linalg.norm(slope.centre) < 1.6 * np.sqrt(2) * LONGEST
    assert slope.centre[0] < 0
    nowhere = start.fitted(points, np.full(len(points), np.inf), 0.1)
    assert nowhere is start


class Known:
    """A judge whose regrets are a function of log₁₀ of the parameters, without noise."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def regret(self, params):
        self.calls += 1
        assert self.calls < 5000, "it does not end"
        return self.function({name: float(np.log10(leaf)) for name, leaf in params.items()})

    def noise(self, params):
        return 0.01


def known(policy, **params):
    return Steps(policy.bind(2, 20), PLAIN, "log"), {
        name: on_device(np.asarray(value), np.float32) for name, value in params.items()
    }


@pytest.mark.parametrize("regret", [1.0, float("inf")])
def test_where_nothing_changes_the_regret_a_refinement_ends(regret):
    steps, start = known(KLSoftElim(), theta=0.5, a=1.0, b=1.0)
    assert choice.refine(Known(lambda at: regret), steps, start) is start


def test_a_refinement_looks_closer_the_second_time():
    """Three points .3 decades apart, then .15: what a parabola leaves falls with the square of that."""
    steps, start = known(SoftElim(), theta=0.5)
    best = np.log10(0.5) + 0.1
    judge = Known(lambda at: np.exp(3 * (at["theta"] - best)) - 3 * (at["theta"] - best))
    found = choice.refine(judge, steps, start)
    assert abs(np.log10(float(found["theta"])) - best) < 0.02
