"""Prices of decisions: against a recursion of their own, and as returns in gradients."""

import functools

import numpy as np
import pytest
from conftest import assert_z

from gradband import problems
from gradband.core import prng
from gradband.core.errors import InputError
from gradband.exact import by_enumeration, independent_arms, optimum
from gradband.gradient import prices
from gradband.gradient.estimator import Estimator, estimate
from gradband.learning import recipes
from gradband.learning.plan import Session, Wishes, make_plan
from gradband.policies import LSTM, Counts, Exp3, ExploreThenCommit, KLSoftElim, SoftElim
from gradband.problems import Problem, priors, rewards
from gradband.solvers import layout, two_arms

pytestmark = pytest.mark.brief

PRICED = Estimator("none", returns="priced")
UNEVEN = priors.Beta(arms=2, a=[1.0, 2.0], b=[3.0, 1.5])


@functools.cache
def worth(left, *arms):
    """Values of pulling each of two arms (a, b) with so many rounds left, and then deciding optimally."""
    found = []
    for i, (a, b) in enumerate(arms):
        mean = a / (a + b)
        after = 0.0
        if left > 1:
            one, zero = ([*arms[:i], arm, *arms[i + 1 :]] for arm in ((a + 1, b), (a, b + 1)))
            after = mean * max(worth(left - 1, *one)) + (1 - mean) * max(worth(left - 1, *zero))
        found.append(mean + after)
    return tuple(found)


def test_advantages_are_those_of_a_plain_recursion():
    horizon, (a, b) = 7, (UNEVEN.a.tolist(), UNEVEN.b.tolist())
    table, starts = two_arms.advantages(a, b, horizon, workers=2), layout.starts(horizon)
    assert table.size == starts[-1]
    for t in range(horizon):
        for pulls in range(t + 1):
            for s0 in range(pulls + 1):
                for s1 in range(t - pulls + 1):
                    first = a[0] + s0, b[0] + pulls - s0
                    second = a[1] + s1, b[1] + t - pulls - s1
                    q0, q1 = worth(horizon - t, first, second)
                    found = table[starts[t] + layout.cell(t, pulls, s0, s1)]
                    np.testing.assert_allclose(found, q1 - q0, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "policy",
    [SoftElim(theta=0.3), KLSoftElim(), Exp3(theta=0.4), ExploreThenCommit(theta=1.4)],
    ids=lambda policy: policy.name,
)
def test_priced_returns_have_no_bias(policy):
    """Also of a latent, which is the whole score of explore-then-commit."""
    problem = Problem(UNEVEN, horizon=5)
    exact = by_enumeration(policy, problem).gradient
    found = estimate(policy, problem, instances=30_000, estimator=PRICED, seed=1)
    for mean, se, wanted in zip(found.mean, found.se, exact.values(), strict=True):
        assert_z(mean, se, float(wanted))


def test_priced_returns_of_a_network_have_no_bias():
    """Where instances have no gradients of their own, prices are compared with those of others."""
    problem, policy = Problem(UNEVEN, horizon=4), LSTM(hidden=2, head=3.0)
    params = policy.bind(2, 4).init(prng.root(5))
    exact = by_enumeration(policy, problem, params).gradient
    found = estimate(policy, problem, params, instances=60_000, estimator=PRICED, seed=1)
    wanted = np.concatenate([np.ravel(exact[name]) for name in sorted(exact)])
    moves = found.se > 0
    assert moves.sum() > 20
    assert_z(found.mean[moves], found.se[moves], wanted[moves])


def test_priced_returns_are_less_noisy():
    problem = problems.named("uniform-2", horizon=50)
    spread = {
        how.returns: estimate(SoftElim(theta=0.1), problem, instances=4000, estimator=how).spread[0]
        for how in (PRICED, Estimator("luck", returns="expected"))
    }
    assert spread["priced"] < 0.7 * spread["expected"]


# More arms, whose value is bounded

MANY = priors.Beta(arms=3, a=[1.0, 2.0, 1.0], b=[3.0, 1.5, 3.0])


