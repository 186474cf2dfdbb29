"""Plausible means of past experiments: draws from posteriors, which shrink observed rates.

Observed rates vary more than means, because each contains noise, which the posterior under a fitted prior
removes. All fitted priors are mixtures of beta distributions that an experiment's arms share: a single one
(pooled), a few (mixture), or one for each level and spread on a grid (hierarchical).
"""

import dataclasses

import numpy as np
from scipy.special import betaln, logsumexp

from gradband.core.errors import InputError
from gradband.problems import priors
from gradband.problems.past_experiments import Experiments
from gradband.solvers.levels import components_of

NODES = 9  # of how far arms vary around their level


@dataclasses.dataclass(frozen=True)
class Components:
    """Beta distributions with shapes a and b [G]; all arms of an experiment come from one of them."""

    log_weights: np.ndarray
    a: np.ndarray
    b: np.ndarray

    @classmethod
    def of(cls, prior: priors.Prior) -> "Components":
        """The components of a fitted prior."""
        if isinstance(prior, priors.Hierarchical):
            numbers = (float(getattr(prior, name)) for name in ("a", "b", "strength", "spread", "slope"))
            log_weights, *shapes = components_of(*numbers, count=NODES)
            return cls(log_weights - logsumexp(log_weights), *shapes)
        if isinstance(prior, priors.Mixture):
            return cls(np.log(np.maximum(prior.weights, 1e-300)), prior.a, prior.b)
        if isinstance(prior, priors.Beta) and shrinks(prior):
            return cls(np.zeros(1), prior.a[:1], prior.b[:1])
        raise InputError(f"a {prior.kind} prior has no posterior to draw past experiments from")

    def log_joint(self, experiments: Experiments) -> np.ndarray:
        """log P(component, an experiment's counts) [E, G], up to a constant that all priors share."""
        wins, pulls = experiments.successes[:, None], experiments.pulls[:, None]
        losses = pulls - wins
        each = betaln(self.a + wins, self.b + losses) - betaln(self.a, self.b)
        return self.log_weights + np.add.reduceat(each, experiments.starts[:-1], axis=0)

    def edges(self, experiments: Experiments) -> np.ndarray:
        """Cumulative posterior weights [E, G] of the components."""
        joint = self.log_joint(experiments)
        found = np.cumsum(np.exp(joint - joint.max(1, keepdims=True)), axis=1)
        return found / found[:, -1:]

    def means(self, edges: np.ndarray, arms: Experiments, rng: np.random.Generator) -> np.ndarray:
        """Means [count, K] of `arms`, K per row; each row's component is drawn by `edges` [count, G]."""
        chosen = (rng.random((len(edges), 1)) >= edges).sum(1, keepdims=True)
        wins, losses = (x.reshape(len(edges), -1) for x in (arms.successes, arms.pulls - arms.successes))
        return rng.beta(self.a[chosen] + wins, self.b[chosen] + losses)


def shrinks(prior: priors.Prior) -> bool:
    """Whether the prior has components, and so experiments have a posterior."""
    alike = isinstance(prior, priors.Beta) and len({*zip(prior.a, prior.b, strict=True)}) == 1
    return alike or isinstance(prior, priors.Hierarchical | priors.Mixture)


def likeliest(candidates: list[priors.Prior], experiments: Experiments) -> priors.Prior:
    """The prior under which the experiments are most likely."""

    def likelihood(prior: priors.Prior) -> float:
        return float(logsumexp(Components.of(prior).log_joint(experiments), axis=1).sum())

    return max(candidates, key=likelihood)


def draw(
    prior: priors.Prior, experiments: Experiments, arms: int, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Means [count, K] of experiments given their counts, and the experiment [count] of each instance.

    Instances cycle through the experiments in random order. Each has K of its experiment's arms at random;
    if there are fewer, the others are new arms of the same experiment.
    """
    rng = np.random.default_rng(seed)
    owner = np.resize(rng.permutation(len(experiments)), count)
    chosen = sized(with_new_arms(experiments.only(owner), arms), arms, rng)
    components = Components.of(prior)
    return components.means(components.edges(experiments)[owner], chosen, rng), owner


def sized(experiments: Experiments, arms: int, rng: np.random.Generator) -> Experiments:
    """K arms of each experiment, which has at least as many, at random and in random order."""
    order = np.lexsort((rng.random(len(experiments.pulls)), experiments.owner))
    kept = order[(experiments.starts[:-1, None] + np.arange(arms)).ravel()]
    return experiments.with_arms(np.arange(len(experiments) + 1) * arms, kept)


def with_new_arms(experiments: Experiments, arms: int) -> Experiments:
    """Experiments with at least K arms: those with fewer get new arms without pulls."""
    missing = np.maximum(arms - experiments.sizes, 0)
    at = np.repeat(experiments.starts[1:], missing)
    starts = experiments.starts + np.concatenate([[0], np.cumsum(missing)])
    pulls, successes = (np.insert(x, at, 0.0) for x in (experiments.pulls, experiments.successes))
    return dataclasses.replace(experiments, starts=starts, pulls=pulls, successes=successes)
