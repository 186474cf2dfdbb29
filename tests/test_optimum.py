"""Bayes optima against published values and plain recursions, and the policies that reach them."""

import itertools
import re
import tracemalloc
from functools import cache

import jax
import numpy as np
import pytest
from conftest import assert_z

import gradband
from gradband import problems
from gradband.core import resources
from gradband.core.errors import InputError
from gradband.evaluation.evaluate import evaluate
from gradband.exact import by_counts, optimum
from gradband.exact.optimum import check_size, known_regret
from gradband.problems import Problem, priors, rewards
from gradband.solvers import many_arms, posterior, two_arms
from gradband.solvers.simplex import Grid

pytestmark = pytest.mark.brief


def beta_recursion(a, b, n):
    """The optimum of independent beta arms, over each arm's ones and zeros."""

    @cache
    def value(ones, zeros):
        if sum(ones) + sum(zeros) == n:
            return 0.0
        options = []
        for i in range(len(a)):
            p = (a[i] + ones[i]) / (a[i] + b[i] + ones[i] + zeros[i])
            more = tuple(x + (k == i) for k, x in enumerate(ones))
            less = tuple(x + (k == i) for k, x in enumerate(zeros))
            options.append(p * (1 + value(more, zeros)) + (1 - p) * value(ones, less))
        return max(options)

    start = (0,) * len(a)
    return value(start, start)


def finite_recursion(means, weights, n):
    """The optimum of a list of instances, over counts, with joint probabilities."""
    means, weights = np.asarray(means, float), np.asarray(weights, float)

    @cache
    def value(ones, zeros):
        if sum(ones) + sum(zeros) == n:
            return 0.0
        joint = weights * (means ** np.array(ones) * (1 - means) ** np.array(zeros)).prod(1)
        options = []
        for i in range(means.shape[1]):
            more = tuple(x + (k == i) for k, x in enumerate(ones))
            less = tuple(x + (k == i) for k, x in enumerate(zeros))
            options.append(joint @ means[:, i] + value(more, zeros) + value(ones, less))
        return max(options)

    start = (0,) * means.shape[1]
    return value(start, start)


# Values.


def test_uniform_2_is_the_published_optimum():
    for n, reward in ((10, 6.0217857), (20, 12.4312649), (100, 64.9184207), (200, 131.0940810)):
        best = optimum(problems.named("uniform-2", horizon=n))
        assert round(best.reward, 7) == reward
        assert best.regret == pytest.approx(2 * n / 3 - best.reward, abs=1e-11)
        assert (best.error, best.loss) == (0, 0)
    assert optimum(problems.named("uniform-2", horizon=60)).reward == pytest.approx(
        38.562343246635564, abs=1e-9
    )


def test_one_arm_against_a_known_one_is_the_published_optimum():
    """A belief of 10¹² pulls does not move."""
    for n, reward, digits in ((10, 5.823719, 6), (50, 30.34982, 5)):
        assert round(two_arms.solve([1, 1e12], [1, 1e12], n)[0], digits) == reward


@pytest.mark.parametrize(
    ("name", "arms", "n", "regret"),
    [
        ("two-point", 2, 20, 1.1425),
        ("two-point", 2, 200, 2.4805),
        ("distractors", 3, 20, 0.8793),
        ("distractors", 10, 20, 0.8793),
        ("distractors", 3, 200, 1.3699),
        ("distractors", 10, 200, 1.3699),
    ],
)
def test_papers_finite_problems_have_the_published_optimum(name, arms, n, regret):
    best = optimum(problems.named(name, arms=arms, horizon=n))
    assert round(best.regret, 4) == regret
    assert best.error == 0
    assert best.loss <= 1e-4 * regret


def test_many_alike_arms_have_the_published_optimum():
    for arms, reward in ((5, 6.65999), (10, 6.71395), (13, 6.71395)):
        assert round(optimum(Problem(priors.Beta(arms), 10)).reward, 5) == reward


@pytest.mark.parametrize(
    ("a", "b", "n"),
    [
        ([2, 0.5], [1, 3], 14),
        ([0.1, 4], [0.1, 4], 14),
        ([1], [2], 9),
        ([1, 1, 1], [1, 1, 1], 8),
        ([2, 1, 2], [1, 3, 1], 8),
        ([0.5, 1, 3, 1], [0.5, 2, 1, 2], 6),
    ],
)
def test_beta_arms_are_valued_as_by_recursion(a, b, n):
    best = optimum(Problem(priors.Beta(len(a), a, b), n))
    assert best.reward == pytest.approx(beta_recursion(a, b, n), rel=1e-12)


