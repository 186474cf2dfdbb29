"""The design of future tests, given or as in past experiments."""

import dataclasses
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from gradband.core.errors import InputError, number_of_arms, whole
from gradband.problems.delay import Delay, read_delay
from gradband.problems.guardrails import Guardrails
from gradband.problems.past_experiments import Experiments

if TYPE_CHECKING:
    pass


class DesignSettings(TypedDict, total=False):
    """What `fit` takes about the design of future tests: the fields of `Design`."""

    arms: int | None
    horizon: int | None
    pulls_per_round: int
    afterwards: int
    guardrails: Guardrails | dict[str, Any] | None
    delay: Delay | dict[str, Any] | None


@dataclasses.dataclass(frozen=True)
class Design:
    """The design of future tests; None means as in past experiments."""

    arms: int | None = None
    horizon: int | None = None
    pulls_per_round: int = 1
    afterwards: int = 0
    guardrails: Any = None
    delay: Any = None

    def __post_init__(self) -> None:
        for name, read in (("guardrails", Guardrails.read), ("delay", read_delay)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, read(getattr(self, name)))
        whole("pulls_per_round", self.pulls_per_round)
        whole("afterwards", self.afterwards, least=0)
        if self.horizon is not None:
            whole("horizon", self.horizon)

    def like(self, found: Experiments) -> "Design":
        """This design with the usual number of arms and pulls of experiments, in whole batches."""
        arms = usual_arms(found, self.arms)
        horizon = self.horizon or usual_horizon(found, arms, self.pulls_per_round)
        if horizon % self.pulls_per_round:
            batches = f"batches of {self.pulls_per_round}"
            raise InputError(f"{horizon} pulls cannot be divided into {batches}: set horizon (--horizon)")
        return dataclasses.replace(self, arms=arms, horizon=horizon)

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"guardrails": None, "delay": None} | self.special()

    def special(self) -> dict[str, Any]:
        """What most tests do not have, as in a problem file."""
        found = {name: getattr(self, name) for name in ("guardrails", "delay")}
        return {name: value.describe() for name, value in found.items() if value is not None}


def usual_arms(found: Experiments, given: int | None) -> int:
    """The number of arms of a test: as given, or the most common among experiments."""
    if found.labels:
        if given not in (None, len(found.labels)):
            raise InputError(
                f"with arms_matter (--arms-matter) there are {len(found.labels)} arms, not {given}"
            )
        return len(found.labels)
    return int(np.bincount(found.sizes).argmax()) if given is None else number_of_arms(given, 2)


def usual_horizon(found: Experiments, arms: int, pulls_per_round: int) -> int:
    """Pulls of a test: as many per arm as in the median experiment, in whole batches."""
    totals = np.add.reduceat(found.pulls, found.starts[:-1])
    pulls = max(2 * arms, round(float(np.median(totals / found.sizes)) * arms))
    return max(1, round(pulls / pulls_per_round)) * pulls_per_round
