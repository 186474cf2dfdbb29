"""How much an arm may get that was added, while little is known of it.

Nothing is known of a new arm, and a policy that explores may send everyone there until it hears of it. If
rewards come at once, that is one decision. If they come a thousand decisions late, it is a thousand. So no
more of a new arm's decisions should wait for rewards than rewards of it were heard, one more aside; beyond
that it gets at most an equal share, 1/K, and the other arms are played as if it were not there. A new arm
that turns out well thus doubles what is known of it in the time that a reward takes, and soon gets it all.
"""

from collections.abc import Callable

import numpy as np


def limits(heard: np.ndarray, waiting: np.ndarray, count: int, arms: int) -> np.ndarray:
    """The largest probabilities of new arms in the next `count` decisions, whose rewards come after them.

    It is what they could get in single decisions: all of those that they may have, and 1/K of the rest.

    >>> limits(np.array([0, 0, 3]), np.array([0, 1, 2]), count=1, arms=4).tolist()
    [1.0, 0.25, 1.0]
    >>> limits(np.array([0, 0, 3]), np.array([0, 1, 2]), count=4, arms=4).tolist()
    [0.4375, 0.25, 0.625]
    """
    free = np.clip(heard - waiting + 1, 0, count)
    return (free + (count - free) / arms) / count


def within(p: np.ndarray, limit: np.ndarray, without: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Probabilities [K] as near to p as the limits [K] allow; a limit of 1 is none.

    If they do not allow p, what limited arms leave goes to the others as the policy plays `without` them:
    a function of the mask [K] of the others.

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
