"""Train SoftElim's parameter with a hand-written Numba kernel: instances in parallel, plain loops inside.

GradBand with the 'self' baseline on both cores. Two runs on an instance share its rewards, each is the
other's baseline, and the score is a running sum, so nothing is stored per round.
"""

import math
from collections.abc import Sequence

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
RUNS = 2


@njit(inline="always")
def scramble(state: np.uint64) -> np.uint64:
    """The output of splitmix64 for a state."""
    x = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(fastmath=True, inline="always")
def uniform(state: np.uint64) -> float:
    """A uniform on (0, 1) from a splitmix64 state."""
    return (float(scramble(state) >> np.uint64(11)) + 0.5) * 2.0**-53


@njit(fastmath=True, error_model="numpy")
def one_instance(
    state: np.uint64, means: NDArray[np.float64], horizon: int, theta: float
) -> tuple[float, float]:
    """Gradient and regret of one instance, averaged over its two runs."""
    arms = means.shape[0]
    best_mean = means.max()
    pulls = np.zeros((RUNS, arms))
    sums = np.zeros((RUNS, arms))
    statistic = np.zeros(arms)
    edges = np.zeros(arms)
    score = np.zeros(RUNS)
    reward = np.zeros(RUNS)
    gradient = 0.0
    regret = 0.0
    for t in range(horizon):
        state += GOLDEN
        u = uniform(state)
        for run in range(RUNS):
            arm = t
            if t >= arms:
                best = 0.0
                for i in range(arms):
                    best = max(best, sums[run, i] / pulls[run, i])
                total = 0.0
                moment = 0.0
                for i in range(arms):
                    gap = best - sums[run, i] / pulls[run, i]
                    statistic[i] = 2 * gap * gap * pulls[run, i]
                    weight = math.exp(-statistic[i] / theta)
                    total += weight
                    moment += weight * statistic[i]
                    edges[i] = total
                state += GOLDEN
                point = uniform(state) * total
                arm = 0
                while arm < arms - 1 and point >= edges[arm]:
                    arm += 1
                score[run] += (statistic[arm] - moment / total) / (theta * theta)
            reward[run] = 1.0 if u < means[arm] else 0.0
            pulls[run, arm] += 1
            sums[run, arm] += reward[run]
            regret += (best_mean - means[arm]) / RUNS
        gradient += (reward[0] - reward[1]) * (score[0] - score[1]) / RUNS
    return gradient, regret


@njit(parallel=True, fastmath=True)
def iteration(
    seed: int, instances: int, horizon: int, means: NDArray[np.float64], theta: float
) -> tuple[float, float]:
    """Mean gradient and regret of fresh instances."""
    gradient = 0.0
    regret = 0.0
    for j in prange(instances):
        state = scramble(scramble(np.uint64(seed)) + np.uint64(j))
        kind = int(uniform(state) * means.shape[0])
        found = one_instance(state, means[kind], horizon, theta)
        gradient += found[0]
        regret += found[1]
    return gradient / instances, regret / instances


def train(
    seed: int,
    *,
    iterations: int = 100,
    instances: int = 1000,
    horizon: int = 200,
    means: Sequence[Sequence[float]] = ((0.6, 0.4), (0.4, 0.6)),
    c: float = 5.0,
) -> tuple[float, NDArray[np.float64]]:
    """Train theta by GradBand; return it and the mean regret of each iteration. The first call compiles."""
    table = np.array(means)
    theta, alpha = 1.0, 1 / (c * math.sqrt(iterations))
    regrets = np.empty(iterations)
    for i in range(iterations):
        gradient, regrets[i] = iteration(seed * 1_000_003 + i, instances, horizon, table, theta)
        theta = max(theta + alpha * gradient, 1e-3)
    return theta, regrets
