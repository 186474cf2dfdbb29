"""Policies that know the problem's prior, for fair comparisons with a learned policy.

A learned policy has seen the prior, but Thompson sampling and the Gittins index assume a flat one. So
`ts:prior` and `gittins:prior` are these policies with the prior of the problem.
"""

import dataclasses
from typing import Any

from gradband.core.errors import InputError
from gradband.policies import Gittins, HierarchicalTS, Policy, ThompsonSampling, binding, named
from gradband.policies.base import Believing
from gradband.policies.gittins import is_quick
from gradband.problems import Problem, priors

PRIOR = "prior"
"""follows a policy's name and a colon, and stands for the problem's prior"""


def with_prior(name: str, problem: Problem) -> Policy:
    """A policy with beta beliefs that start from the problem's prior, or an error that says why not.

    >>> from gradband.problems import Problem
    >>> with_prior("ts", Problem(priors.Beta(arms=4, a=1, b=30), horizon=200))
    ThompsonSampling(arms=0, horizon=0, a=1.0, b=30.0)
    """
    policy, prior = named(name), problem.prior
    if not isinstance(policy, Believing):
        raise InputError(f"{name} has no prior to set: use {name} instead of {name}:{PRIOR}")
    if not problem.unit:
        raise InputError(f"{name}:{PRIOR} needs rewards in [0, 1], which this problem does not have")
    if isinstance(prior, priors.Hierarchical):
        if isinstance(policy, ThompsonSampling | HierarchicalTS):
            return HierarchicalTS(**numbers_of(prior))
        why = "needs independent arms, and those of a hierarchical prior share a level"
        raise InputError(f"{name}:{PRIOR} {why}: ts:{PRIOR} can use it")
    if not isinstance(prior, priors.Beta) or isinstance(policy, HierarchicalTS):
        raise InputError(f"{name}:{PRIOR} can't use a {prior.kind} prior: use {name} with its own settings")
    if len({*prior.a.tolist()}) > 1 or len({*prior.b.tolist()}) > 1:
        raise InputError(f"{name}:{PRIOR} needs the same beta prior for all arms, and here they differ")
    return dataclasses.replace(policy, a=float(prior.a[0]), b=float(prior.b[0]))


def numbers_of(prior: priors.Hierarchical) -> dict[str, Any]:
    """The settings with which hierarchical Thompson sampling has this prior."""
    return {name: float(getattr(prior, name)) for name in ("a", "b", "strength", "spread", "slope")}


def fair(problem: Problem) -> dict[str, Policy]:
    """The policies to compare a learned one with, by name: `ts`, `gittins`, and both with the prior.

    Without policies that cannot play the problem or equal another, and without Gittins indices in batches,
    for which they are not made, or with tables that take long to compute.

    >>> from gradband.problems import named
    >>> list(fair(named("uniform-2", horizon=50)))  # whose prior is flat
    ['ts', 'gittins']
    """
    found: dict[str, Policy] = {}
    for name in (ThompsonSampling.name, Gittins.name):
        for text in (name, f"{name}:{PRIOR}"):
            try:
                policy = named(name) if text == name else with_prior(name, problem)
                bound = binding.check(policy, problem)
            except InputError:
                continue
            slow = isinstance(bound, Gittins) and (problem.pulls_per_round > 1 or not is_quick(bound))
            if not slow and policy not in found.values():
                found[text] = policy
    return found
