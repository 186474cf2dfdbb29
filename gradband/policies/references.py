"""Policies that know the problem's prior, for fair comparisons with a learned policy.

A learned policy has seen the prior, but Thompson sampling and the Gittins index assume a flat one. So
`ts:prior`, `ts-gaussian:prior` and `gittins:prior` are these policies with the prior of the problem. A
policy that `takes_prior` has it by its name alone.
"""

import contextlib
import dataclasses
from typing import Any

import numpy as np

from gradband.core.errors import InputError
from gradband.policies import (
    DiscountedTS,
    GaussianTS,
    Gittins,
    HierarchicalTS,
    Policy,
    Pretrained,
    SlidingWindowUCB,
    ThompsonSampling,
    binding,
    named,
)
from gradband.policies.base import Believing
from gradband.policies.gittins import is_quick
from gradband.problems import Problem, priors, rewards

PRIOR = "prior"
"""follows a policy's name and a colon, and stands for the problem's prior"""
DRAWN = 1000  # instances of a prior that is not a beta prior, to find one like it
WEAKEST, STRONGEST = 0.4, 1e5  # pseudo-counts of a beta prior like another


def with_prior(name: str, problem: Problem) -> Policy:
    """A policy with beliefs that start from the problem's prior, or an error that says why not.

    >>> from gradband.problems import Problem
    >>> with_prior("ts", Problem(priors.Beta(arms=4, a=1, b=30), horizon=200))
    ThompsonSampling(arms=0, horizon=0, a=1.0, b=30.0)
    """
    policy, prior = named(name), problem.prior
    if isinstance(prior, priors.Drifting):
        prior = prior.start  # what is known before the first pull
    if isinstance(policy, GaussianTS):
        return GaussianTS(**normal_numbers_of(prior))
    if not isinstance(policy, Believing):
        raise InputError(f"{name} has no prior to set: use {name} instead of {name}:{PRIOR}")
    if not problem.unit:
        raise InputError(f"{name}:{PRIOR} needs rewards in [0, 1], which this problem does not have")
    if isinstance(policy, Pretrained):
        return policy.suited(*beta_like(prior), problem.pulls_per_round)
    if isinstance(prior, priors.Hierarchical):
        if isinstance(policy, ThompsonSampling | HierarchicalTS) and not policy.forgets:
            return HierarchicalTS(**numbers_of(prior))
        why = "needs independent arms, and those of a hierarchical prior share a level"
        raise InputError(f"{name}:{PRIOR} {why}: ts:{PRIOR} can use it")
    if not isinstance(prior, priors.Beta) or isinstance(policy, HierarchicalTS):
        raise InputError(f"{name}:{PRIOR} can't use a {prior.kind} prior: use {name} with its own settings")
    if len({*prior.a.tolist()}) > 1 or len({*prior.b.tolist()}) > 1:
        raise InputError(f"{name}:{PRIOR} needs the same beta prior for all arms, and here they differ")
    return dataclasses.replace(policy, a=float(prior.a[0]), b=float(prior.b[0]))


def beta_like(prior: priors.Prior) -> tuple[float, float]:
    """a and b of a beta prior, or of the one whose mean and variance are those of the arms' means.

    >>> beta_like(priors.Beta(arms=4, a=1, b=30))
    (1.0, 30.0)
    """
    if isinstance(prior, priors.Beta) and len({*prior.a.tolist()}) == len({*prior.b.tolist()}) == 1:
        return float(prior.a[0]), float(prior.b[0])
    if not prior.knows_means:
        return 1.0, 1.0
    import jax

    from gradband.core import prng

    known: Any = prior
    keys = jax.random.split(prng.root(0), DRAWN)
    numbers = np.arange(DRAWN) % (prior.size or DRAWN)
    means = jax.vmap(lambda i, key: known.means_at(known.nth(i, key), 0))(numbers, keys)
    mean = float(np.clip(means.mean(), 1e-4, 1 - 1e-4))
    strength = mean * (1 - mean) / max(float(means.var()), 1e-12) - 1
    strength = float(np.clip(strength, WEAKEST, STRONGEST))
    return mean * strength, (1 - mean) * strength


def numbers_of(prior: priors.Hierarchical) -> dict[str, Any]:
    """The settings with which hierarchical Thompson sampling has this prior."""
    return {name: float(getattr(prior, name)) for name in ("a", "b", "strength", "spread", "slope")}


def normal_numbers_of(prior: priors.Prior) -> dict[str, Any]:
    """The settings with which Gaussian Thompson sampling has this prior, or its first two moments."""
    if isinstance(prior, priors.ZeroInflated):
        prior = prior.as_normal()
    if not isinstance(prior.rewards, rewards.Gaussian):
        why = "needs gaussian or zero-inflated rewards"
        raise InputError(f"{GaussianTS.name}:{PRIOR} {why}, not {prior.rewards.kind} rewards")
    sd = float(prior.rewards.sd)
    if isinstance(prior, priors.HierarchicalGaussian):
        return {name: float(getattr(prior, name)) for name in ("mean", "between", "within")} | {"sd": sd}
    if isinstance(prior, priors.Gaussian):
        return {"mean": float(prior.mean), "within": float(prior.sd), "sd": sd}
    raise InputError(f"{GaussianTS.name}:{PRIOR} can't use a {prior.kind} prior: give it settings")


def fair(problem: Problem) -> dict[str, Policy]:
    """The policies to compare a learned one with, by name: `ts`, `gittins`, and both with the prior.

    For rewards outside [0, 1] it is `ts-gaussian` with the prior. Without policies that cannot play the
    problem or equal another, and without Gittins indices in batches or with a delay, for which they are not
    made, or with tables that take long to compute. Where means move, the others are policies that forget,
    with their usual settings.

    >>> from gradband.problems import named
    >>> list(fair(named("uniform-2", horizon=50)))  # whose prior is flat
    ['ts', 'gittins']
    """
    found: dict[str, Policy] = {}
    if not problem.unit:
        text = f"{GaussianTS.name}:{PRIOR}"
        with contextlib.suppress(InputError):
            found[text] = with_prior(GaussianTS.name, problem)
        return found
    moving = ThompsonSampling.name, DiscountedTS.name, SlidingWindowUCB.name
    for name in moving if problem.prior.moves else (ThompsonSampling.name, Gittins.name):
        for text in (name, f"{name}:{PRIOR}"):
            try:
                policy = named(name) if text == name else with_prior(name, problem)
                bound = binding.check(policy, problem)
            except InputError:
                continue
            at_once = problem.pulls_per_round == 1 and problem.delay is None
            slow = isinstance(bound, Gittins) and not (at_once and is_quick(bound))
            if not slow and policy not in found.values():
                found[text] = policy
    return found
