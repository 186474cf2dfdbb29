"""Exact answers for contexts and features, against closed forms, other recursions and simulations."""

import itertools
import math

import contextual_oracles as oracles
import numpy as np
import pytest
from conftest import assert_z

import gradband as gb
from gradband.core.errors import InputError
from gradband.core.statistics import Mean
from gradband.solvers import (
    finite_contexts,
    gaussian_feedback,
    groups,
    many_arms,
    posterior,
    signs,
    two_arms,
    wheel,
)


def agrees(mean, exact):
    """A Monte Carlo mean agrees with the exact one."""
    assert_z(mean.mean, mean.se, exact)


def signs_played(choose, d, n, prior_sd, noise_sd, instances=10_000, seed=0):
    """Regrets [m] of choices on `signs`, given means and deviations of xᵀθ and random numbers."""
    draws = np.random.default_rng(seed)
    theta = prior_sd * draws.standard_normal((instances, d))
    precision = np.tile(np.eye(d) / prior_sd**2, (instances, 1, 1))
    toward, regret = np.zeros((instances, d)), np.zeros(instances)
    for _ in range(n):
        x = draws.standard_normal((instances, d))
        both = np.linalg.solve(precision, np.stack([toward, x], 2))
        believed, variance = (x * both[..., 0]).sum(1), (x * both[..., 1]).sum(1)
        sign = np.sign(choose(believed, np.sqrt(variance), draws.standard_normal(instances)))
        mean = (x * theta).sum(1)
        regret += abs(mean) - sign * mean
        rewards = sign * mean + noise_sd * draws.standard_normal(instances)
        precision += x[:, :, None] * x[:, None] / noise_sd**2
        toward += (sign * rewards)[:, None] * x / noise_sd**2
    return regret


@pytest.mark.parametrize(("d", "n", "prior_sd", "noise_sd"), [(3, 30, 1, 1), (1, 4, 1, 2), (4, 10, 2, 0.5)])
def test_signs_against_simulated_policies(d, n, prior_sd, noise_sd):
    found = signs.regrets(d, n, prior_sd, noise_sd)
    for policy, regret in (
        (lambda mean, sd, z: mean + 1e-9 * z, found.optimal),
        (lambda mean, sd, z: mean + sd * z, found.thompson),
        (lambda mean, sd, z: z, found.uniform),
    ):
        agrees(Mean.of(signs_played(policy, d, n, prior_sd, noise_sd)), regret)


def test_signs_against_the_mean_over_given_contexts():
    draws = np.random.default_rng(1)
    for d, n, prior_sd in ((2, 5, 1.0), (3, 30, 1.0), (6, 20, 3.0)):
        drawn = oracles.signs_in(draws.standard_normal((10_000, n, d)), prior_sd)
        for each, exact in zip(drawn, signs.regrets(d, n, prior_sd), strict=True):
            agrees(Mean.of(each), exact)


def test_signs_in_one_dimension_is_an_integral():
    """With d = 1 and two rounds, v/v₀ = 1/(1 + x²) for a normal x."""
    x = np.linspace(-9, 9, 200_001)
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    q = 1 / (1 + x * x)
    lost = [1 + (density * each).sum() for each in (1 - np.sqrt(1 - q), q)]
    np.testing.assert_allclose(signs.regrets(1, 2)[:2], np.array(lost) * 2 / math.pi, atol=1e-8)


def test_signs_converges(monkeypatch):
    coarse = signs.regrets(5, 15)
    monkeypatch.setattr(signs, "DEGREE", 60)
    monkeypatch.setattr(signs, "NODES", 240)
    np.testing.assert_allclose(coarse, signs.regrets(5, 15), rtol=1e-9)


def test_groups_share_the_rounds():
    with_two = {n: two_arms.solve([1, 2], [1, 1], n)[0] for n in (2, 3)}
    assert oracles.reward_of_groups([1, 2], [1, 1], groups=4, horizon=10) == pytest.approx(
        2 * with_two[3] + 2 * with_two[2]
    )
    with_three = many_arms.solve([1] * 3, [1] * 3, 4).value
    assert oracles.reward_of_groups([1] * 3, [1] * 3, groups=3, horizon=12) == pytest.approx(3 * with_three)
    assert groups.split(5, 3) == [(1, 3)]


def product_of(pairs):
    """Instances [4, 2, 2] of two groups in which both pairs of instances [2, 2] are equally likely."""
    return np.array(list(itertools.product(pairs, pairs)))