FINITE = {
    "two instances": ([[0.9, 0.2, 0.5], [0.3, 0.35, 0.5]], [0.3, 0.7], 8),
    "three instances": ([[0.7, 0.4], [0.2, 0.5], [0.55, 0.6]], None, 12),
    "four instances": ([[0.1, 0.8], [0.5, 0.6], [0.9, 0.3], [0.4, 0.45]], [0.1, 0.2, 0.3, 0.4], 12),
    "means of 0 and 1": ([[0, 1, 0.5], [1, 0, 0.5], [0.3, 0.3, 0.5]], [0.4, 0.4, 0.2], 6),
    "a sure thing": ([[1, 0.2], [1, 0.7]], None, 8),
    "a weight of 0": ([[0.2, 0.4], [0.9, 0.9], [0.6, 0.3]], [0.5, 0, 0.5], 10),
    "one instance": ([[0.2, 0.7, 0.4]], None, 6),
    "one likely instance": ([[0.2, 0.7], [0.9, 0.1]], [1, 0], 6),
    "arms that are the same": ([[0.6, 0.3, 0.6, 0.3], [0.2, 0.5, 0.2, 0.5]], None, 6),
    "instances that are the same": ([[0.6, 0.3], [0.6, 0.3], [0.2, 0.5]], None, 10),
    "posteriors that are almost the same": ([[0.8, 0.2001], [0.2, 0.8], [0.5, 0.4999]], None, 10),
}


@pytest.mark.parametrize("name", FINITE)
def test_finite_priors_are_valued_as_by_recursion(name):
    means, weights, n = FINITE[name]
    prior = priors.Finite(means, weights)
    best = optimum(Problem(prior, n))
    assert best.error == 0
    assert best.reward == pytest.approx(finite_recursion(means, prior.weights, n), rel=1e-9)
    assert best.regret == pytest.approx(n * prior.weights @ prior.instances.max(1) - best.reward, abs=1e-11)


def test_workers_do_not_change_a_bit():
    for n in (2, 3, 40):
        value, table = two_arms.solve([1, 2], [1, 0.5], n)
        for workers in (2, 3):
            again, same = two_arms.solve([1, 2], [1, 0.5], n, workers)
            assert again == value
            np.testing.assert_array_equal(same, table)


def test_states_are_as_many_as_was_said():
    for a, b in (([1] * 4, [1] * 4), ([1, 2, 1], [1, 1, 1]), ([1, 2, 3], [1, 1, 1])):
        for n in (1, 2, 6):
            assert many_arms.nodes(a, b, n).sum() == len(many_arms.solve(a, b, n).action)


@pytest.mark.parametrize(("instances", "resolution"), [(2, 7), (3, 5), (5, 3)])
def test_grid_surrounds_every_posterior(instances, resolution):
    grid = Grid(instances, resolution)
    whole = np.array(list(itertools.product(range(resolution + 1), repeat=instances)))
    wanted = whole[whole.sum(1) == resolution] / resolution
    assert {tuple(p) for p in grid.points.round(9)} == {tuple(p) for p in wanted.round(9)}
    rng = np.random.default_rng(0)
    inside = np.concatenate([rng.dirichlet(np.full(instances, 0.5), 200), np.eye(instances), wanted])
    corners, weights = grid.simplex(inside)
    assert weights.min() >= -1e-12
    np.testing.assert_allclose((grid.points[corners] * weights[..., None]).sum(1), inside, atol=1e-12)
    np.testing.assert_allclose(grid.points[grid.nearest(wanted)], wanted, atol=1e-12)


# Policies.

SIX = [[0.51, 0.95], [0.14, 0.95], [0.31, 0.42], [0.83, 0.41], [0.55, 0.03], [0.75, 0.54]]
PLAYED = {
    "thresholds": ("optimal-thresholds", Problem(priors.Beta(2, [1, 2], [1, 0.5]), 20)),
    "graph of alike arms": ("optimal-graph", Problem(priors.Beta(4), 8)),
    "graph of mixed kinds": ("optimal-graph", Problem(priors.Beta(4, [2, 1, 2, 1], [1, 3, 1, 3]), 7)),
    "graph of a finite prior": ("optimal-graph", Problem(priors.Finite(SIX), 10)),
    "grid": ("optimal-grid", problems.named("distractors", arms=5, horizon=20)),
    "grid with means of 0 and 1": ("optimal-grid", Problem(priors.Finite([[0, 1], [1, 0.5]]), 10)),
}


