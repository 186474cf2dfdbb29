"""A problem from past experiments: a fitted prior, the usual numbers of arms and pulls, and warnings."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradband.core import files
from gradband.core.errors import InputError, number_of_arms, unknown, whole
from gradband.problems import fitting
from gradband.problems import past_experiments as past
from gradband.problems.fitting import Fit
from gradband.problems.past_experiments import Experiments
from gradband.problems.thinning import FEWEST

PRIORS = ("pooled", "hierarchical", "varying", "mixture")
EXPERIMENTS_FILE = "experiments.safetensors"


@dataclasses.dataclass(frozen=True)
class Design:
    """The design of future tests; None means as in past experiments."""

    arms: int | None = None
    horizon: int | None = None
    pulls_per_round: int = 1
    afterwards: int = 0

    def __post_init__(self) -> None:
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
            raise InputError(f"{horizon} pulls cannot be divided into {batches}: set --horizon")
        return dataclasses.replace(self, arms=arms, horizon=horizon)

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {}


@dataclasses.dataclass(frozen=True)
class FittedProblem:
    """Priors fitted to past experiments, and the design of future tests."""

    experiments: Experiments
    held_out: Experiments
    test: Design
    fits: tuple[Fit, ...]
    """the best first"""
    chosen: Fit
    notes: tuple[str, ...]
    """remarks on the data, and warnings if there is little of it"""

    def as_dict(self) -> dict[str, Any]:
        """The output of `gradband fit --json`."""
        return {
            "experiments": len(self.experiments) + len(self.held_out),
            "held_out": len(self.held_out),
            **self.test.as_dict(),
            "prior": self.chosen.prior.describe() | {"name": self.chosen.name},
            "priors": [entry.as_dict(self.fits[0]) for entry in self.fits],
            "notes": list(self.notes),
        }

    def save(self, folder: Path, name: str) -> dict[str, str]:
        """Writes the problem, and the experiments on which `gradband learn` measures gains."""
        paths = {"problem": folder / "fitted.toml", "experiments": folder / EXPERIMENTS_FILE}
        past.save(paths["experiments"], {"fitted": self.experiments, "held-out": self.held_out})
        test, others = (
            self.test,
            [entry.prior.describe() for entry in self.fits if entry is not self.chosen],
        )
        written = {
            "name": name,
            "horizon": test.horizon,
            **({"pulls_per_round": test.pulls_per_round} if test.pulls_per_round > 1 else {}),
            **({"afterwards": test.afterwards} if test.afterwards else {}),
            "prior": self.chosen.prior.describe(),
            "fit": {"chosen": self.chosen.name, "file": EXPERIMENTS_FILE, "others": others},
        }
        files.write_text(paths["problem"], files.toml(written) + "\n")
        return {what: str(path) for what, path in paths.items()}


def fit_problem(
    fitted: Experiments,
    held_out: Experiments,
    test: Design,
    prior: str = "",
    notes: tuple[str, ...] = (),
    progress: Callable[[float, str], None] = lambda share, name: None,
) -> FittedProblem:
    """Fits all priors, and chooses the one of this name, or the best on experiments held out."""
    assert test.arms is not None
    found = fitting.fit(fitted, held_out, test.arms, progress=progress)
    chosen = next((entry for entry in found if entry.name == (prior or found[0].name)), None)
    count = len(fitted) + len(held_out)
    if chosen is None:
        raise InputError(f"{count} experiments are too few to fit a {prior} prior")
    notes = (*notes, *warnings(count, len(held_out)))
    return FittedProblem(fitted, held_out, test, tuple(found), chosen, notes)


def check_prior(name: str, arms_matter: bool) -> None:
    """Raises an error for names of priors that are not fitted."""
    if name and arms_matter:
        raise InputError("--prior does not apply where arms matter: each has a prior of its own")
    if name and name not in PRIORS:
        raise unknown("prior", name, PRIORS)


def usual_arms(found: Experiments, given: int | None) -> int:
    """The number of arms of a test: as given, or the most common among experiments."""
    if found.labels:
        if given not in (None, len(found.labels)):
            raise InputError(f"with --arms-matter there are {len(found.labels)} arms, not {given}")
        return len(found.labels)
    return int(np.bincount(found.sizes).argmax()) if given is None else number_of_arms(given, 2)


def usual_horizon(found: Experiments, arms: int, pulls_per_round: int) -> int:
    """Pulls of a test: as many per arm as in the median experiment, in whole batches."""
    totals = np.add.reduceat(found.pulls, found.starts[:-1])
    pulls = max(2 * arms, round(float(np.median(totals / found.sizes)) * arms))
    return max(1, round(pulls / pulls_per_round)) * pulls_per_round


def warnings(experiments: int, held_out: int) -> list[str]:
    """Warnings if there are few experiments."""
    found = []
    if experiments < fitting.FEW:
        found.append(
            f"Warning: {experiments} experiments say little about the next one. Only simple priors were "
            f"fitted, and only roughly; at least {fitting.FEW} experiments are needed for more."
        )
    if held_out < FEWEST:
        found.append(
            f"Warning: with {held_out} held out, it is unclear which prior is better and how much a policy "
            f"gains: that takes at least {FEWEST}."
        )
    return found
