"""Priors: where problem instances come from, one file each.

A prior gives `sample(key) → instance`, `means(instance) → [K]` and
`reward(key, instance, arm, t) → reward`, all for one instance and all traceable by JAX; the key of a
reward belongs to the round and is the same for all arms. Subclass `Prior` for anything else.
"""

from gradband.problems.priors.base import Instance, Prior, numbers
from gradband.problems.priors.beta import Beta
from gradband.problems.priors.drawn import Drawn
from gradband.problems.priors.draws import check_draws
from gradband.problems.priors.finite import Finite
from gradband.problems.priors.gaussian import Gaussian
from gradband.problems.priors.hierarchical import Hierarchical
from gradband.problems.priors.mixture import Mixture
from gradband.problems.priors.sampler import Sampler
from gradband.problems.priors.scaled import Scaled
from gradband.problems.priors.table import HeldOut, Table

KINDS: dict[str, type[Prior]] = {
    prior.kind: prior for prior in (Finite, Beta, Gaussian, Hierarchical, Mixture, Table)
}
"""What a problem file may have under [prior], by kind; each is read and written by its fields."""

__all__ = [
    "KINDS",
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