def test_groups_as_finite_contexts():
    """Groups in turn, as contexts that depend on the round."""
    pairs = np.array([[0.3, 0.6], [0.7, 0.4]])
    turns = np.eye(2)[np.arange(7) % 2]
    found = finite_contexts.solve(product_of(pairs), np.ones(4), turns, 7)

    def alone(n):
        return posterior.solve(pairs, np.full(2, 0.5), n).value

    assert found.reward == pytest.approx(groups.total(alone, 2, 7), abs=1e-12)


MEANS = np.array([[[0.2, 0.7], [0.9, 0.5]], [[0.6, 0.3], [0.1, 0.5]], [[0.5, 0.5], [0.4, 0.8]]])
WEIGHTS, CONTEXTS = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.4])


def worth(joint, chances):
    """The recursion as it is written: over unnormalised beliefs, without merging any."""
    if not len(chances):
        return 0.0
    total = 0.0
    for c, chance in enumerate(chances[0]):
        values = []
        for a in range(MEANS.shape[2]):
            one, zero = joint * MEANS[:, c, a], joint * (1 - MEANS[:, c, a])
            values.append(one.sum() + worth(one, chances[1:]) + worth(zero, chances[1:]))
        total += chance * max(values)
    return total


@pytest.mark.parametrize("contexts", [CONTEXTS, np.array([[0.6, 0.4], [1, 0], [0.2, 0.8], [0, 1]])])
def test_finite_contexts_against_a_plain_recursion(contexts):
    found = finite_contexts.solve(MEANS, WEIGHTS, contexts, 4)
    chances = np.broadcast_to(contexts, (4, 2))
    assert found.reward == pytest.approx(worth(WEIGHTS, chances), abs=1e-12)
    best = finite_contexts.finite_problem(MEANS, WEIGHTS, contexts, 4).best
    assert found.regret == pytest.approx(best - found.reward)


def test_the_optimal_choices_earn_the_optimum():
    found = finite_contexts.solve(MEANS, WEIGHTS, CONTEXTS, 4)

    def play(history, context):
        belief = 0
        for t, seen in enumerate(history):
            belief = found.child[t][(belief, *seen)]
        return np.eye(2)[found.action[len(history)][belief, context]]

    reward = oracles.policy_reward(MEANS, WEIGHTS, CONTEXTS, 4, play)
    assert reward == pytest.approx(found.reward, abs=1e-12)


def test_a_policys_reward_against_its_simulation():
    """A policy that looks at the whole history, and at the context."""

    def chances(ones, context):
        first = 1 / (1 + np.exp(0.7 * ones - context))
        return np.stack([first, 1 - first], -1)

    def policy(history, context):
        return chances(sum((2 * arm - 1) * reward for _, arm, reward in history), context)

    exact = oracles.policy_reward(MEANS, WEIGHTS, CONTEXTS, 4, policy)
    draws = np.random.default_rng(0)
    instance, ones, total = draws.choice(3, 100_000, p=WEIGHTS), np.zeros(100_000), np.zeros(100_000)
    for _ in range(4):
        context = draws.choice(2, 100_000, p=CONTEXTS)
        arm = (draws.random(100_000) > chances(ones, context)[:, 0]).astype(int)
        reward = draws.random(100_000) < MEANS[instance, context, arm]
        ones += (2 * arm - 1) * reward
        total += reward
    agrees(Mean.of(total), exact)


def test_histories_sum_to_one():
    listed = oracles.histories(MEANS, WEIGHTS, CONTEXTS, 3)
    assert listed.arms.shape == (8**3, 3)
    assert (listed.chance / 2**3).sum() == pytest.approx(1)  # arms by tossing a coin


def test_finite_contexts_say_what_is_feasible(monkeypatch):
    monkeypatch.setattr(finite_contexts, "WORK", 12 * 1000)
    with pytest.raises(InputError, match="more than 1000 beliefs: ([0-9]+) rounds are feasible") as told:
        finite_contexts.solve(MEANS, WEIGHTS, CONTEXTS, 60)
    feasible = int(str(told.value).split(": ")[1].split()[0])
    assert finite_contexts.solve(MEANS, WEIGHTS, CONTEXTS, feasible).regret > 0
    with pytest.raises(InputError, match=f": {feasible} rounds are feasible"):
        finite_contexts.solve(MEANS, WEIGHTS, CONTEXTS, feasible + 1)


