"""Certificates of single policies, beside exact gaps, and bounds for beta rewards."""

import numpy as np
import pytest
from scipy.special import betaln

import gradband as gb
from gradband.core.errors import InputError
from gradband.problems import priors, rewards
from gradband.solvers import duality, logit_arm

pytestmark = pytest.mark.brief


def test_a_certificate_bounds_the_exact_gap_of_a_policy_and_comes_close() -> None:
    """Two arms, n = 30, |z| < 5: a false alarm once in a million; the gap is at most .2 too wide."""
    problem = gb.Problem(priors.Beta(arms=2), 30)
    best = gb.exact.optimum(problem, progress=False)
    exact = gb.exact.by_counts("ts", problem).regret - best.regret
    found = gb.exact.certify("ts", problem, instances=1000)
    assert -5 * found.gap.se < found.gap.mean - exact < 0.2 + 5 * found.gap.se
    assert found.bound.mean < best.regret + 5 * found.bound.se
    again = gb.exact.certify(best.policy, problem, instances=1000)
    assert -5 * again.gap.se < again.gap.mean < 0.2 + 5 * again.gap.se
    assert again.gap.se < again.regret.se


@pytest.mark.parametrize(("n", "value"), [(10, 5.823719), (50, 30.34982)])
def test_prevailing_charges_are_exact_beside_a_known_arm(n: int, value: float) -> None:
    """A Beta(1, 1) arm and one that pays .5: the published optimum, from charges and from all paths.

    The n greatest of all prevailing charges, the least indices of an arm so far, sum up to what both arms
    are worth. A known arm's are .5, so this is Σ max(charge, .5) over the other arm's first n pulls.
    """
    charges = np.linspace(0, 1, 2001)
    worth, index = duality.table(1.0, 1.0, n, charges)
    assert worth[0, 1000] + n / 2 == pytest.approx(value, abs=2e-5)
    prevailing = {(0, 1.0): 1.0}  # ones so far and the prevailing charge, with their probability
    total = 0.0
    for pulls in range(n):
        row, after = pulls * (pulls + 1) // 2, dict[tuple[int, float], float]()
        for (ones, least), chance in prevailing.items():
            charge = max(min(least, float(index[row + ones])), 0.5)
            total += chance * charge
            p = (1 + ones) / (2 + pulls)
            for more, share in ((1, p), (0, 1 - p)):
                key = ones + more, charge
                after[key] = after.get(key, 0.0) + chance * share
        prevailing = after
    assert total == pytest.approx(value, abs=n * 2e-5)


def test_a_certificate_says_what_it_is_and_refuses_what_it_cannot_do() -> None:
    found = gb.exact.certify("uniform", gb.Problem(priors.Beta(arms=3, a=[1, 2, 3]), 10), instances=50)
    assert repr(found).startswith("Certificate(uniform: at most ")
    assert found.as_dict()["gap"] == vars(found.gap)
    assert found.records()[0]["gap_se"] == found.gap.se
    assert found.tables()[0].rows[1][0] == "regret of uniform"
    for wrong in (
        gb.Problem(priors.Beta(arms=2), 10, afterwards=5),
        gb.Problem(priors.Beta(arms=2), 10, pulls_per_round=5),
        gb.Problem(priors.Beta(arms=2, rewards=rewards.Beta()), 10),
        gb.Problem(priors.Finite([[0.5, 0.6]]), 10),
    ):
        with pytest.raises(InputError, match="a certificate"):
            gb.exact.certify("ts", wrong)


def test_losses_of_beta_rewards_err_downwards() -> None:
    charges = np.array([0.5, 0.8])
    one = logit_arm.losses((1.0, 1.0), 4.0, 50, 1, charges)
    assert one == pytest.approx(charges**2 / 2, rel=1e-4)  # a single pull, E(λ − μ)⁺
    deeper = [logit_arm.losses((1.0, 1.0), 4.0, 50, depth, charges, 0.25) for depth in (1, 2, 5, 10)]
    assert (np.diff(deeper, axis=0) >= -1e-9).all()
    finer = [logit_arm.losses((1.0, 1.0), 4.0, 50, 8, charges, step) for step in (0.5, 0.25, 0.125)]
    assert (np.diff(finer, axis=0) >= -1e-9).all()


def test_stopping_rules_on_simulated_beta_rewards_lose_no_less_than_the_bound() -> None:
    """Rules that stop once the posterior mean falls c / k below the charge; |z| < 5."""
    m, charge, depth, draws = 50, 0.6, 40, np.random.default_rng(0)
    mu, grid = draws.random(4000), (np.arange(200) + 0.5) / 200
    per_pull = betaln(4 * grid, 4 * (1 - grid))

    def log_gamma(shape: np.ndarray) -> np.ndarray:
        """Logarithms of gamma variables, which may be too small themselves."""
        return (
            np.log(draws.gamma(shape + 1, size=(depth, 4000)))
            - draws.exponential(size=(depth, 4000)) / shape
        )

    logits = np.cumsum(log_gamma(4 * mu) - log_gamma(4 * (1 - mu)), axis=0)
    alive, losses = np.ones((4, 4000), bool), m * np.maximum(mu - charge, 0) - np.zeros((4, 1))
    for k in range(depth):
        losses -= alive * (1 - 1 / m) ** k * (mu - charge)
        logs = 4 * np.multiply.outer(logits[k], grid) - (k + 1) * per_pull
        weight = np.exp(logs - logs.max(1, keepdims=True))
        mean = weight @ grid / weight.sum(1)
        alive &= mean > charge - np.array([[0.05], [0.1], [0.2], [0.4]]) / (k + 1)
    losses -= alive * (mean > charge) * m * (1 - 1 / m) ** depth * (mu - charge)
    best = losses.mean(1).min()
    se = losses.std(1).max() / 4000**0.5
    found = logit_arm.losses((1.0, 1.0), 4.0, m, depth, np.array([charge]))[0]
    assert 0.75 * best - 5 * se < found < best + 5 * se


def test_a_bound_for_beta_rewards_lies_below_bernoulli_rewards_with_the_same_means() -> None:
    """A reward that is rounded at random is a Bernoulli one: it says less."""
    fine = gb.exact.bound(gb.Problem(priors.Beta(arms=3, rewards=rewards.Beta(4.0)), 30), seconds=1)
    coarse = gb.exact.optimum(gb.Problem(priors.Beta(arms=3), 30), progress=False)
    assert 0.5 < fine.regret < coarse.regret
    assert gb.exact.bound(gb.Problem(priors.Beta(arms=1, rewards=rewards.Beta()), 9), seconds=1).regret == (
        pytest.approx(0, abs=1e-9)
    )
