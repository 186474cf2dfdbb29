"""Policies that know the problem's prior, for fair comparisons with a learned policy.

A learned policy has seen the prior, but Thompson sampling and the Gittins index assume a flat one. So
`ts:prior`, `gittins:prior` and the like are these policies with the prior of the problem, and with beliefs
that suit its rewards: normal ones for gaussian rewards, and the exact posterior for beta rewards. A
policy that `takes_prior` has it by its name alone.
"""

import dataclasses
from typing import Any

import numpy as np

from gradband.core.errors import InputError
from gradband.policies import (
    BetaBrezziLai,
    ByGroup,
    DiscountedTS,
    GaussianGittins,
    GaussianLSTM,
    GaussianTS,
    Gittins,
    HierarchicalTS,
    Policy,
    Pretrained,
    PretrainedBeta,
    SlidingWindowUCB,
    ThompsonSampling,
    binding,
    named,
)
from gradband.policies.base import Believing
from gradband.policies.beta_evidence import BetaEvidence
from gradband.policies.gittins import IndexTable
from gradband.policies.lin_bayes_ucb import LinBayesUCB
from gradband.policies.lin_greedy import LinGreedy
from gradband.policies.lin_ts import LinTS
from gradband.policies.linear_policy import LinearPolicy
from gradband.policies.normal import Normal
from gradband.problems import Problem, priors, rewards

PRIOR = "prior"
"""follows a policy's name and a colon, and stands for the problem's prior"""
DRAWN = 1000  # instances of a prior that is not a beta prior, to find one like it
WEAKEST, STRONGEST = 0.4, 1e5  # pseudo-counts of a beta prior like another

LINEAR = priors.Linear, priors.LinearByArm
"""priors that policies with linear beliefs can have"""
NORMAL = {
    "ts": "ts-gaussian",
    "gittins": "gittins-gaussian",
    "bayes-ucb": "bayes-ucb-gaussian",
    "ogi": "ogi-gaussian",
    "v-ids": "v-ids-gaussian",
    "index": "index-gaussian",
    "lstm": "lstm-gaussian",
}
"""the policies that `NAME:prior` stands for if rewards are not in [0, 1]"""
EXACT = {"ts": "ts-beta"}
"""the same if rewards are beta variables"""


def with_prior(name: str, problem: Problem) -> Policy:
    """A policy with beliefs that start from the problem's prior, or an error that says why not.

    >>> from gradband.problems import Problem
    >>> with_prior("ts", Problem(priors.Beta(arms=4, a=1, b=30), horizon=200))
    ThompsonSampling(arms=0, horizon=0, a=1.0, b=30.0)
    """
    prior = problem.prior
    if isinstance(prior, priors.Drifting):
        prior = prior.start  # what is known before the first pull
    policy = named(_suitable(name, problem, prior))
    if isinstance(policy, ByGroup):
        return policy.with_core(with_prior(policy.core.name, _group(name, problem)))
    if isinstance(policy, LinearPolicy):
        return dataclasses.replace(policy, **linear_numbers_of(name, prior))
    if isinstance(policy, GaussianTS):
        return GaussianTS(**normal_numbers_of(policy.name, prior))
    if isinstance(policy, Normal | GaussianLSTM):
        return dataclasses.replace(policy, **_independent(policy.name, prior))
    if isinstance(policy, BetaEvidence):
        if not isinstance(prior.rewards, rewards.Beta):
            raise InputError(f"{name}:{PRIOR} needs beta rewards, not {prior.rewards.kind} rewards")
        return dataclasses.replace(policy, **_shapes(name, prior), v=float(prior.rewards.v))
    return _with_beta_prior(name, policy, problem, prior)


def _with_beta_prior(name: str, policy: Policy, problem: Problem, prior: priors.Prior) -> Policy:
    """A policy that believes in beta distributions, with the problem's prior."""
    if not isinstance(policy, Believing):
        raise InputError(f"{name} has no prior to set: use {name} instead of {name}:{PRIOR}")
    if not problem.unit:
        raise InputError(f"{name}:{PRIOR} needs rewards in [0, 1], which this problem does not have")
    if isinstance(policy, Pretrained):
        if _has_exact_posterior(problem, prior):
            return with_prior(PretrainedBeta.name, problem)
        return policy.suited(*beta_like(prior), problem.pulls_per_round)
    if isinstance(prior, priors.Hierarchical):
        if isinstance(policy, ThompsonSampling | HierarchicalTS) and not policy.forgets:
            return HierarchicalTS(**numbers_of(prior))
        why = "needs independent arms, and those of a hierarchical prior share a level"
        raise InputError(f"{name}:{PRIOR} {why}: ts:{PRIOR} can use it")
    if isinstance(policy, HierarchicalTS):
        raise InputError(f"{name}:{PRIOR} can't use a {prior.kind} prior: use {name} with its own settings")
    return dataclasses.replace(policy, **_shapes(name, prior))


