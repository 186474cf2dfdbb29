"""Baselines: what is subtracted from a round's reward (Section 3).

The baseline b_t of Theorem 2 is a sum over rounds s ≥ t, so it is enough to say what it adds for
each round: that is what these functions do, given the rewards [R, B] of the R rollouts on each instance
and the best arm's reward [1, B].
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from gradband.core.errors import InputError, unknown, whole

USUAL_RUNS = {"none": 1, "optimal": 1, "self": 2, "leave-one-out": 4, "critic": 1, "luck": 1}


def none(rewards: Array, best: Array | None) -> Array:
    """Nothing: b = 0."""
    return jnp.zeros_like(rewards)


def optimal(rewards: Array, best: Array | None) -> Array:
    """The reward of the best arm i*(P)."""
    assert best is not None
    return jnp.broadcast_to(best, rewards.shape)


def leave_one_out(rewards: Array, best: Array | None) -> Array:
    """The mean reward of the other rollouts on the same instance and the same Y."""
    rollouts = rewards.shape[0]
    return (rewards.sum(0, keepdims=True) - rewards) / (rollouts - 1)


BASELINES: dict[str, Callable[[Array, Array | None], Array]] = {
    "none": none,
    "optimal": optimal,
    "self": leave_one_out,  # with two rollouts: the reward of the other one
    "leave-one-out": leave_one_out,
    "critic": optimal,  # and a prediction of what is to come (`gradband.gradient.critic`)
    "luck": optimal,  # and that prediction, and how much of it was luck
}


def rollouts_for(baseline: str, rollouts: int | None = None) -> int:
    """How many rollouts R on each instance a baseline takes, checked if given.

    >>> rollouts_for("self"), rollouts_for("leave-one-out", 8)
    (2, 8)
    """
    if baseline not in BASELINES:
        raise unknown("baseline", baseline, BASELINES)
    usual = USUAL_RUNS[baseline]
    if rollouts is None:
        return usual
    whole("rollouts", rollouts)
    if baseline == "self" and rollouts != 2:
        raise InputError(f"the baseline self takes 2 rollouts, not {rollouts}: use leave-one-out for more")
    if baseline == "leave-one-out" and rollouts < 2:
        raise InputError(f"the baseline leave-one-out takes at least 2 rollouts, not {rollouts}")
    return rollouts
