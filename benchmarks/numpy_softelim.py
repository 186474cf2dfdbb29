"""Evaluate SoftElim in NumPy, vectorised over instances.

The yardstick for array programming: a Python loop over rounds, in which every operation covers all
instances at once.  `evaluate` reads like the paper; `evaluate_tuned` is as fast as NumPy gets:

* Arrays are laid out [arm, instance], so reductions over arms run along contiguous rows (with the
  transpose, ten arms at a time, they take some twenty times longer).
* The state is kept in the form the weights need: means scaled by sqrt(2/theta) and negated pulls,
  so that the exponent -S/theta is one subtraction and two products.
* Only the pulled entries are updated, by flat indices; the regret is read off the pulls at the end.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

# Rounds of uniforms drawn by one call: enough to hide the call, few enough to stay in cache.
ROUNDS_AT_ONCE = 10


def evaluate(
    theta: float,
    *,
    arms: int = 10,
    horizon: int = 1000,
    instances: int = 2000,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Play SoftElim once on each instance and return the regrets, as one would write it down.

    The instances are Bernoulli bandits with means drawn uniformly from [0, 1].
    """
    rng = np.random.default_rng(seed)
    mu = rng.random((instances, arms))
    pulls = np.zeros((instances, arms))
    sums = np.zeros((instances, arms))
    row = np.arange(instances)
    for t in range(horizon):
        if t < arms:
            arm = np.full(instances, t)
        else:
            means = sums / pulls
            statistic = 2 * (means.max(axis=1, keepdims=True) - means) ** 2 * pulls
            weights = np.exp(-statistic / theta)
            edges = np.cumsum(weights, axis=1)
            arm = (rng.random((instances, 1)) * edges[:, -1:] >= edges).sum(axis=1)
        reward = rng.random(instances) < mu[row, arm]
        pulls[row, arm] += 1
        sums[row, arm] += reward
    return ((mu.max(axis=1, keepdims=True) - mu) * pulls).sum(axis=1)


def evaluate_tuned(
    theta: float,
    *,
    arms: int = 10,
    horizon: int = 1000,
    instances: int = 2000,
    seed: int = 0,
) -> NDArray[np.float32]:
    """The same as `evaluate`, faster."""
    rng = np.random.Generator(np.random.SFC64(seed))  # the fastest of NumPy's generators
    f32 = np.float32
    shape = (arms, instances)
    unit = f32(np.sqrt(2 / theta))  # what a reward of one adds, in scaled means

    mu = rng.random(shape, dtype=f32)
    mean = unit * (rng.random(shape, dtype=f32) < mu)  # after one pull of each arm
    pulls = np.full(shape, -1, dtype=f32)  # negated

    mu_flat, mean_flat, pulls_flat = mu.ravel(), mean.ravel(), pulls.ravel()  # views
    best = np.empty(instances, f32)
    weight = np.empty(shape, f32)
    rows = list(weight)
    beaten = np.empty((arms - 1, instances), np.bool_)
    arm = np.empty(instances, np.uint8 if arms <= 256 else np.intp)
    entry = np.empty(instances, np.intp)
    column = np.arange(instances)
    reward = np.empty(instances, f32)

    for t in range(horizon - arms):
        if t % ROUNDS_AT_ONCE == 0:
            uniforms = rng.random((ROUNDS_AT_ONCE, 2, instances), dtype=f32)
        u_action, u_reward = uniforms[t % ROUNDS_AT_ONCE]

        # weight = exp(-S/theta)
        np.maximum.reduce(mean, axis=0, out=best)
        np.subtract(mean, best, out=weight)
        np.multiply(weight, weight, out=weight)
        np.multiply(weight, pulls, out=weight)
        np.exp(weight, out=weight)

        # Inverse transform: the arm is the number of cumulated weights the point has passed.  Row
        # by row the sums are vector operations, which np.add.accumulate's are not.
        for previous, row in pairwise(rows):
            np.add(row, previous, out=row)
        np.multiply(u_action, rows[-1], out=u_action)
        np.less_equal(weight[:-1], u_action, out=beaten)
        np.add.reduce(beaten.view(np.uint8), axis=0, dtype=arm.dtype, out=arm)

        np.multiply(arm, instances, out=entry, dtype=np.intp)
        np.add(entry, column, out=entry)

        # mean += (reward - mean) / pulls, written for the negated pulls
        np.multiply(u_reward < mu_flat.take(entry), unit, out=reward)
        pulled = pulls_flat.take(entry)
        pulled -= 1
        pulls_flat[entry] = pulled
        update = mean_flat.take(entry)
        np.subtract(update, reward, out=reward)
        np.divide(reward, pulled, out=reward)
        np.add(update, reward, out=update)
        mean_flat[entry] = update

    return horizon * mu.max(axis=0) + (mu * pulls).sum(axis=0)
