"""Whether a policy can play a problem."""

from gradband.core.errors import InputError
from gradband.policies.base import Policy
from gradband.problems import Problem


def check(policy: Policy, problem: Problem) -> Policy:
    """The policy bound to the problem, or an error if it cannot play it."""
    bound = policy.bind(problem.arms, problem.horizon)
    if (bound.binary or bound.unit) and not problem.unit:
        raise InputError(
            f"{bound.name} needs rewards in [0, 1], which this problem does not have: use softelim, "
            "ts-gaussian, index-gaussian or another policy for rewards of any size"
        )
    if not bound.batches:
        problem.one_by_one(bound.name)
    return bound