def test_finite_contexts_say_what_they_need():
    with pytest.raises(InputError, match="too many histories: 6 can be listed"):
        oracles.histories(MEANS, WEIGHTS, CONTEXTS, 9)
    with pytest.raises(InputError, match=r"means must be numbers \[J, C, K\]"):
        finite_contexts.solve(MEANS[0], WEIGHTS, CONTEXTS, 3)
    with pytest.raises(InputError, match="weights must be 3 numbers"):
        finite_contexts.solve(MEANS, WEIGHTS[:2], CONTEXTS, 3)
    with pytest.raises(InputError, match=r"weights \[2\] or \[3, 2\]"):
        finite_contexts.solve(MEANS, WEIGHTS, np.ones((2, 2)), 3)


def wheel_on_a_grid(horizon, points, losses=wheel.USUAL):
    """Regrets of always exploring and of the optimum, by recursion over beliefs on a grid of squared radii.

    For U(lo, hi), the regret times hi − lo: exploring costs `cost` (hi − r) and leaves U(lo, r) + U(r, hi),
    the safe arm costs `gain` (r − lo) and leaves U(lo, hi). Their difference is linear within a cell.
    """
    r = np.sqrt(np.arange(points + 1) / points)
    low, high = r[:, None], r[None]
    proper = np.triu(np.ones((points + 1, points + 1)), 1)
    width, rate = (high - low) * proper, (high**2 - low**2) * proper
    cost = losses.cost * (high * rate - 2 / 3 * (high**3 - low**3) * proper)
    first, start, cell = np.arange(points), r[:-1, None], np.diff(r)[:, None]
    for optimal in (False, True):
        value = np.zeros_like(width)
        for _ in range(horizon):
            rows = np.cumsum(value, 1) - value / 2
            columns = np.cumsum(value[::-1], 0)[::-1] - value / 2
            after = (1 - rate) * value + cost + (rows + columns) * proper / points
            if optimal:
                at_start = losses.cost * width[:-1]
                shown = value[first, first + 1][:, None] + value[1:] - value[:-1]
                at_end = losses.cost * (high - r[1:, None]) - losses.gain * cell + shown
                skipped = at_start * cell / np.maximum(at_start - at_end, 1e-300)
                saved = at_start * skipped * (start + skipped / 3)
                after[:-1] -= np.where(proper[:-1] > 0, saved, 0)
            value = after * proper
        yield value[0, -1]


@pytest.mark.parametrize("horizon", [1, 2, 20])
def test_wheel_against_a_recursion_over_beliefs(horizon):
    """The grid's error is that of a trapezoidal rule, which two grids remove."""
    coarse, fine = (np.array(list(wheel_on_a_grid(horizon, points))) for points in (150, 300))
    exploring, optimum = fine + (fine - coarse) / 3
    found = wheel.regrets(horizon, nodes=40)
    assert exploring == pytest.approx(found.exploring, rel=1e-6)
    saved = exploring - optimum
    assert found.exploring - found.greedy == pytest.approx(saved, rel=2e-3, abs=2e-7)
    assert found.exploring - found.least >= saved * (1 - 1e-3)


def wheel_played(delta, horizon, instances, seed, losses=wheel.USUAL):
    """Regrets [2, m] on the same contexts: of always exploring where δ may be, and of the greedy policy."""
    draws = np.random.default_rng(seed)
    low, high, regret = np.zeros((2, instances)), np.ones((2, instances)), np.zeros((2, instances))
    share = np.array([[0.0], [losses.share]])
    for _ in range(horizon):
        r = np.sqrt(draws.random(instances))
        explores = r - low > share * (high - low)
        pays = r > delta
        regret += np.where(pays, np.where(explores, 0, losses.gain), np.where(explores, losses.cost, 0))
        low = np.where(explores & ~pays, r, low)
        high = np.where(explores & pays, np.minimum(high, r), high)
    return regret


@pytest.mark.parametrize("delta", [0.99, 0.5, None])
def test_wheel_against_its_simulation(delta):
    horizon, instances = 100, 100_000
    given = np.random.default_rng(1).random(instances) if delta is None else delta
    found = wheel.regrets(horizon) if delta is None else wheel.regrets_at(delta, horizon)
    exploring, greedy = wheel_played(given, horizon, instances, seed=2)
    agrees(Mean.of(exploring), found.exploring)
    agrees(Mean.of(greedy), found.greedy)
    agrees(Mean.of(exploring - greedy), found.exploring - found.greedy)


