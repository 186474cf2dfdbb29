"""Slow: learning over seeds that nothing was tuned on. `make slow` runs it and shows the numbers."""

import numpy as np
import pytest

import gradband as gb

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "seeds", "mean", "worst"),
    [("two-point", 10, 4.80, 5.2), ("bernoulli-10", 5, 23.5, 25.0), ("beta-10", 5, 10.5, 11.0)],
)
def test_softelim_reaches_the_papers_regret(name, seeds, mean, worst, capsys):
    problem = gb.problems.named(name)
    found, thetas = [], []
    for seed in range(seeds):
        learned = gb.learn(gb.policies.SoftElim(), problem, seed=seed)
        found.append(gb.evaluate([learned], problem, seed=seed).rows[0].regret.mean)
        thetas.append(float(learned.params["theta"]))
    with capsys.disabled():
        spread = np.std(found, ddof=1) / len(found) ** 0.5
        print(f"\n{name}: mean {np.mean(found):.3f} ± {spread:.3f}, worst {max(found):.3f}")
        print(f"  regrets {np.round(found, 3)}, θ {np.round(thetas, 3)}")
    assert np.mean(found) <= mean
    assert max(found) <= worst