def test_relaxed_prices_are_those_of_one_round_before_the_bound():
    """V − max Q is what one exact round takes from the bound on the reward, in any state."""
    horizon = 12
    judge, params = prices.find_prices(Problem(MANY, horizon))
    for pulls, ones in (((0, 0, 0), (0, 0, 0)), ((2, 1, 0), (1, 1, 0)), ((1, 3, 2), (0, 2, 2))):
        found = np.asarray(judge.of(params, Counts(*(np.array(x, np.float32) for x in (pulls, ones)))))
        left = horizon - sum(pulls)
        a, b = MANY.a + np.array(ones), MANY.b + np.array(pulls) - np.array(ones)
        before, after = (independent_arms.Arms(a, b).bound(left, 0, d, 5.0).reward for d in (0, 1))
        assert before - after == pytest.approx(float(found.min()), abs=0.01)
        turned = judge.of(params, Counts(*(np.array(x[::-1], np.float32) for x in (pulls, ones))))
        assert np.asarray(turned)[::-1] == pytest.approx(found, abs=1e-5)  # the outer arms are alike


@pytest.mark.parametrize("policy", [SoftElim(theta=0.3), KLSoftElim()], ids=lambda policy: policy.name)
def test_relaxed_prices_have_no_bias_either(policy):
    problem = Problem(MANY, horizon=5)
    exact = by_enumeration(policy, problem).gradient
    found = estimate(policy, problem, instances=30_000, estimator=PRICED, seed=1)
    for mean, se, wanted in zip(found.mean, found.se, exact.values(), strict=True):
        assert_z(mean, se, float(wanted))


def test_relaxed_prices_are_less_noisy_than_luck():
    problem = problems.named("bernoulli-10", arms=5, horizon=50)
    spread = {
        how.returns: estimate(SoftElim(theta=0.1), problem, instances=4000, estimator=how).spread[0]
        for how in (PRICED, Estimator("luck", returns="expected"))
    }
    assert spread["priced"] < 0.8 * spread["expected"]


def test_where_prices_are_known_an_lstm_has_a_recipe_for_them():
    known, unknown = problems.named("uniform-2"), problems.named("two-point")
    for policy, problem, name in (
        (LSTM(), known, "priced"),
        (LSTM(), unknown, "network"),
        (KLSoftElim(), known, "gradband"),
    ):
        bound = policy.bind(2, problem.horizon)
        assert recipes.usual_for(bound, problem).name == name
    wishes = Wishes(recipe="network", iterations=1, instances=2)
    assert make_plan(LSTM(hidden=2), known, wishes, Session()).about["training"]["recipe"] == "network"
    plan = make_plan(LSTM(hidden=2), known, Wishes(), Session())
    assert (plan.about["training"]["returns"], plan.stages[-1].instances) == ("priced", 256)


@pytest.mark.slow
def test_a_recurrent_network_comes_close_to_the_optimum():
    from gradband import evaluate, learn

    problem = problems.named("uniform-2", horizon=20)
    found = learn("lstm", problem, estimator=PRICED, iterations=120, instances=256, curriculum=(), seed=1)
    regret = evaluate([found], problem, instances=20_000, seed=2).rows[0].regret
    assert regret.mean < 1.1 * optimum(problem).regret + 4 * regret.se


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (problems.named("bernoulli-10"), "of more arms need a horizon of at most 200, not 1000"),
        (Problem(priors.Beta(1), 20), "two arms or more"),
        (problems.named("two-point"), "beta prior"),
        (Problem(priors.Beta(2, rewards=rewards.Beta()), 20), "bernoulli"),
        (Problem(priors.Beta(2), 20, afterwards=5), "afterwards"),
        (Problem(priors.Beta(2), 20, pulls_per_round=5), "one by one"),
        (Problem(priors.Beta(2), 400), "of two arms need a horizon of at most 300, not 400"),
    ],
)
def test_problems_without_prices_are_refused(problem, words):
    with pytest.raises(InputError, match=words):
        estimate(SoftElim(), problem, instances=10, estimator=PRICED)


def test_prices_leave_nothing_to_a_baseline():
    with pytest.raises(InputError, match="baseline none, not self"):
        Estimator("self", returns="priced")
