"""Priors: where problem instances come from, one file each.

A prior has `sample(key) → instance`, `means(instance) → [K]` and `reward(key, instance, arm, t) → reward`,
all for one instance and traceable by JAX; a reward's key is the round's, the same for all arms. Subclass
`Prior` for a prior of your own. If its means move, it has `means(instance, t)`.
"""

from gradband.problems.priors.base import Instance, Prior, numbers
from gradband.problems.priors.beta import Beta
from gradband.problems.priors.drawn import Drawn
from gradband.problems.priors.draws import check_draws
from gradband.problems.priors.drifting import Drifting
from gradband.problems.priors.finite import Finite
from gradband.problems.priors.finite_contexts import FiniteContexts
from gradband.problems.priors.gaussian import Gaussian
from gradband.problems.priors.hierarchical import Hierarchical
from gradband.problems.priors.hierarchical_gaussian import HierarchicalGaussian
from gradband.problems.priors.linear import Linear
from gradband.problems.priors.mixture import Mixture
from gradband.problems.priors.sampler import Sampler
from gradband.problems.priors.scaled import Scaled
from gradband.problems.priors.table import HeldOut, Table
from gradband.problems.priors.zero_inflated import ZeroInflated

KINDS: dict[str, type[Prior]] = {
    prior.kind: prior
    for prior in (
        Finite,
        FiniteContexts,
        Beta,
        Gaussian,
        Hierarchical,
        HierarchicalGaussian,
        Linear,
        Mixture,
        Drifting,
        Table,
        ZeroInflated,
    )
}
"""The priors of problem files by kind; their keys under [prior] are their fields."""

__all__ = [
    "KINDS",
    "Beta",
    "Drawn",
    "Drifting",
    "Finite",
    "FiniteContexts",
    "Gaussian",
    "HeldOut",
    "Hierarchical",
    "HierarchicalGaussian",
    "Instance",
    "Linear",
    "Mixture",
    "Prior",
    "Sampler",
    "Scaled",
    "Table",
    "ZeroInflated",
    "check_draws",
    "numbers",
]
