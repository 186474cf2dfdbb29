"""Exact answers for small problems. Tests compare estimates with these."""

from gradband.core import jax_setup as jax_setup
from gradband.exact.bounds import softelim_regret_bound
from gradband.exact.certificate import Certificate, certify
from gradband.exact.counts import by_counts
from gradband.exact.enumeration import Exact, by_enumeration
from gradband.exact.explore_then_commit import explore_then_commit_reward
from gradband.exact.lower_bound import Bound, bound
from gradband.exact.optimum import Optimum, optimum
from gradband.exact.power import of_equal_split as power_of_equal_split
from gradband.exact.power import of_policy as power_of_policy
from gradband.solvers.gittins import discounted as gittins_index

__all__ = [
    "Bound",
    "Certificate",
    "Exact",
    "Optimum",
    "bound",
    "by_counts",
    "by_enumeration",
    "certify",
    "explore_then_commit_reward",
    "gittins_index",
    "optimum",
    "power_of_equal_split",
    "power_of_policy",
    "softelim_regret_bound",
]
