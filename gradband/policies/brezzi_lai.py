"""An index on the exact posterior of beta rewards, by Brezzi and Lai's approximation of Gittins' (2002)."""

import dataclasses
import math
from typing import ClassVar

from gradband.core.special import psi
from gradband.policies.base import Array, Index, Params, Positive, namespace
from gradband.policies.beta_evidence import BetaEvidence, Evidence


@dataclasses.dataclass(frozen=True, kw_only=True)
class BetaBrezziLai(Index, BetaEvidence):
    """The arm with the greatest m + s ψ(s² I R c), if Y ~ Beta(v μ, v (1 − μ)) and μ ~ Beta(a, b).

    m and s² are the mean and variance of the arm's exact posterior, I the Fisher information of a reward
    about μ at m, and R the remaining rounds, of which a `share` c stands for the horizon of a discount,
    1 − 1/(c R). ψ is Brezzi and Lai's approximation of the boundary of optimal stopping of Brownian motion.
    """

    name: ClassVar[str] = "brezzi-lai-beta"
    share: Positive = 0.5

    def index(self, params: Params, state: Evidence) -> Array:
        means, variances = self.moments(state)
        xp = namespace(means)
        left = self.share * xp.maximum(state.counts.rounds_left(self.horizon), 1)
        information = self.v**2 * (psi(self.v * means)[1] + psi(self.v * (1 - means))[1])
        return means + xp.sqrt(variances) * boundary(variances * information * left)


def boundary(s: Array) -> Array:
    """Brezzi and Lai's ψ(s) for s > 0.

    >>> import numpy as np
    >>> print(boundary(np.array([0.1, 0.5, 2.0, 10.0, 100.0])).round(3))
    [0.224 0.334 0.446 0.587 1.941]
    """
    xp = namespace(s)
    root = xp.sqrt(s)
    far = xp.log(xp.maximum(s, 15))
    found = xp.sqrt(2 * far - xp.log(far) - math.log(16 * math.pi))
    for most, value in ((15, 0.77 - 0.58 / root), (5, 0.63 - 0.26 / root), (1, 0.49 - 0.11 / root)):
        found = xp.where(s <= most, value, found)
    return xp.where(s <= 0.2, root / math.sqrt(2), found)
