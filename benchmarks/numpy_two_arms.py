"""The optimum of two Bernoulli arms with uniform priors by backward induction, in plain NumPy.

V_t[i, a, b] is the reward to come after t pulls, i of them of the first arm, with a and b successes.
"""

import numpy as np


def reward(horizon: int) -> float:
    """The Bayes reward of the optimal policy."""
    value = np.zeros((horizon + 1, horizon + 1, horizon + 1))
    for t in reversed(range(horizon)):
        i = np.arange(t + 1)[:, None, None]
        a = np.arange(t + 1)[None, :, None]
        b = np.arange(t + 1)[None, None, :]
        first, second = (a + 1) / (i + 2), (b + 1) / (t - i + 2)
        first, second = np.minimum(first, 1), np.minimum(second, 1)  # states that can't be
        up, stay = value[1:, 1:, :-1], value[:-1, :-1, 1:]
        pull_first = first * (1 + up) + (1 - first) * value[1:, :-1, :-1]
        pull_second = second * (1 + stay) + (1 - second) * value[:-1, :-1, :-1]
        value = np.maximum(pull_first, pull_second)
    return float(value[0, 0, 0])
