"""What a policy could earn if it saw the rewards of all arms in every round, for a list of instances.

More information never earns less, so this bounds every policy. Only the posterior over the instances
matters, and the best posterior mean grows with the rounds seen: skipped rounds are worth no more than the
next one that is looked at.
"""

import math

import numpy as np

ROUNDS = 24  # that are looked at


def looked_at(rounds: int) -> np.ndarray:
    """Rounds seen, from 0 to n − 1, dense at first.

    >>> looked_at(5)
    array([0, 1, 2, 3, 4])
    """
    spread = np.unique(np.round(np.expm1(np.linspace(0, math.log(rounds), ROUNDS))).astype(int))
    return np.unique(np.append(np.arange(min(rounds, 4)), np.minimum(spread, rounds - 1)))


def bernoulli(
    means: np.ndarray, weights: np.ndarray, rounds: int, paths: int, seed: list[int]
) -> np.ndarray:
    """Rewards [paths] of n rounds with full feedback, on instances with means [J, K] and `weights` [J].

    Their mean is the bound, if the list is the prior. If the list is itself drawn from a prior, the mean
    over lists is still at least that prior's value: the value of a prior is convex in it.
    """
    draws = np.random.default_rng(seed)
    chosen = draws.choice(len(weights), paths, p=weights / weights.sum())
    clipped = np.clip(means, 1e-12, 1 - 1e-12)
    logit, none = np.log(clipped) - np.log1p(-clipped), np.log1p(-clipped).sum(1)
    with np.errstate(divide="ignore"):
        start = np.log(weights)
    ones, seen, total = np.zeros((paths, means.shape[1])), 0, np.zeros(paths)
    before = -1
    for t in looked_at(rounds):
        ones += draws.binomial(int(t - seen), means[chosen])
        seen = t
        logs = ones @ logit.T + t * none + start  # [paths, J]
        posterior = np.exp(logs - logs.max(1, keepdims=True))
        best = (posterior @ means).max(1) / posterior.sum(1)
        total += (t - before) * best  # rounds since the last one, worth at most as much as this one
        before = t
    return total
