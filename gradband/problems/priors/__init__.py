"""Priors: where problem instances come from, one file each.

A prior has `sample(key) → instance`, `means(instance) → [K]` and `reward(key, instance, arm, t) → reward`,
all for one instance and traceable by JAX; a reward's key is the round's, the same for all arms. Subclass
`Prior` for a prior of your own. If its means move, it has `means(instance, t)`; if it has contexts, it has
`context(key, instance, t)`, and `means` and `reward` take a `Visit`.
"""

from gradband.problems.priors.base import Instance, Prior, numbers
from gradband.problems.priors.beta import Beta
from gradband.problems.priors.classification import Classification
from gradband.problems.priors.contextual import Contextual
from gradband.problems.priors.drawn import Drawn
from gradband.problems.priors.draws import check_draws
from gradband.problems.priors.drifting import Drifting
from gradband.problems.priors.finite import Finite
from gradband.problems.priors.finite_contexts import FiniteContexts
from gradband.problems.priors.gaussian import Gaussian
from gradband.problems.priors.groups import Groups
from gradband.problems.priors.hierarchical import Hierarchical
from gradband.problems.priors.hierarchical_gaussian import HierarchicalGaussian
from gradband.problems.priors.linear import Linear
from gradband.problems.priors.linear_by_arm import LinearByArm
from gradband.problems.priors.mixture import Mixture
from gradband.problems.priors.sampler import Sampler
from gradband.problems.priors.scaled import Scaled
from gradband.problems.priors.table import HeldOut, Table
from gradband.problems.priors.wheel import Wheel
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
        LinearByArm,
        Groups,
        Wheel,
        Classification,
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
    "Classification",
    "Contextual",
    "Drawn",
    "Drifting",
    "Finite",
    "FiniteContexts",
    "Gaussian",
    "Groups",
    "HeldOut",
    "Hierarchical",
    "HierarchicalGaussian",
    "Instance",
    "Linear",
    "LinearByArm",
    "Mixture",
    "Prior",
    "Sampler",
    "Scaled",
    "Table",
    "Wheel",
    "ZeroInflated",
    "check_draws",
    "numbers",
]
