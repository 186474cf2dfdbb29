"""What past tests say: how many there are, how large, and how far their arms differ."""

import dataclasses
from pathlib import Path
from typing import Any, Self

import numpy as np

from gradband.core import prng
from gradband.core.errors import InputError
from gradband.evaluation import compare_with_defaults as gains
from gradband.evaluation.played_out import means_of
from gradband.problems import Problem, context_draws, context_fit, priors, shrinkage
from gradband.problems.context_rows import ContextRows
from gradband.problems.likelihood import Fit
from gradband.problems.past_experiments import Experiments
from gradband.problems.priors.past_contexts import PastContexts


@dataclasses.dataclass(frozen=True)
class Past:
    """Past experiments, and the priors that were fitted to them, the chosen one first."""

    fitted: Experiments
    held_out: Experiments
    candidates: tuple[priors.Prior, ...]
    unit: str = ""
    """of rewards, if they are not 0 and 1"""

    @classmethod
    def load(cls, problem: Problem, fit: dict[str, Any], folder: Path) -> Self:
        """From the table that `gradband fit` adds to a problem file, which is in `folder`."""
        known = gains.stored(fit, folder, problem.prior.rewards)
        fitted = gains.load_part(fit, folder, "fitted")
        return cls(fitted, known.held_out, (problem.prior, *known.others), known.unit)

    @property
    def sizes(self) -> np.ndarray:
        """The number of arms of each experiment [E]."""
        return np.concatenate([arms_of(part) for part in self._parts])

    @property
    def rates(self) -> np.ndarray:
        """Observed mean reward of each experiment [E]."""
        return np.concatenate(
            [total(part.successes, part) / total(part.pulls, part) for part in self._parts]
        )

    @property
    def pulls(self) -> np.ndarray:
        """Pulls of each experiment [E]."""
        return np.concatenate([total(part.pulls, part) for part in self._parts])

    @property
    def _parts(self) -> tuple[Experiments, Experiments]:
        return self.fitted, self.held_out

    def best_prior(self) -> priors.Prior:
        """The prior under which held-out experiments are most likely, of those with a posterior."""
        if found := self.likelihoods():
            return found[0].prior
        raise InputError("none of the fitted priors has a posterior to draw experiments from")

    def likelihoods(self) -> list[Fit]:
        """The priors with the log-likelihoods of held-out experiments, the best first."""
        if isinstance(self.held_out, ContextRows):
            named = [(context_fit.name_of(prior), prior) for prior in self.candidates]
            found = [
                Fit(name, prior, context_draws.log_likelihood(prior, self.held_out))
                for name, prior in named
            ]
            return sorted(found, key=lambda entry: -entry.score.mean)
        found = [
            Fit(prior.label, prior, shrinkage.log_likelihood(prior, self.held_out))
            for prior in self.candidates
            if shrinkage.shrinks(prior)
        ]
        return sorted(found, key=lambda entry: -entry.score.mean)


def arms_of(found: Experiments) -> np.ndarray:
    """The number of arms of each experiment [E]."""
    return found.arms if isinstance(found, ContextRows) else found.sizes


def total(values: np.ndarray, experiments: Experiments) -> np.ndarray:
    """Sums over the arms of each experiment [E]."""
    return np.add.reduceat(values, experiments.starts[:-1])


@dataclasses.dataclass(frozen=True)
class Spread:
    """How means of arms vary under a prior, without the noise in observed rates."""

    mean: float
    between: float
    """standard deviation between tests"""
    within: float
    """standard deviation within a test"""
    lead: float
    """by how much a test's best arm exceeds its mean arm, on average"""

    @classmethod
    def of(cls, prior: priors.Prior | PastContexts, seed: int = 0, count: int = 10_000) -> Self:
        """Of a prior, or of tests that were drawn from it; visitors of a test are taken together."""
        drawn = prior if isinstance(prior, PastContexts) else priors.Drawn.of(prior, count, prng.root(seed))
        means = means_of(drawn)
        level, inside = means.mean(1), float(means.var(1, ddof=1).mean())
        between = max(0.0, float(level.var()) - inside / means.shape[1])
        lead = float((means.max(1) - level).mean())
        return cls(float(level.mean()), between**0.5, inside**0.5, lead)
