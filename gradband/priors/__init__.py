"""Priors: where problem instances come from, one file each.

A prior gives `sample(key) → instance`, `means(instance) → [K]` and
`reward(key, instance, arm, t) → reward`, all for one instance and all traceable by JAX; the key of a
reward belongs to the round and is the same for all arms. Subclass `Prior` for anything else.
"""

from gradband.priors.base import Instance, Prior, numbers
from gradband.priors.beta import Beta
from gradband.priors.drawn import Drawn
from gradband.priors.draws import check_draws
from gradband.priors.finite import Finite
from gradband.priors.gaussian import Gaussian
from gradband.priors.hierarchical import Hierarchical
from gradband.priors.mixture import Mixture
from gradband.priors.sampler import Sampler
from gradband.priors.scaled import Scaled
from gradband.priors.table import HeldOut, Table

__all__ = [
    "Beta",
    "Drawn",
    "Finite",
    "Gaussian",
    "HeldOut",
    "Hierarchical",
    "Instance",
    "Mixture",
    "Prior",
    "Sampler",
    "Scaled",
    "Table",
    "check_draws",
    "numbers",
]