@pytest.fixture(scope="module", params=PLAYED)
def played(request):
    name, problem = PLAYED[request.param]
    best = optimum(problem)
    assert best.policy.policy.name == name
    return problem, best


def test_simulated_regret_is_the_exact_one(played):
    problem, best = played
    row = evaluate(best.policy, problem, instances=100_000, seed=5).rows[0]
    assert_z(row.regret.mean, row.regret.se, best.regret, best.loss)
    assert_z(row.reward.mean, row.reward.se, best.reward, best.loss)


def test_saved_policy_plays_the_same(played, tmp_path):
    problem, best = played
    best.policy.save(tmp_path / "p.safetensors")
    again = gradband.load(tmp_path / "p.safetensors")
    assert again.policy == best.policy.policy
    assert again.about["optimum"]["reward"] == best.reward
    one, other = (evaluate(p, problem, instances=500).rows[0].regrets for p in (best.policy, again))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "problem",
    [
        problems.named("uniform-2", horizon=60),
        Problem(priors.Beta(2, [1, 2], [1, 0.5]), 30),
        problems.named("two-point", horizon=100),
        Problem(priors.Finite(*FINITE["three instances"][:2]), 40),
        Problem(priors.Finite(*FINITE["a weight of 0"][:2]), 30),
        Problem(priors.Finite([[0, 1], [1, 0.5], [0.2, 0.3]]), 12),
    ],
    ids=["uniform-2", "unequal arms", "two-point", "three instances", "weight of 0", "means of 0 and 1"],
)
def test_policy_of_two_arms_has_exactly_the_reward_that_is_claimed(problem):
    best = optimum(problem)
    reward = by_counts(best.policy.policy, problem, best.policy.params).reward
    assert reward == pytest.approx(best.reward - best.loss, abs=1e-9)


@pytest.mark.parametrize(
    "problem",
    [
        problems.named("uniform-2", horizon=6),
        problems.named("uniform-2", arms=3, horizon=6),
        problems.named("two-point", horizon=6),
        Problem(priors.Finite(SIX), 10),
    ],
    ids=["thresholds", "graph", "grid", "graph of a finite prior"],
)
def test_policy_made_for_one_horizon_is_not_played_on_another(problem):
    best = optimum(problem)
    with pytest.raises(InputError, match=f"was made for {problem.horizon} rounds"):
        evaluate(best.policy, problem.replace(horizon=problem.horizon + 3), instances=10)


# Where the lattice of posteriors is too large.


@pytest.mark.parametrize(("means", "n"), [(FINITE["three instances"][0], 12), (SIX, 10)])
def test_bounds_enclose_the_optimum(monkeypatch, means, n):
    monkeypatch.setattr(posterior, "WORK", 1000)
    best = optimum(Problem(priors.Finite(means), n))
    exact = finite_recursion(means, np.full(len(means), 1 / len(means)), n)
    assert best.error > 0
    assert best.loss is None  # what the policy gains is not known
    assert best.reward - 1e-12 <= exact <= best.reward + best.error + 1e-12


@pytest.mark.parametrize(
    ("means", "n", "work"),
    [
        ([[0.26, 0.3], [0.81, 0.09], [0.6, 0.73]], 14, posterior.WORK),
        ([[0.09, 0.24], [0.8, 0.58], [0.09, 0.43], [0.48, 0.16]], 16, 6000),
    ],
)
def test_policy_on_a_grid_loses_as_much_as_is_said(monkeypatch, means, n, work):
    problem = Problem(priors.Finite(means), n)
    monkeypatch.setattr(posterior, "WORK", work)
    best = optimum(problem)
    assert best.policy.policy.name == "optimal-grid"
    assert best.loss > 1e-5
    reward = by_counts(best.policy.policy, problem, best.policy.params).reward
    assert reward == pytest.approx(best.reward - best.loss, abs=1e-9)


# What can't be had.


@pytest.mark.parametrize(
    ("problem", "match"),
    [
        (Problem(priors.Gaussian(2), 10), "bernoulli rewards, not gaussian rewards"),
        (Problem(priors.Table(np.zeros((4, 2, 9))), 9), "bernoulli rewards, not realised rewards"),
        (problems.named("beta-10", arms=2, horizon=10), "bernoulli rewards, not beta rewards"),
        (
            Problem(priors.Finite([[0.5, 0.1]], rewards=rewards.Gaussian()), 10),
            "bernoulli rewards, not gaussian",
        ),
        (Problem(priors.Finite(np.full((257, 2), 0.5)), 10), "257 instances has too many posteriors: 256"),
    ],
    ids=["gaussian", "table", "beta rewards", "gaussian rewards", "many instances"],
)
def test_problems_without_an_optimum_are_refused(problem, match):
    with pytest.raises(InputError, match=match):
        optimum(problem)


