"""Bandit policies, one file each. A policy that is listed here is known by name and fully tested."""

from gradband.core.errors import InputError, shown, unknown
from gradband.policies.base import Counting, Counts, Index, OneParameter, Params, Policy, State
from gradband.policies.bayes_ucb import BayesUCB
from gradband.policies.boltzmann import Boltzmann
from gradband.policies.dqn import DQN
from gradband.policies.epsilon_greedy import EpsilonGreedy
from gradband.policies.exp3 import Exp3
from gradband.policies.explore_then_commit import ExploreThenCommit
from gradband.policies.gittins import Gittins
from gradband.policies.greedy import Greedy
from gradband.policies.hierarchical_ts import HierarchicalTS
from gradband.policies.index_network import IndexNetwork
from gradband.policies.kl_softelim import KLSoftElim
from gradband.policies.kl_ucb import KLUCB
from gradband.policies.lstm import LSTM
from gradband.policies.optimal import OptimalChoices, OptimalGraph, OptimalGrid, OptimalThresholds
from gradband.policies.softelim import SoftElim
from gradband.policies.split import Split
from gradband.policies.thompson import ThompsonSampling
from gradband.policies.ucb1 import UCB1
from gradband.policies.ucb_v import UCBV
from gradband.policies.uniform import Uniform

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        SoftElim,
        Exp3,
        EpsilonGreedy,
        Boltzmann,
        ExploreThenCommit,
        Uniform,
        Greedy,
        UCB1,
        UCBV,
        KLUCB,
        BayesUCB,
        ThompsonSampling,
        HierarchicalTS,
        Split,
        Gittins,
        DQN,
        LSTM,
        IndexNetwork,
        KLSoftElim,
    )
}
"""The policies by name."""

TABLES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (OptimalThresholds, OptimalChoices, OptimalGraph, OptimalGrid)
}
"""Policies that only the optimum of a problem makes; their files can be read."""


def named(name: str) -> Policy:
    """The policy of this name, with its usual settings.

    >>> named("softelim").theta
    1.0
    """
    if name not in POLICIES:
        raise unknown("policy", name, POLICIES)
    return POLICIES[name]()


def as_policy(given: object) -> Policy:
    """A policy, or the one of this name; an error for anything else."""
    if isinstance(given, str):
        return named(given)
    if isinstance(given, Policy):
        return given
    what = (
        f"the class {given.__name__}: write {given.__name__}()" if isinstance(given, type) else shown(given)
    )
    raise InputError(f"a policy must be an instance of Policy or a name, not {what}")


__all__ = [
    "DQN",
    "KLUCB",
    "LSTM",
    "POLICIES",
    "TABLES",
    "UCB1",
    "UCBV",
    "BayesUCB",
    "Boltzmann",
    "Counting",
    "Counts",
    "EpsilonGreedy",
    "Exp3",
    "ExploreThenCommit",
    "Gittins",
    "Greedy",
    "HierarchicalTS",
    "Index",
    "IndexNetwork",
    "KLSoftElim",
    "OneParameter",
    "Params",
    "Policy",
    "SoftElim",
    "Split",
    "State",
    "ThompsonSampling",
    "Uniform",
    "as_policy",
    "named",
]