def test_a_belief_about_the_wheel_plays_like_that():
    delta, horizon, seed = 0.8, 60, 5
    radii = np.sqrt(np.random.default_rng(seed).random(horizon))
    belief, regret = oracles.Belief(), 0.0
    for r in radii:
        if belief.explores(r):
            belief.observe(r, paid=r > delta)
            regret += 0.2 * (r < delta)
        else:
            regret += 48.8 * (r > delta)
    assert regret == pytest.approx(wheel_played(delta, horizon, 1, seed)[1, 0])


def test_uniform_play_of_the_wheel():
    draws = np.random.default_rng(0)
    delta, r = draws.random(200_000), np.sqrt(draws.random(200_000))
    arm = draws.integers(5, size=200_000)  # 0 is safe, 1 the quadrant's
    inside = np.where(arm == 0, 0.0, 0.2)
    outside = np.where(arm == 1, 0.0, np.where(arm == 0, 48.8, 49.0))
    agrees(Mean.of(np.where(r < delta, inside, outside)), wheel.regrets(1).uniform)
    agrees(Mean.of(np.where(r < 0.99, inside, outside)), wheel.regrets_at(0.99, 1).uniform)


@pytest.mark.slow
def test_wheel_over_many_rounds():
    """The grid has to be finer than radii after so many rounds."""
    coarse, fine = (np.array(list(wheel_on_a_grid(200, points))) for points in (200, 400))
    found = wheel.regrets(200, nodes=24)
    saved = np.subtract(*(fine + (fine - coarse) / 3))
    assert found.exploring - found.greedy == pytest.approx(saved, rel=1e-3)


@pytest.mark.slow
def test_wheel_over_its_own_horizon():
    exploring, greedy = wheel_played(0.99, 2000, 100_000, seed=0)
    found = wheel.regrets_at(0.99, 2000)
    agrees(Mean.of(exploring), found.exploring)
    agrees(Mean.of(greedy), found.greedy)
    agrees(Mean.of(exploring - greedy), found.exploring - found.greedy)


BEST_OF = {2: 1 / math.sqrt(math.pi), 3: 1.5 / math.sqrt(math.pi)}  # mean of the largest of K normals


@pytest.mark.parametrize("arms", [2, 3])
def test_full_feedback_of_separate_gaussian_arms(arms):
    """X = I: posterior means are normal, and the best of K of them is so many deviations up."""
    prior_sd, noise_sd, n = 0.7, 1.3, 25
    t = np.arange(n)
    seen = prior_sd * np.sqrt(t * prior_sd**2 / (t * prior_sd**2 + noise_sd**2))
    exact = BEST_OF[arms] * (prior_sd - seen).sum()
    given = np.full(arms, 0.4), prior_sd**2 * np.eye(arms), np.eye(arms), noise_sd, n
    agrees(gaussian_feedback.linear(*given), exact)
    agrees(gaussian_feedback.linear(*given[:2], lambda draws, m: np.eye(arms), *given[3:]), exact)
    normal = oracles.alike_arms(lambda draws, m: prior_sd * draws.standard_normal((m, arms)), noise_sd, n)
    agrees(normal, exact)


def test_full_feedback_of_opposite_arms():
    """Arms ±x show x twice, each time with noise of its own: half the variance."""
    exact = signs.regrets(3, 20, noise_sd=math.sqrt(0.5)).optimal

    def features(draws, m):
        x = draws.standard_normal((m, 1, 3))
        return np.concatenate([x, -x], 1)

    found = gaussian_feedback.linear(np.zeros(3), np.eye(3), features, 1.0, 20, per_round=True)
    agrees(found, exact)
    assert exact < signs.regrets(3, 20).optimal


def test_full_feedback_of_two_dimensions_is_an_integral():
    """The best posterior mean is |z| times a function of its direction."""
    x = np.random.RandomState(1234).normal(size=(10, 2)) / np.sqrt(2)
    noise_sd, n = 0.3, 40
    angle = np.linspace(0, 2 * np.pi, 20_000, endpoint=False)
    around = np.stack([np.cos(angle), np.sin(angle)])

    def best(covariance):
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0))
        return math.sqrt(math.pi / 2) * (x @ root @ around).max(0).mean()

    prior = np.eye(2) / 2
    left = [np.linalg.inv(np.linalg.inv(prior) + t * x.T @ x / noise_sd**2) for t in range(n)]
    exact = sum(best(prior) - best(prior - covariance) for covariance in left)
    agrees(gaussian_feedback.linear(np.zeros(2), prior, x, noise_sd, n), exact)