def _suitable(name: str, problem: Problem, prior: priors.Prior) -> str:
    """The policy of the same kind whose beliefs suit the problem's rewards."""
    if not problem.unit:
        return NORMAL.get(name, name)
    alone = isinstance(prior, priors.Beta) and isinstance(prior.rewards, rewards.Beta)
    return EXACT.get(name, name) if alone and not problem.prior.moves else name


def _has_exact_posterior(problem: Problem, prior: priors.Prior) -> bool:
    """Whether rewards are beta variables of arms that are alike and stay the same."""
    if not (isinstance(prior, priors.Beta) and isinstance(prior.rewards, rewards.Beta)):
        return False
    alike = len({*prior.a.tolist()}) == len({*prior.b.tolist()}) == 1
    return alike and not problem.prior.moves


def _shapes(name: str, prior: priors.Prior) -> dict[str, Any]:
    """a and b of a beta prior that all arms share."""
    if not isinstance(prior, priors.Beta):
        raise InputError(f"{name}:{PRIOR} can't use a {prior.kind} prior: use {name} with its own settings")
    if len({*prior.a.tolist()}) > 1 or len({*prior.b.tolist()}) > 1:
        raise InputError(f"{name}:{PRIOR} needs the same beta prior for all arms, and here they differ")
    return {"a": float(prior.a[0]), "b": float(prior.b[0])}


def _independent(name: str, prior: priors.Prior) -> dict[str, Any]:
    """The settings with which a policy with independent normal beliefs has this prior."""
    numbers = normal_numbers_of(name, prior)
    if numbers.pop("between", 0):
        why = f"needs independent arms, and those of a {prior.kind} prior share a level"
        raise InputError(f"{name}:{PRIOR} {why}: {GaussianTS.name}:{PRIOR} can use it")
    return numbers


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


def normal_numbers_of(name: str, prior: priors.Prior) -> dict[str, Any]:
    """The settings with which a policy with normal beliefs has this prior, or its first two moments."""
    if isinstance(prior, priors.ZeroInflated):
        prior = prior.as_normal()
    if not isinstance(prior.rewards, rewards.Gaussian):
        why = "needs gaussian or zero-inflated rewards"
        raise InputError(f"{name}:{PRIOR} {why}, not {prior.rewards.kind} rewards")
    sd = float(prior.rewards.sd)
    if isinstance(prior, priors.HierarchicalGaussian):
        return {name: float(getattr(prior, name)) for name in ("mean", "between", "within")} | {"sd": sd}
    if isinstance(prior, priors.Gaussian):
        return {"mean": float(prior.mean), "within": float(prior.sd), "sd": sd}
    raise InputError(f"{name}:{PRIOR} can't use a {prior.kind} prior: use {name} with its own settings")


def linear_numbers_of(name: str, prior: priors.Prior) -> dict[str, Any]:
    """The settings with which a policy with linear beliefs has this prior, or its first two moments."""
    if not prior.contextual:
        raise InputError(f"{name}:{PRIOR} needs a problem with contexts, and a {prior.kind} prior has none")
    if isinstance(prior, priors.Wheel) and not prior.shares_context:
        return prior.belief()
    if not isinstance(prior, LINEAR):
        raise InputError(f"{name}:{PRIOR} can't use a {prior.kind} prior: use {name} with its own settings")
    found: dict[str, Any] = {"model": "by-arm"} if prior.shares_context else {}
    spread = prior.within
    if isinstance(prior, priors.LinearByArm) and np.any(prior.between):
        spread = np.hypot(prior.within, prior.between)  # of each arm, as if they were independent
    for which, number in (("mean", prior.mean), ("within", spread)):
        given = np.asarray(number, float).tolist()
        found[which] = tuple(given) if isinstance(given, list) else given
    law = prior.rewards
    return found | ({"sd": float(law.sd)} if isinstance(law, rewards.Gaussian) else {"link": "logistic"})


