"""Guardrails: the least and the greatest probability of every arm, whatever the policy says.

Written over the arrays' namespace, so that a problem can be learned under the guardrails of the test.
"""

from gradband.core.arrays import Array, namespace


def guard(p: Array, floors: Array, cap: Array | float = 1.0) -> Array:
    """The probabilities f_i + (1 − Σf) p_i, at most `cap` (or 1/K, if that is more).

    What the cap takes from an arm goes to the others in proportion to their room below the cap, so none of
    them exceeds it. Floors [K] must sum to at most 1, and none may be above the cap: then no probability is
    below its floor, and they sum to 1.

    >>> import numpy as np
    >>> guard(np.array([1.0, 0.0, 0.0]), np.array([0.1, 0.1, 0.1])).round(3).tolist()
    [0.8, 0.1, 0.1]
    >>> guard(np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.2, 0.0]), cap=0.6).round(3).tolist()
    [0.6, 0.28, 0.12]
    """
    xp = namespace(p, floors, cap)
    shares = floors + (1 - floors.sum()) * p
    most = xp.maximum(cap, 1 / p.shape[0])
    capped = xp.minimum(shares, most)
    room = most - capped
    excess = (shares - capped).sum()
    return capped + excess * room / xp.maximum(room.sum(), 1e-30)
