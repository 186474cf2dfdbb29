"""Slow: Table 1 of the paper, measured again. `make slow` runs it and shows the numbers."""

import numpy as np
import pytest

import gradband as gb

pytestmark = pytest.mark.slow

# Bayes regret and its standard error, Appendix E; None is a cross.
PAPER = {
    "two-point": {
        "gittins": (3.89, 0.07),
        "ts": (5.47, 0.05),
        "ucb1": (9.95, 0.03),
        "ucb-v": (15.79, 0.03),
    },
    "uniform-2": {
        "gittins": (2.26, 0.04),
        "ts": (3.50, 0.03),
        "ucb1": (8.52, 0.03),
        "ucb-v": (19.03, 0.10),
    },
    "bernoulli-10": {"gittins": None, "ts": (28.06, 0.45), "ucb1": (129.09, 0.6), "ucb-v": (289.82, 1.9)},
    "beta-10": {"gittins": None, "ts": (28.06, 0.45), "ucb1": (129.09, 0.6), "ucb-v": (276.07, 1.65)},
}
# The exact regret of UCB-V on two-point is 15.9220: the paper has another (docs/results.md).
UNMET = {("two-point", "ucb-v")}


@pytest.mark.parametrize("name", PAPER)
def test_table_1(name, capsys):
    problem = gb.problems.named(name)
    policies = {policy: gb.policies.named(policy) for policy in PAPER[name]}
    instances = 100_000 if problem.arms == 2 else 20_000
    table = gb.evaluate(policies, problem, instances=instances, seed=1)
    for policy, paper in PAPER[name].items():
        ours = table[policy].regret
        z = (ours.mean - paper[0]) / np.hypot(ours.se, paper[1]) if paper else None
        with capsys.disabled():
            print(
                f"\n{name}, {policy}: {ours}"
                + (f", paper {paper[0]} ± {paper[1]}, z = {z:.1f}" if paper else "")
            )
        if z is not None and (name, policy) not in UNMET:
            assert abs(z) <= 3
        if problem.arms == 2:
            exact = gb.exact.by_counts(policies[policy], problem).regret
            assert abs(ours.mean - exact) <= 4 * ours.se
