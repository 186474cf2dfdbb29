"""Policies that know the problem's prior: the fair ones to compare a learned policy with.

A learned policy has seen the prior. Thompson sampling and the Gittins index with a flat prior have not, so
`ts:prior` and `gittins:prior` are these policies with the prior that instances really come from.
"""

import dataclasses
from typing import Any

from gradband.core.errors import InputError
from gradband.policies import Gittins, HierarchicalTS, Policy, ThompsonSampling, binding, named
from gradband.policies.base import Believing
from gradband.policies.gittins import is_quick
from gradband.problems import Problem, priors

PRIOR = "prior"
"""the word after a policy's name and a colon that stands for the problem's prior"""


def with_prior(name: str, problem: Problem) -> Policy:
    """A policy that keeps beta beliefs, begun with the problem's prior, or an error that says why not.

    >>> from gradband.problems import Problem
    >>> with_prior("ts", Problem(priors.Beta(arms=4, a=1, b=30), horizon=200))
    ThompsonSampling(arms=0, horizon=0, a=1.0, b=30.0)
    """
    policy, prior = named(name), problem.prior
    if not isinstance(policy, Believing):
        raise InputError(f"{name} has no prior to set: {name}:{PRIOR} can't be played, {name} can")
    if not problem.unit:
        raise InputError(f"{name}:{PRIOR} needs rewards in [0, 1], which this problem does not have")
    if isinstance(prior, priors.Hierarchical):
        if isinstance(policy, ThompsonSampling | HierarchicalTS):
            return HierarchicalTS(**numbers_of(prior))
        raise InputError(
            f"{name}:{PRIOR} needs independent arms, and those of a hierarchical prior share a level: "
            f"ts:{PRIOR} can use it"
        )
    if not isinstance(prior, priors.Beta) or isinstance(policy, HierarchicalTS):
        raise InputError(
            f"{name}:{PRIOR} can't use a {prior.kind} prior: play {name} with a prior of its own"
        )
    if len({*prior.a.tolist()}) > 1 or len({*prior.b.tolist()}) > 1:
        raise InputError(f"{name}:{PRIOR} needs the same beta prior for all arms, and here they differ")
    return dataclasses.replace(policy, a=float(prior.a[0]), b=float(prior.b[0]))


def numbers_of(prior: priors.Hierarchical) -> dict[str, Any]:
    """The settings of hierarchical Thompson sampling that make this prior its own."""
    return {name: float(getattr(prior, name)) for name in ("a", "b", "strength", "spread", "slope")}


def fair(problem: Problem) -> dict[str, Policy]:
    """The policies to compare a learned one with, by name: `ts`, `gittins`, and both with the prior.

    Left out: what can't play the problem, what equals another, Gittins indices in batches, for which they
    are not made, and those whose table would take long to compute.

    >>> from gradband.problems import named
    >>> list(fair(named("uniform-2", horizon=50)))  # whose prior is the flat one
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
