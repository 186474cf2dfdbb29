"""Problems with contexts from the literature, by name."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from gradband.core.errors import InputError
from gradband.problems import priors, rewards
from gradband.problems.priors import Prior


def signs(arms: int = 2) -> Prior:
    """Arms with features x and −x, new in each round: x ~ N(0, I), θ ~ N(0, I), d = 3."""
    if arms != 2:
        raise InputError(f"the problem signs has 2 arms, not {arms}")
    return priors.Linear(2, 3, features="opposite", changing=True, rewards=rewards.Gaussian(1.0))


def dpt_linear(arms: int = 10) -> Prior:
    """Arms with the same two features in all instances (Lee et al., 2023)."""
    table = np.random.RandomState(1234).normal(size=(arms, 2)) / math.sqrt(2)
    return priors.Linear(arms, 2, within=math.sqrt(0.5), table=table, rewards=rewards.Gaussian(0.3))


def rvr_linear(arms: int = 30) -> Prior:
    """Five features from U[−1/√5, 1/√5], θ ~ N(0, 10 I) (Russo and Van Roy, 2014)."""
    within, scale = math.sqrt(10), 1 / math.sqrt(5)
    noise = rewards.Gaussian(1.0)
    return priors.Linear(arms, 5, within=within, features="uniform", scale=scale, rewards=noise)


def lin_5(arms: int = 10) -> Prior:
    """Five features from U[−1, 1], θ ~ U[0, 1]⁵."""
    within, noise = math.sqrt(1 / 12), rewards.Gaussian(1.5)
    return priors.Linear(arms, 5, 0.5, within, theta="uniform", features="uniform", rewards=noise)


def wheel(arms: int = 5) -> Prior:
    """Five arms, one of which pays 50 beyond an unknown radius (Riquelme, Tucker and Snoek, 2018)."""
    if arms != 5:
        raise InputError(f"the problem wheel has 5 arms, not {arms}")
    return priors.Wheel()


CONTEXTUAL: dict[str, tuple[Callable[..., Prior], int]] = {
    "signs": (signs, 30),
    "groups": (partial(priors.Groups, arms=2, groups=5), 500),
    "dpt-linear": (dpt_linear, 200),
    "rvr-linear": (rvr_linear, 250),
    "lin-5": (lin_5, 200),
    "wheel": (wheel, 2000),
}
"""Problems with contexts by name: the function that makes the prior, and the horizon."""
