"""Plausible means of past experiments: draws from posteriors, which shrink observed rates.

Observed rates vary more than means, because each contains noise, which the posterior under a fitted prior
removes. Fitted priors of 0 and 1 are mixtures of beta distributions that an experiment's arms share: a
single one (pooled), a few (mixture), or one for each level and spread on a grid (hierarchical). Those of
revenue are normal around a normal level, or of who buys and how much.
"""

import numpy as np

from gradband.problems import priors
from gradband.problems.past_experiments import Experiments
from gradband.problems.posteriors import Components as Components
from gradband.problems.posteriors import posterior_of
from gradband.problems.posteriors import shrinks as shrinks


def log_likelihood(prior: priors.Prior, experiments: Experiments) -> np.ndarray:
    """The log-likelihood of each experiment [E], up to a constant that all priors of a kind share."""
    return posterior_of(prior).log_likelihood(experiments)


def likeliest(candidates: list[priors.Prior], experiments: Experiments) -> priors.Prior:
    """The prior under which the experiments are most likely."""
    return max(candidates, key=lambda prior: float(log_likelihood(prior, experiments).sum()))


def draw(
    prior: priors.Prior, experiments: Experiments, arms: int, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Means [count, K] of experiments given their counts, and the experiment [count] of each instance.

    With revenue, they are arms as its rewards describe them [count, 2, K].

    Instances cycle through the experiments in random order. Each has K random arms of its experiment; if
    there are fewer, the others are new arms of the same experiment.
    """
    rng = np.random.default_rng(seed)
    owner = np.resize(rng.permutation(len(experiments)), count)
    chosen = sized(with_new_arms(experiments.only(owner), arms), arms, rng)
    posterior = posterior_of(prior)
    return posterior.means(posterior.edges(experiments)[owner], chosen, rng), owner


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
    return experiments.mapped(starts, lambda numbers: np.insert(numbers, at, 0.0))
