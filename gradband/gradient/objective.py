"""What learning minimises: the mean regret, or the mean of its tail."""

import dataclasses

import numpy as np

from gradband.core.errors import InputError, number, shown
from gradband.core.statistics import losses_in_tail

MEAN, CVAR = "mean", "cvar"


@dataclasses.dataclass(frozen=True)
class Objective:
    """The mean regret, or with a `share` α the mean over the worst instances.

    The latter is the conditional value at risk, min over τ of τ + E(R − τ)⁺ / α (Rockafellar and Uryasev,
    2000), where R is the regret of a rollout.
    """

    share: float | None = None

    def __str__(self) -> str:
        return MEAN if self.share is None else f"{CVAR}:{self.share:g}"

    def losses(self, regrets: np.ndarray) -> np.ndarray:
        """Losses [m] of the instances, whose mean is minimised."""
        return regrets if self.share is None else losses_in_tail(regrets, self.share)

    def threshold(self, regrets: np.ndarray) -> float | None:
        """τ: the regret that a share α of these exceeds; None for the mean."""
        return None if self.share is None else float(np.quantile(regrets, 1 - self.share))


def parse_objective(text: str) -> Objective:
    """The objective that `mean` or `cvar:0.1` stands for.

    >>> parse_objective("cvar:0.1")
    Objective(share=0.1)
    """
    name, _, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    if name == MEAN and not rest:
        return Objective()
    if name == CVAR:
        try:
            share = float(rest)
        except ValueError:
            share = 0.0
        if 0 < share < 1:
            return Objective(number("the share of cvar", share))
    raise InputError(
        "the objective must be mean, or cvar with a share of instances between 0 and 1, as in cvar:0.1, "
        f"not {shown(text)}"
    )
