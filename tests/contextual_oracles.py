"""Other ways to the exact answers for contexts: sums over histories, given contexts, plain play."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gradband.core.errors import InputError, positive, shown, whole
from gradband.core.statistics import Mean
from gradband.solvers import many_arms, two_arms
from gradband.solvers.finite_contexts import finite_problem
from gradband.solvers.gaussian_feedback import PATHS, Draw
from gradband.solvers.groups import total
from gradband.solvers.signs import SIGN, Regrets
from gradband.solvers.wheel import USUAL, Losses

HISTORIES = 2_000_000  # that can be listed


History = tuple[tuple[int, int, int], ...]  # of context, arm and reward in each round


class Histories(NamedTuple):
    """All histories of a problem: contexts, arms and rewards [H, n], and their chances.

    `chance` [H] is the probability of these contexts and rewards, given the arms: times the policy's
    probability of the arms, it is that of the history.
    """

    contexts: np.ndarray
    arms: np.ndarray
    rewards: np.ndarray
    chance: np.ndarray


def histories(means: np.ndarray, weights: np.ndarray, contexts: np.ndarray, horizon: int) -> Histories:
    """All histories that are possible.

    >>> histories([[[0.2, 0.8]]], [1], [1], horizon=1).chance
    array([0.8, 0.2, 0.2, 0.8])
    """
    given = finite_problem(means, weights, contexts, horizon)
    count, arms = given.means.shape[1:]
    if (2 * count * arms) ** horizon > HISTORIES:
        feasible = int(np.log(HISTORIES) / np.log(2 * count * arms))
        raise InputError(f"{horizon} rounds have too many histories: {feasible} can be listed")
    likelihood = np.stack([1 - given.means, given.means], 3)  # [J, C, K, 2]
    seen = np.zeros((1, 0, 3), np.int64)
    joint = given.weights[:, None]  # [J, H]
    steps = np.stack(np.meshgrid(range(count), range(arms), (0, 1), indexing="ij"), -1).reshape(-1, 3)
    for chances in given.contexts:
        step = (chances[:, None, None] * likelihood).reshape(len(likelihood), -1)
        joint = (joint[:, :, None] * step[:, None]).reshape(len(joint), -1)
        before = np.repeat(seen, len(steps), 0)
        seen = np.concatenate([before, np.tile(steps, (len(seen), 1))[:, None]], 1)
        possible = joint.any(0)
        joint, seen = joint[:, possible], seen[possible]
    return Histories(seen[..., 0], seen[..., 1], seen[..., 2], joint.sum(0))


def policy_reward(
    means: np.ndarray,
    weights: np.ndarray,
    contexts: np.ndarray,
    horizon: int,
    policy: Callable[[History, int], np.ndarray],
) -> float:
    """The expected reward of a policy: its probabilities [K] after a history, in a context.

    A history is a tuple of (context, arm, reward) in each round before.

    >>> uniform = policy_reward([[[0.2, 0.8]]], [1], [1], 3, lambda history, context: np.array([0.5, 0.5]))
    >>> round(uniform, 6)
    1.5
    """
    listed = histories(means, weights, contexts, horizon)
    known: dict[tuple[History, int], np.ndarray] = {}
    total = 0.0
    for *rounds, chance in zip(*listed, strict=True):
        history: History = tuple(zip(*(row.tolist() for row in rounds), strict=True))
        played = float(chance)
        for t, (context, arm, _) in enumerate(history):
            if (before := (history[:t], context)) not in known:
                known[before] = np.asarray(policy(*before), float)
            played *= known[before][arm]
        total += float(played * sum(reward for _, _, reward in history))
    return total


def reward_of_groups(
    a: Sequence[float], b: Sequence[float], groups: int, horizon: int, workers: int = 1
) -> float:
    """The optimal expected reward if the K arms of each group have Bernoulli means from Beta(a_i, b_i).

    >>> round(reward_of_groups([1, 1], [1, 1], groups=5, horizon=50), 7) == round(5 * 6.0217857143, 7)
    True
    """

    def value(rounds: int) -> float:
        if len(a) == 2:
            return two_arms.solve(a, b, rounds, workers)[0]
        return many_arms.solve(a, b, rounds).value

    return total(value, groups, horizon)


def signs_in(contexts: np.ndarray, prior_sd: float = 1.0, noise_sd: float = 1.0) -> Regrets:
    """The same [m] for known contexts x [m, n, d].

    >>> found = signs_in(np.ones((1, 2, 1)))
    >>> found.optimal.round(6), found.thompson.round(6)
    (array([1.03158]), array([1.196827]))
    """
    x = np.asarray(contexts, float)
    if x.ndim != 3 or not np.isfinite(x).all():
        raise InputError(f"contexts must be finite numbers [m, n, d], not {shown(contexts)}")
    variance, noise = positive("prior_sd", prior_sd) ** 2, positive("noise_sd", noise_sd) ** 2
    covariance = np.tile(variance * np.eye(x.shape[2]), (len(x), 1, 1))
    total = np.zeros((3, len(x)))
    for row in x.transpose(1, 0, 2):
        prior = variance * (row * row).sum(1)
        along = (covariance @ row[..., None])[..., 0]
        left = np.clip((row * along).sum(1), 0, prior)
        sd = np.sqrt(prior)
        total += sd - np.sqrt(prior - left), left / np.maximum(sd, 1e-300), sd
        covariance -= along[..., None] * along[:, None] / (noise + left)[:, None, None]
    return Regrets(*(SIGN * total))


def alike_arms(draw: Draw, noise_sd: float, horizon: int, instances: int = 20_000, seed: int = 0) -> Mean:
    """Bayes regret over n rounds if K arms' means are independent draws from one distribution, any one.

    `draw` draws means [m, K]. Rewards are N(μ_i, noise_sd²). The arm with the best average so far is best:
    all have been seen equally often, and posterior means grow with averages.

    >>> print(alike_arms(lambda draws, m: draws.standard_normal((m, 2)), noise_sd=1.0, horizon=10))
    1.154 ± 0.008
    """
    n, noise = whole("horizon", horizon), positive("noise_sd", noise_sd)
    draws = np.random.default_rng(seed)
    parts = []
    for start in range(0, whole("instances", instances, 2), PATHS):
        means = np.asarray(draw(draws, min(PATHS, instances - start)), float)
        rows, best = np.arange(len(means)), means.max(1)
        errors, regret = np.zeros(means.shape), best - means.mean(1)
        for t in range(1, n):
            errors += noise * draws.standard_normal(means.shape)
            regret += best - means[rows, (t * means + errors).argmax(1)]
        parts.append(regret)
    return Mean.of(np.concatenate(parts))


class Belief:
    """The greedy policy as it plays: δ is in (low, high).

    >>> belief = Belief()
    >>> belief.observe(0.5, paid=False)
    >>> belief.low, belief.high
    (0.5, 1.0)
    >>> [belief.explores(radius) for radius in (0.4, 0.501, 0.51)]
    [False, False, True]
    """

    def __init__(self, losses: Losses = USUAL) -> None:
        self.low, self.high, self.losses = 0.0, 1.0, losses

    def explores(self, radius: float) -> bool:
        """Whether to pull the quadrant's arm, which may be known to pay."""
        return radius - self.low >= self.losses.share * (self.high - self.low)

    def observe(self, radius: float, paid: bool) -> None:
        """What the quadrant's arm showed at this radius."""
        if paid:
            self.high = min(self.high, radius)
        else:
            self.low = max(self.low, radius)
