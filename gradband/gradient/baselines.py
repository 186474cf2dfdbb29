"""Baselines: what is subtracted from returns (Section 3).

The baseline b_t of Theorem 2 is a sum over rounds s ≥ t, so a class only says what a round adds: that is
`of`. It may depend on the instance and on other rollouts, but not on what its own rollout did. A prediction
from the rollout's own past is `ahead`: it is subtracted from the returns from round t on, but only in the
term with ∇log p_t.
"""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from gradband.core.errors import InputError, shown, unknown, whole
from gradband.engine.observation import Round
from gradband.gradient import critic


class Baseline:
    """What is subtracted from the reward of a round. Subclasses define `of`, `ahead` or both.

    The rounds that they see have the rewards of which returns are made: with expected returns, `reward` and
    `best_reward` are means. Compiled code depends on a baseline, so it must be hashable and not change.
    """

    name: str
    rollouts: ClassVar[int] = 1
    """R per instance, by default"""
    least: ClassVar[int] = 1
    """the fewest rollouts that it works with"""
    most: ClassVar[int | None] = None
    """the most; None for no limit"""
    needs_means: ClassVar[bool] = False
    """Needs the best arm's reward, and so the means of all arms."""
    features: ClassVar[int] = 0
    """how many numbers its critic predicts returns from; 0 without a critic"""
    looks_ahead: ClassVar[bool] = False
    """Whether its critic asks what a reward of 0 or 1 would have changed (a round's `after`)."""

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = cls.__name__

    def of(self, round: Round) -> Array:
        """What is subtracted from the reward of this round, [R, B] or what broadcasts to it.

        It must not depend on what the same rollout did in this round or before.
        """
        return jnp.zeros_like(round.reward)

    def ahead(self, round: Round) -> Array | None:
        """A prediction [R, B] of the returns from this round on, less `of`; None for no prediction.

        It may depend on what was known before the pull (`t`, `state`, `log_probs`, and the instance's
        `means`), but not on the arm that is pulled nor on its reward. It replaces a critic: baselines
        with `features` do not use it.
        """
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Nothing(Baseline):
    """b = 0."""

    name = "none"


class Optimal(Baseline):
    """The reward of the best arm i*(P)."""

    name = "optimal"
    needs_means: ClassVar[bool] = True

    def of(self, round: Round) -> Array:
        assert round.best_reward is not None
        return jnp.broadcast_to(round.best_reward, round.reward.shape)


class LeaveOneOut(Baseline):
    """The mean reward of the other rollouts on the same instance and the same Y."""

    name = "leave-one-out"
    rollouts: ClassVar[int] = 4
    least: ClassVar[int] = 2

    def of(self, round: Round) -> Array:
        rewards = round.reward
        return (rewards.sum(0, keepdims=True) - rewards) / (rewards.shape[0] - 1)


class Self(LeaveOneOut):
    """The reward of the other one of two rollouts."""

    name = "self"
    rollouts: ClassVar[int] = 2
    most: ClassVar[int | None] = 2


class Predicted(Optimal):
    """The best arm's reward, and a prediction of later returns (`gradband.gradient.critic`)."""

    name = "critic"
    features: ClassVar[int] = critic.BELIEFS


class Luck(Predicted):
    """As `critic`; it also subtracts how much of the returns was luck."""

    name = "luck"
    features: ClassVar[int] = critic.BELIEFS + critic.SURPRISES
    looks_ahead: ClassVar[bool] = True


BASELINES: dict[str, Baseline] = {
    each.name: each for each in (Nothing(), Optimal(), Self(), LeaveOneOut(), Predicted(), Luck())
}


def as_baseline(given: str | Baseline) -> Baseline:
    """The baseline of this name, or one of your own."""
    if isinstance(given, str):
        if given not in BASELINES:
            raise unknown("baseline", given, BASELINES)
        return BASELINES[given]
    if not isinstance(given, Baseline):
        raise InputError(f"a baseline must be a Baseline or the name of one, not {shown(given)}")
    try:
        hash(given)
    except TypeError:
        raise InputError(f"{type(given).__name__} must be hashable: freeze its dataclass") from None
    return given


def rollouts_for(baseline: str | Baseline, rollouts: int | None = None) -> int:
    """The number of rollouts R per instance: the given one, checked, or the baseline's default.

    >>> rollouts_for("self"), rollouts_for("leave-one-out", 8)
    (2, 8)
    """
    rule = as_baseline(baseline)
    if rollouts is None:
        return rule.rollouts
    whole("rollouts", rollouts)
    least, most = rule.least, rule.most
    if rollouts < least or (most is not None and rollouts > most):
        wanted = f"at least {least}" if rollouts < least else f"at most {most}"
        wanted = f"{least}" if least == most else wanted
        more = ": use leave-one-out for more" if isinstance(rule, Self) else ""
        raise InputError(f"the baseline {rule.name} takes {wanted} rollouts, not {rollouts}{more}")
    return rollouts
