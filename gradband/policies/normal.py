"""What policies with independent normal beliefs share."""

import dataclasses
from typing import ClassVar

from gradband.policies.base import Array, Counting, Counts, Number, Params, Positive, namespace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Normal(Counting):
    """A policy that believes μ_i ~ N(mean, within²) before the first pull, and Y ~ N(μ_i, sd²).

    `sd`, the standard deviation of a reward around its arm's mean, is taken as known.
    """

    any_sums: ClassVar[bool] = True
    mean: Number = 0.0
    within: Positive = 1.0
    sd: Positive = 1.0

    def posterior(self, counts: Counts) -> tuple[Array, Array]:
        """Means and standard deviations [K] of the arms' normal posteriors."""
        return self.posterior_from(self.mean, counts)

    def posterior_from(self, mean: Array | float, counts: Counts) -> tuple[Array, Array]:
        """The same with another prior mean."""
        total = counts.pulls * self.within**2 + self.sd**2
        moved = self.within**2 * (counts.sums - counts.pulls * mean) / total
        return mean + moved, self.within * self.sd / namespace(total).sqrt(total)

    def estimates(self, params: Params, state: Counts) -> Array:
        return self.posterior(state)[0]
