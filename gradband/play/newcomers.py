"""Limits on how often an added arm is pulled while little is known about it.

A policy that explores may send everyone to a new arm until it observes a reward. If rewards arrive at once,
that is one decision; if they arrive a thousand decisions late, it is a thousand. So the decisions for a new
arm that wait for rewards may exceed its observed rewards by one. Beyond that it gets at most an equal
share, 1/K, and the other arms are played as if it were not there. What is known about a good new arm thus
doubles in the time that a reward takes, and soon the limit no longer matters.
"""

from collections.abc import Callable

import numpy as np


def limits(observed: np.ndarray, waiting: np.ndarray, count: int, arms: int) -> np.ndarray:
    """The largest probabilities of new arms in the next `count` decisions, whose rewards come after them.

    All allowed decisions may go to one arm, and 1/K of the rest.

    >>> limits(np.array([0, 0, 3]), np.array([0, 1, 2]), count=1, arms=4).tolist()
    [1.0, 0.25, 1.0]
    >>> limits(np.array([0, 0, 3]), np.array([0, 1, 2]), count=4, arms=4).tolist()
    [0.4375, 0.25, 0.625]
    """
    free = np.clip(observed - waiting + 1, 0, count)
    return (free + (count - free) / arms) / count


def within(p: np.ndarray, limit: np.ndarray, without: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Probabilities [K] as close to p as the limits [K] allow; a limit of 1 means no limit.

    What limited arms lose goes to the others, as if the policy played only those: `without` returns its
    probabilities for a mask [K] of the others.

    >>> within(np.array([0.0, 0.0, 1.0]), np.array([1, 1, 1 / 4]), lambda others: np.array([2 / 3, 1 / 3]))
    array([0.5 , 0.25, 0.25])
    """
    others = limit == 1
    if others.all() or (p <= limit)[~others].all():
        return p
    shares = np.minimum(p, limit)
    if others.any():
        shares[others] = (1 - shares[~others].sum()) * without(others)
    else:  # all arms are new
        room = limit - shares
        shares += (1 - shares.sum()) * room / room.sum()
    return shares
