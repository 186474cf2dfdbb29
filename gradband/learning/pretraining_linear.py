"""Makes the pretrained policy for linear beliefs: learns it over problems of several sizes.

`python -m gradband.learning.pretraining_linear` writes the file that comes with the package.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gradband import __version__
from gradband.core import tensor_file
from gradband.gradient.estimator import Estimator
from gradband.learning.over_problems import Turns, learn_over
from gradband.policies.directed_softelim import DirectedSoftElim
from gradband.policies.pretrained_linear import FILE, HINTS, PretrainedLinear
from gradband.problems import Problem, priors, rewards

SIZES = (2, 10), (3, 60), (5, 30), (8, 6), (12, 12), (18, 40)
"""d and K of the problems to learn on"""
# Where arms are pulled almost surely, gradients have much variance: a power of 12 is as good as 40.
START = {"a": DirectedSoftElim.a, "power": 12.0, "patience": DirectedSoftElim.patience}
SEED = 3
# More steps from where these end, of size .08, made regrets 9 % worse.
TURNS = Turns(96, 1500, 0.03, Estimator("leave-one-out", returns="expected"))


def uniform_features(dims: int, arms: int) -> Problem:
    """As `rvr-linear`: x ~ U[−1/√d, 1/√d], θ ~ N(0, 10 I), noise N(0, 1)."""
    prior = priors.Linear(
        arms,
        dims,
        within=math.sqrt(10),
        features="uniform",
        scale=dims**-0.5,
        rewards=rewards.Gaussian(1.0),
    )
    return Problem(prior, 250, name=f"uniform features, d = {dims}, K = {arms}")


def normal_features(dims: int, arms: int) -> Problem:
    """As `dpt-linear`, with features that each instance draws: x and θ ~ N(0, I / d), noise N(0, .3²)."""
    scale = dims**-0.5
    prior = priors.Linear(arms, dims, within=scale, scale=scale, rewards=rewards.Gaussian(0.3))
    return Problem(prior, 200, name=f"normal features, d = {dims}, K = {arms}")


def make(
    path: Path,
    problems: list[Problem],
    how: Turns = TURNS,
    seed: int = SEED,
    progress: Callable[[int, str, float], None] | None = None,
) -> dict[str, np.ndarray]:
    """Writes the policy file, and returns the parameters.

    Args:
        path: The file to write.
        problems: The problems to learn on, in turns.
        how: The number and size of steps.
        seed: Determines all randomness.
        progress: Called after each step.
    """
    start = {name: np.asarray(value, np.float32) for name, value in START.items()}
    start["hints"] = np.zeros(HINTS, np.float32)
    found = learn_over(PretrainedLinear(), problems, how, params=start, seed=seed, progress=progress)
    params = {name: np.asarray(leaf, np.float32) for name, leaf in found.params.items()}
    policy = PretrainedLinear(dims=5).bind(arms=10, horizon=200)  # a file names a size; it plays all
    about = {
        "policy": policy.name,
        "settings": policy.settings(),
        "arms": policy.arms,
        "horizon": policy.horizon,
        "stopped": "",
        "gradband": __version__,
        "training": {
            "problems": [problem.name for problem in problems],
            "iterations": how.iterations,
            "instances": how.instances,
            "rate": how.rate,
            "seed": seed,
        },
    }
    tensor_file.save(path, "policy", {f"params.{name}": leaf for name, leaf in params.items()}, about)
    return params


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FILE, help="file to write (default: the package's own)")
    parser.add_argument(
        "--seed", type=int, default=SEED, help="determines all draws (default: %(default)s)"
    )
    given = parser.parse_args()
    problems = [kind(*size) for size in SIZES for kind in (uniform_features, normal_features)]
    make(
        given.out,
        problems,
        seed=given.seed,
        progress=lambda i, name, ratio: print(i, name, f"{ratio:.3f}", flush=True),
    )


if __name__ == "__main__":
    main()
