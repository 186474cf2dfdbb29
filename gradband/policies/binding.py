"""Whether a policy can play a problem."""

import dataclasses

from gradband.core.errors import InputError
from gradband.policies.base import Policy, Seeing
from gradband.policies.by_group import ByGroup
from gradband.policies.linear_policy import LinearPolicy
from gradband.problems import Problem


def check(policy: Policy, problem: Problem) -> Policy:
    """The policy bound to the problem, or an error if it cannot play it."""
    if isinstance(policy, Seeing):
        policy = _with_contexts(policy, problem)
    bound = policy.bind(problem.arms, problem.horizon)
    if (bound.binary or bound.unit) and not problem.unit:
        raise InputError(
            f"{bound.name} needs rewards in [0, 1], which this problem does not have: use softelim, "
            "ts-gaussian, index-gaussian or another policy for rewards of any size"
        )
    if not bound.batches and not isinstance(bound, Seeing):
        problem.one_by_one(bound.name)
    return bound


def can_play(policy: Policy, problem: Problem) -> bool:
    """Whether a policy can play a problem."""
    try:
        check(policy, problem)
    except InputError:
        return False
    return True


def _with_contexts(policy: Seeing, problem: Problem) -> Seeing:
    """The policy for as many features as the problem's contexts have."""
    prior = problem.prior
    if not prior.contextual:
        raise InputError(f"{policy.name} needs contexts, which this problem does not have")
    if prior.shares_context and policy.takes_arms and not policy.takes_visitor:
        hint = ": use model=by-arm" if isinstance(policy, LinearPolicy) else ""
        raise InputError(
            f"{policy.name} needs features of every arm, but here they are the visitor's{hint}"
        )
    if isinstance(policy, ByGroup) and not prior.in_groups:
        raise InputError(
            f"{policy.name} needs contexts that say which group the visitor belongs to: a one among zeros"
        )
    exclusive = isinstance(policy, LinearPolicy) and policy.model == "by-arm" and policy.exclusive
    if exclusive and not prior.shares_context:
        raise InputError(
            f"exclusive of {policy.name} needs features of the visitor, but here each arm has its own: "
            "with a reward, only those of the pulled arm are known"
        )
    if not prior.shares_context and policy.takes_visitor and not policy.takes_arms:
        raise InputError(f"{policy.name} needs features of the visitor, but here every arm has its own")
    return dataclasses.replace(policy, dims=prior.dims)
