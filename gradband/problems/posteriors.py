"""What an experiment's results say about its arms, under each kind of fitted prior.

All have the same methods: `edges` describes the level of each experiment given its results, `means` draws
its arms from that, `thinned` divides real results into an exploring part and the rest, and `sampled` draws
what arms show while they are explored.
"""

import dataclasses
import math
from typing import Any

import numpy as np
import scipy  # whose parts are imported when they are needed

from gradband.core.errors import InputError
from gradband.problems import priors, revenue
from gradband.problems.past_experiments import Experiments
from gradband.solvers.levels import components_of

NODES = 9  # of how far arms vary around their level
LEVELS = 256  # of amounts
REACH = 6.0  # standard deviations


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
            return cls(log_weights - scipy.special.logsumexp(log_weights), *shapes)
        if isinstance(prior, priors.Mixture):
            return cls(np.log(np.maximum(prior.weights, 1e-300)), prior.a, prior.b)
        if isinstance(prior, priors.Beta) and shrinks(prior):
            return cls(np.zeros(1), prior.a[:1], prior.b[:1])
        raise InputError(f"a {prior.kind} prior has no posterior to draw past experiments from")

    def log_joint(self, experiments: Experiments) -> np.ndarray:
        """log P(component, an experiment's counts) [E, G], up to a constant that all priors share."""
        wins, pulls = experiments.successes[:, None], experiments.pulls[:, None]
        losses = pulls - wins
        each = scipy.special.betaln(self.a + wins, self.b + losses) - scipy.special.betaln(self.a, self.b)
        return self.log_weights + np.add.reduceat(each, experiments.starts[:-1], axis=0)

    def log_likelihood(self, experiments: Experiments) -> np.ndarray:
        """Log-likelihoods [E] of experiments, up to a constant that priors of a kind share."""
        return np.asarray(scipy.special.logsumexp(self.log_joint(experiments), axis=1))

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

    def thinned(
        self, experiments: Experiments, explored: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean rewards [E, K] in `explored` of the pulls at random, and in the others."""
        pulls, wins = (
            x.astype(np.int64).reshape(explored.shape) for x in (experiments.pulls, experiments.successes)
        )
        seen = rng.hypergeometric(wins, pulls - wins, explored)
        return seen / explored, (wins - seen) / (pulls - explored)

    def sampled(
        self, drawn: np.ndarray, experiments: Experiments, explored: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean rewards [E, K] in so many pulls of arms that were drawn, and their means."""
        return rng.binomial(explored, drawn) / explored, drawn


@dataclasses.dataclass(frozen=True)
class NormalLevels:
    """Levels ℓ ~ N(mean, between²), and means N(ℓ, within²) whose rewards have a known variance."""

    mean: float
    between: float
    within: float

    @classmethod
    def of(cls, prior: priors.Gaussian | priors.HierarchicalGaussian) -> "NormalLevels":
        if isinstance(prior, priors.Gaussian):
            return cls(float(prior.mean), 0.0, float(prior.sd))
        return cls(float(prior.mean), float(prior.between), float(prior.within))

    def log_likelihood(self, experiments: Experiments) -> np.ndarray:
        seen = revenue.Observed.of(experiments, self.mean, self.within)
        between = max(self.between / self.within, 1e-9)
        return revenue.normal_likelihood(np.array([0.0, 0.0, math.log(between)]), seen) - (
            experiments.sizes * math.log(self.within)
        )

    def edges(self, experiments: Experiments) -> np.ndarray:
        """The posterior mean and standard deviation [E, 2] of the level."""
        weights = 1 / (experiments.pulls * self.within**2 + revenue.noise_of(experiments))
        off = experiments.successes - experiments.pulls * self.mean
        total, first = (
            np.add.reduceat(each, experiments.starts[:-1])
            for each in (weights * experiments.pulls, weights * off)
        )
        variance = self.between**2 / (1 + self.between**2 * total)
        return np.stack([self.mean + variance * first, np.sqrt(variance)], axis=1)

    def means(self, edges: np.ndarray, arms: Experiments, rng: np.random.Generator) -> np.ndarray:
        shape = (len(edges), -1)
        level = edges[:, :1] + edges[:, 1:] * rng.normal(size=(len(edges), 1))
        noise = revenue.noise_of(arms).reshape(shape)
        pulls, sums = (x.reshape(shape) for x in (arms.pulls, arms.successes))
        total = pulls * self.within**2 + noise
        middle = level + self.within**2 * (sums - pulls * level) / total
        return middle + self.within * np.sqrt(noise / total) * rng.normal(size=pulls.shape)

    def thinned(
        self, experiments: Experiments, explored: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """The mean of a part of the pulls varies around that of all, as in sampling without replacement."""
        shape = explored.shape
        pulls, sums = (x.reshape(shape) for x in (experiments.pulls, experiments.successes))
        noise = revenue.noise_of(experiments).reshape(shape)
        seen = sums / pulls + np.sqrt(noise * (1 / explored - 1 / pulls)) * rng.normal(size=shape)
        return seen, (sums - explored * seen) / (pulls - explored)

    def sampled(
        self, drawn: np.ndarray, experiments: Experiments, explored: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        noise = revenue.noise_of(experiments).reshape(explored.shape)
        return drawn + np.sqrt(noise / explored) * rng.normal(size=drawn.shape), drawn


@dataclasses.dataclass(frozen=True)
class Purchases:
    """Who buys, and amounts around a level on a grid: log-levels [G] with log-weights, in units of one."""

    buying: Components
    log_levels: np.ndarray
    log_weights: np.ndarray
    tightness: float
    shape: float

    @classmethod
    def of(cls, prior: priors.ZeroInflated) -> "Purchases":
        a, b, strength = float(prior.a), float(prior.b), float(prior.strength)
        shares = priors.Hierarchical(prior.arms, a, b, strength, float(prior.spread), float(prior.slope))
        nodes = np.linspace(-REACH, REACH, LEVELS if prior.between > 0 else 1)
        weights = -(nodes**2) / 2
        return cls(
            Components.of(shares),
            math.log(prior.amount) + float(prior.between) * nodes,
            weights - scipy.special.logsumexp(weights),
            float(prior.tightness),
            float(prior.rewards.shape),
        )

    def log_joint(self, experiments: Experiments) -> np.ndarray:
        """log P(level, sums of amounts) [E, G]."""
        levels = np.broadcast_to(self.log_levels, (len(experiments.pulls), len(self.log_levels)))
        each = revenue.sums_likelihood(experiments, self.shape, 1.0, self.tightness, levels)
        return self.log_weights + np.add.reduceat(each, experiments.starts[:-1], axis=0)

    def log_likelihood(self, experiments: Experiments) -> np.ndarray:
        amounts = scipy.special.logsumexp(self.log_joint(experiments), axis=1)
        return self.buying.log_likelihood(revenue.buyers_of(experiments)) + np.asarray(amounts)

    def edges(self, experiments: Experiments) -> np.ndarray:
        """Cumulative posterior weights of who buys, and then those of amounts."""
        joint = self.log_joint(experiments)
        found = np.cumsum(np.exp(joint - joint.max(1, keepdims=True)), axis=1)
        buying = self.buying.edges(revenue.buyers_of(experiments))
        return np.concatenate([buying, found / found[:, -1:]], axis=1)

    def means(self, edges: np.ndarray, arms: Experiments, rng: np.random.Generator) -> np.ndarray:
        count = len(self.buying.log_weights)
        buying = revenue.buyers_of(arms)
        shares = self.buying.means(edges[:, :count], buying, rng)
        chosen = (rng.random((len(edges), 1)) >= edges[:, count:]).sum(1, keepdims=True)
        buyers, sums = (x.reshape(len(edges), -1) for x in (buying.successes, arms.successes))
        rate = self.tightness * np.exp(self.log_levels[chosen]) + self.shape * sums
        amounts = rate / rng.gamma(self.tightness + 1 + self.shape * buyers)
        return np.stack([shares, amounts], axis=1)

    def thinned(
        self, experiments: Experiments, explored: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """A part of the buyers, whose share of gamma amounts has a beta distribution."""
        whole = [
            x.reshape(explored.shape) for x in (experiments.pulls, revenue.buyers_of(experiments).successes)
        ]
        pulls, buyers = (x.astype(np.int64) for x in whole)
        seen = rng.hypergeometric(buyers, pulls - buyers, explored)
        inside = (seen > 0) & (seen < buyers)
        ups, downs = (np.where(inside, self.shape * x, 1.0) for x in (seen, buyers - seen))
        share = np.where(inside, rng.beta(ups, downs), seen > 0)
        sums = experiments.successes.reshape(explored.shape)
        return sums * share / explored, sums * (1 - share) / (pulls - explored)

    def sampled(
        self, drawn: np.ndarray, experiments: Experiments, explored: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        shares, amounts = drawn[:, 0], drawn[:, 1]
        buyers = rng.binomial(explored, shares)
        paid = amounts * rng.gamma(self.shape * np.maximum(buyers, 1)) / self.shape
        return np.where(buyers > 0, paid, 0) / explored, shares * amounts


def shrinks(prior: priors.Prior) -> bool:
    """Whether experiments have a posterior under this prior."""
    alike = isinstance(prior, priors.Beta) and len({*zip(prior.a, prior.b, strict=True)}) == 1
    kinds = priors.Hierarchical | priors.Mixture | priors.Gaussian
    return alike or isinstance(prior, kinds | priors.HierarchicalGaussian | priors.ZeroInflated)


Posterior = Components | NormalLevels | Purchases
"""what results say about arms, under some prior"""


def posterior_of(prior: Any) -> Posterior:
    """The posterior under a fitted prior."""
    if isinstance(prior, priors.Gaussian | priors.HierarchicalGaussian):
        return NormalLevels.of(prior)
    if isinstance(prior, priors.ZeroInflated):
        return Purchases.of(prior)
    return Components.of(prior)


def of_rewards(found: Experiments) -> Posterior:
    """Some posterior for such rewards, to thin and to sample them with."""
    return Components(*np.ones((3, 1))) if found.variances is None else NormalLevels(0.0, 0.0, 1.0)
