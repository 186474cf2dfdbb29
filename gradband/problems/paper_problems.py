"""The paper's problems and those with contexts, by name."""

from collections.abc import Callable
from functools import partial

from gradband.core.errors import InputError, number_of_arms, unknown
from gradband.problems import priors, rewards
from gradband.problems.contextual_problems import CONTEXTUAL
from gradband.problems.priors import Prior
from gradband.problems.problem import Problem


def two_point(arms: int = 2) -> Prior:
    """Means (.6, .4) or (.4, .6), equally likely (Sections 5.1 and 5.2)."""
    if arms != 2:
        raise InputError(f"the problem two-point has 2 arms, not {arms}")
    return priors.Finite([[0.6, 0.4], [0.4, 0.6]])


def distractors(arms: int = 3) -> Prior:
    """Means (.6, .9, .7, .7, …) or (.2, .7, .9, .7, …), equally likely (Section 5.4)."""
    if arms < 3:
        raise InputError(f"the problem distractors has at least 3 arms, not {arms}")
    rest = [0.7] * (arms - 3)
    return priors.Finite([[0.6, 0.9, 0.7, *rest], [0.2, 0.7, 0.9, *rest]])


NAMED: dict[str, tuple[Callable[..., Prior], int]] = {
    "two-point": (two_point, 200),
    "uniform-2": (partial(priors.Beta, arms=2), 200),  # Section 5.4
    "bernoulli-10": (partial(priors.Beta, arms=10), 1000),  # Section 5.3
    "beta-10": (partial(priors.Beta, arms=10, rewards=rewards.Beta(4.0)), 1000),  # Section 5.3
    "distractors": (distractors, 200),
    **CONTEXTUAL,
}
"""Problems by name: the function that makes the prior, and the horizon."""


def named(name: str, arms: int | None = None, horizon: int | None = None) -> Problem:
    """One of these problems, with another number of arms or another horizon if given.

    >>> named("bernoulli-10").horizon
    1000
    """
    if name not in NAMED:
        raise unknown("problem", name, NAMED)
    make, usual = NAMED[name]
    prior = make() if arms is None else make(arms=number_of_arms(arms))
    return Problem(prior, usual if horizon is None else horizon, name=name)