def test_full_feedback_against_published_values():
    """Simulated by others with a thousand instances, whose standard errors count."""
    x = np.random.RandomState(1234).normal(size=(10, 2)) / np.sqrt(2)
    dpt = gaussian_feedback.linear(np.zeros(2), np.eye(2) / 2, x, 0.3, 200, 3000)
    uniform = oracles.alike_arms(lambda draws, m: draws.random((m, 5)), 0.3, 500, 3000)

    def features(draws, m):
        return draws.uniform(-1, 1, (m, 30, 5)) / math.sqrt(5)

    rvr = gaussian_feedback.linear(np.zeros(5), 10 * np.eye(5), features, 1.0, 250, 1000)
    for found, mean, se in ((dpt, 1.035, 0.013), (uniform, 1.495, 0.036), (rvr, 3.94, 0.05)):
        assert abs(found.mean - mean) < 5 * math.hypot(found.se, se)


def test_gaussian_feedback_says_what_it_needs():
    with pytest.raises(InputError, match="covariance must be symmetric and positive definite"):
        gaussian_feedback.linear(np.zeros(2), np.zeros((2, 2)), np.eye(2), 1.0, 3)
    with pytest.raises(InputError, match=r"features must be finite numbers \[K, 2\]"):
        gaussian_feedback.linear(np.zeros(2), np.eye(2), np.eye(3), 1.0, 3)


def test_wheel_says_what_it_needs():
    with pytest.raises(InputError, match="cost must be at most the gain"):
        wheel.regrets(10, wheel.Losses(1.0, 2.0))
    with pytest.raises(InputError, match="delta must be"):
        wheel.regrets_at(1.5, 10)


# Optima and bounds by name


def test_optima_of_the_named_problems():
    found = gb.exact.optimum("groups", progress=False)
    assert (
        abs(found.regret - 5 * gb.exact.optimum(gb.problems.named("uniform-2", horizon=100)).regret) < 1e-9
    )
    assert found.policy is None
    with pytest.raises(InputError, match="no policy"):
        found.playable()
    best = gb.exact.optimum("wheel", progress=False)
    assert 0 < best.error < 1e-3 < best.regret


def test_opposite_arms_are_played_optimally_by_the_greedy_policy():
    problem = gb.problems.named("signs", horizon=8)
    best = gb.exact.optimum(problem, progress=False)
    table = gb.evaluate(["lin-greedy", "lin-ts"], problem, instances=20_000, seed=3, progress=False)
    agrees(table["lin-greedy"].regret, best.regret)
    agrees(table["lin-ts"].regret, signs.regrets(3, 8).thompson)


def test_the_optimum_of_finite_contexts_bounds_policies_and_is_the_bound():
    means = [[[0.2, 0.8], [0.7, 0.3]], [[0.8, 0.2], [0.3, 0.6]]]
    problem = gb.Problem(gb.priors.FiniteContexts(means, contexts=[0.3, 0.7]), 6)
    best, limit = gb.exact.optimum(problem, progress=False), gb.exact.bound(problem)
    assert limit.regret == best.regret
    row = gb.evaluate("co-softelim", problem, instances=20_000, progress=False).rows[0]
    assert best.regret < row.regret.mean + 5 * row.regret.se
    agrees(Mean.of(row.rewards + row.regrets), best.reward + best.regret)


def test_full_feedback_bounds_linear_problems():
    limit = gb.exact.bound("dpt-linear", seconds=0.1)
    assert limit.method == "full feedback"
    assert abs(limit.regret - 1.035) < 5 * np.hypot(limit.se, 0.013)
    with pytest.raises(InputError, match="normal"):
        gb.exact.bound("lin-5", seconds=0.1)
    by_arm = gb.priors.LinearByArm(arms=2, dims=2)
    assert gb.exact.bound(gb.Problem(by_arm, 20), seconds=0.1).regret > 0


def test_stored_optima_tell_rewards_apart():
    """With another noise the same prior has another optimum."""
    from gradband.exact.optimum import known_regret

    found = []
    for sd in (1.0, 3.0):
        prior = gb.priors.Linear(2, 2, features="opposite", changing=True, rewards=gb.rewards.Gaussian(sd))
        problem = gb.Problem(prior, 5)
        found.append(known_regret(problem))
        assert known_regret(problem) == found[-1] == float(signs.regrets(2, 5, noise_sd=sd).optimal)
    assert found[0] < found[1]