def test_sampler_is_refused():
    prior = priors.Sampler(lambda key: jax.random.uniform(key, (2,)), arms=2)
    with pytest.raises(InputError, match="not a sampler prior: list instances of it"):
        optimum(Problem(prior, 10))


@pytest.mark.parametrize(
    ("prior", "n"),
    [(priors.Beta(2), 2000), (priors.Beta(3), 100), (priors.Beta(10), 1000)],
    ids=["two arms", "three arms", "ten arms"],
)
def test_horizon_that_would_do_does_and_a_longer_one_does_not(monkeypatch, prior, n):
    monkeypatch.setattr(resources, "free_memory", lambda: None)
    with pytest.raises(InputError, match=rf"of {prior.arms} arms over {n} rounds") as error:
        optimum(Problem(prior, n))
    (longest,) = map(int, re.findall(r"a horizon of (\d+) is feasible", str(error.value)))
    check_size(Problem(prior, longest))
    with pytest.raises(InputError, match=f"a horizon of {longest} is feasible"):
        check_size(Problem(prior, longest + 1))


@pytest.mark.parametrize(
    ("problem", "needed"),
    [
        (problems.named("uniform-2", horizon=500), r"255\.5 MB"),
        (Problem(priors.Beta(3), 40), r"\d+\.\d [MG]B"),
        (problems.named("two-point", horizon=1000), r"\d+\.\d [MG]B"),
    ],
    ids=["two arms", "three arms", "finite"],
)
def test_too_little_memory_is_noticed_before_any_is_taken(monkeypatch, problem, needed):
    monkeypatch.setattr(resources, "free_memory", lambda: 10_000_000)
    for solver in (two_arms, many_arms, posterior):
        monkeypatch.setattr(solver, "solve", None)
    with pytest.raises(InputError, match=f"needs {needed} of memory, but only 10.0 MB is available: "):
        optimum(problem)


@pytest.mark.parametrize(
    "free",
    [7_300_000, 10_000_000, None],
)
def test_horizon_that_memory_allows_is_allowed(monkeypatch, free):
    monkeypatch.setattr(resources, "free_memory", lambda: free)
    with pytest.raises(InputError, match="is feasible") as error:
        check_size(problems.named("uniform-2", horizon=1700))
    (longest,) = map(int, re.findall(r"a horizon of (\d+) is feasible", str(error.value)))
    check_size(problems.named("uniform-2", horizon=longest))


@pytest.mark.parametrize(
    ("arms", "n"), [(2, 150), (3, 35), pytest.param(10, 16)], ids=["two", "three", "ten"]
)
def test_memory_is_not_more_than_was_said(arms, n):
    a = [1.0] * arms
    solve = two_arms.solve if arms == 2 else many_arms.solve
    solve(a, a, 3)  # compiled beforehand
    tracemalloc.start()
    solve(a, a, n)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    states = many_arms.nodes(a, a, n).sum() * arms
    assert peak <= (two_arms.memory(n) if arms == 2 else many_arms.BYTES * states)


def test_prior_parameters_must_be_positive():
    for solve in (two_arms.solve, many_arms.solve):
        with pytest.raises(InputError, match="a of a beta prior must be above 0, not 0"):
            solve([1, 0], [1, 1], 5)
        with pytest.raises(InputError, match="b of a beta prior must be above 0, not -1"):
            solve([1, 1], [-1, 1], 5)
        with pytest.raises(InputError, match="horizon must be a whole number"):
            solve([1, 1], [1, 1], 0)


# What commands compare with.


def test_known_regret_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    problem = problems.named("two-point", horizon=20)
    regret = known_regret(problem)
    assert round(regret, 4) == 1.1425
    monkeypatch.setattr(posterior, "solve", None)
    assert known_regret(problem.replace(name="another name")) == regret
    with pytest.raises(TypeError):
        known_regret(problem.replace(horizon=21))


def test_regret_that_is_not_known_soon_or_precisely_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match="the optimum of 1100 rounds takes minutes"):
        known_regret(problems.named("uniform-2", horizon=1100))
    monkeypatch.setattr(posterior, "WORK", 1000)
    with pytest.raises(InputError, match=r"only known to lie in \[0\.\d+, 0\.\d+\]"):
        known_regret(Problem(priors.Finite(SIX), 10))