def has_theta(prior: priors.Prior) -> bool:
    """Whether policies with linear beliefs can have this prior."""
    return isinstance(prior, LINEAR) or (isinstance(prior, priors.Wheel) and not prior.shares_context)


def by_name(policy: Policy, problem: Problem) -> Policy:
    """The policy that a name alone stands for: with the problem's prior, if it `takes_prior` and can."""
    if not policy.takes_prior:
        return policy
    usable = has_theta(problem.prior) if isinstance(policy, LinearPolicy) else problem.unit
    if isinstance(policy, ByGroup):
        usable = isinstance(problem.prior, priors.Groups)
    return with_prior(policy.name, problem) if usable else policy


def in_group(problem: Problem) -> Problem | None:
    """The problem of one of the groups of visitors, if it is known."""
    prior = problem.prior
    if not isinstance(prior, priors.Groups):
        return None
    own = priors.Beta(prior.arms, float(prior.a), float(prior.b), prior.rewards)
    return Problem(own, max(1, problem.horizon // prior.groups))


def _group(name: str, problem: Problem) -> Problem:
    """The problem of one of the groups, or an error."""
    found = in_group(problem)
    if found is None:
        kind = problem.prior.kind
        raise InputError(f"{name}:{PRIOR} can't use a {kind} prior: use {name} with its own settings")
    return found


def gittins_for(problem: Problem) -> Policy | None:
    """Gittins indices for a problem, with its prior if they can use it; None if `fair` has none."""
    found = [policy for policy in fair(problem).values() if isinstance(policy, Gittins)]
    return found[-1] if found else None


def fair(problem: Problem) -> dict[str, Policy]:
    """The policies to compare a learned one with, by name: `ts`, `gittins`, and both with the prior.

    For rewards outside [0, 1] they are `ts-gaussian` and `gittins-gaussian` with the prior; for beta
    rewards there is an index on the exact posterior as well. Left out are policies that cannot play
    the problem or equal another, and Gittins indices in batches, with a delay, or with tables that take
    long to compute. If means move, the others are policies that forget, with their usual settings; with
    contexts, policies with linear beliefs.

    >>> from gradband.problems import named
    >>> list(fair(named("uniform-2", horizon=50)))  # whose prior is flat
    ['ts', 'gittins']
    """
    if problem.prior.contextual:
        return _fair_with_contexts(problem)
    found: dict[str, Policy] = {}
    for text in _candidates(problem):
        name, _, prior = text.partition(":")
        try:
            policy = with_prior(name, problem) if prior else named(name)
            bound = binding.check(policy, problem)
        except InputError:
            continue
        at_once = problem.pulls_per_round == 1 and problem.delay is None
        slow = isinstance(bound, IndexTable) and not (at_once and bound.horizon <= bound.quick)
        if not slow and policy not in found.values():
            found[text] = policy
    return found


def _fair_with_contexts(problem: Problem) -> dict[str, Policy]:
    """Policies with linear beliefs: with the problem's prior, or one θ per arm if the prior has no θ.

    For groups of visitors who share nothing there is also a policy in each of them.
    """
    kinds = LinTS, LinBayesUCB, LinGreedy
    if has_theta(problem.prior):
        return {f"{kind.name}:{PRIOR}": with_prior(kind.name, problem) for kind in kinds}
    found: dict[str, Policy] = {f"{kind.name}:model=by-arm": kind(model="by-arm") for kind in kinds}
    if isinstance(problem.prior, priors.Groups):
        found[ByGroup.name] = by_name(ByGroup(), problem)
    return found


def _candidates(problem: Problem) -> list[str]:
    """What `fair` tries, in its order."""
    if not problem.unit:
        tables = [] if problem.prior.moves else [GaussianGittins.name]
        return [f"{name}:{PRIOR}" for name in (GaussianTS.name, *tables)]
    moving = ThompsonSampling.name, DiscountedTS.name, SlidingWindowUCB.name
    names = moving if problem.prior.moves else (ThompsonSampling.name, Gittins.name)
    exact = [] if problem.prior.moves else [f"{BetaBrezziLai.name}:{PRIOR}"]
    return [text for name in names for text in (name, f"{name}:{PRIOR}")] + exact
