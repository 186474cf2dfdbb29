"""The policies that a learned one is compared with: those in use."""

from typing import Any

from gradband.policies import (
    UCB1,
    GaussianTS,
    HierarchicalTS,
    LinUCB,
    PlatformTS,
    Policy,
    Split,
    ThompsonSampling,
    Uniform,
    references,
)
from gradband.problems import Problem, priors, shrinkage

EQUAL_SPLIT = "uniform"
WITH_BELIEFS = "lin-greedy", "lin-ts", "lin-bayes-ucb"


def rivals(fitted: list[priors.Prior]) -> dict[str, Policy]:
    """The usual policies, by names that `gradband compare` accepts.

    Thompson sampling comes with each kind of fitted prior that it can use, with rounded numbers; of two
    hierarchical priors only the first, which fits better, is used. Where rewards are of any size, UCB1 has
    twice their standard deviation as its scale, and Thompson sampling has normal beliefs.
    """
    if fitted and not fitted[0].unit:
        return _rivals_in_any_unit(fitted)
    found: dict[str, Policy] = {
        EQUAL_SPLIT: Uniform(),
        "split:share=0.25": Split(share=0.25),
        "split": Split(),
        "ucb1": UCB1(),
        "ts": ThompsonSampling(),
        "platform-ts": PlatformTS(),
        "platform-ts:rule=statsig": PlatformTS(rule="statsig"),
    }
    level = next((prior for prior in fitted if isinstance(prior, priors.Hierarchical)), None)
    for prior in fitted:
        if prior is level and level is not None:
            own: Policy = HierarchicalTS(**_rounded(references.numbers_of(level)))
        elif isinstance(prior, priors.Beta) and shrinkage.shrinks(prior):
            own = ThompsonSampling(**_rounded({"a": prior.a[0], "b": prior.b[0]}))
        else:
            continue
        found[_name(own)] = own
    return found


def _rivals_in_any_unit(fitted: list[priors.Prior]) -> dict[str, Policy]:
    of_revenue = [prior for prior in fitted if isinstance(prior, priors.ZeroInflated)]
    used = of_revenue[:1] or fitted  # two zero-inflated priors have about the same moments
    normal = [_rounded(references.normal_numbers_of(GaussianTS.name, prior)) for prior in used]
    bound = UCB1(**_rounded({"scale": 2 * normal[0]["sd"]}))
    found: dict[str, Policy] = {
        EQUAL_SPLIT: Uniform(),
        "split:share=0.25": Split(share=0.25),
        "split": Split(),
        _name(bound): bound,
    }
    for numbers in normal:
        own = GaussianTS(**numbers)
        found[_name(own)] = own
    return found


def _name(policy: Policy) -> str:
    """The policy's name with the settings that are not the usual ones."""
    usual = type(policy)().settings()
    settings = (f"{key}={value:.10g}" for key, value in policy.settings().items() if value != usual[key])
    return f"{policy.name}:{'+'.join(settings)}"


def _rounded(numbers: dict[str, Any]) -> dict[str, Any]:
    return {name: float(f"{value:.4g}") for name, value in numbers.items()}


def with_contexts(problem: Problem) -> dict[str, Policy]:
    """The usual policies where arms or visitors have features, by names that `gradband compare` accepts.

    Greedy, Thompson sampling and Bayes-UCB have the problem's prior, and LinUCB its usual ridge regression.
    Some ignore features: splits, and Thompson sampling with a flat prior for rewards of 0 and 1.
    """
    found: dict[str, Policy] = {
        EQUAL_SPLIT: Uniform(),
        "split:share=0.25": Split(share=0.25),
        "split": Split(),
    }
    if problem.unit:
        found["ts"] = ThompsonSampling()
    bound = LinUCB(model="by-arm") if problem.prior.shares_context else LinUCB()
    found["lin-ucb:model=by-arm" if bound.model == "by-arm" else "lin-ucb"] = bound
    return found | {name: references.with_prior(name, problem) for name in WITH_BELIEFS}
