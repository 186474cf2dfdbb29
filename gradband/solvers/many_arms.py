"""The Bayes optimum of K Bernoulli arms with independent Beta priors, for short horizons.

Arms with the same prior are exchangeable, so a state is a multiset: for each kind of arm, how many of them
have s ones in N pulls. Each round's states follow from the previous round's; they are merged, and valued
backwards. Their number grows fast with n, but stops growing with K at K = n.
"""

from collections.abc import Callable, Sequence

import numpy as np

from gradband.core.errors import whole
from gradband.solvers.graph import Graph, induce
from gradband.solvers.layout import check_shapes, code, states_up_to

NODES = 40_000_000  # most states × arms
BYTES = 75  # of memory for each of them, at the peak
LONGEST = 100  # rounds: with three arms there are too many states long before


def kinds(a: Sequence[float], b: Sequence[float]) -> np.ndarray:
    """Kinds [K] of the arms: arms with the same prior have the same number."""
    return np.unique(np.stack([a, b], 1), axis=0, return_inverse=True)[1].reshape(-1)


def nodes(a: Sequence[float], b: Sequence[float], horizon: int) -> np.ndarray:
    """How many states there are before each round 0 … n − 1.

    >>> nodes([1, 1], [1, 1], horizon=3)
    array([1., 2., 6.])
    """
    total = np.zeros(horizon)
    total[0] = 1
    for alike in np.bincount(kinds(a, b)):
        count = min(alike, horizon)  # no more can be pulled
        # ways[k, t]: multisets of k pulled arms with t pulls in all; an arm with N pulls has N + 1 states
        ways = np.zeros((count + 1, horizon))
        ways[0, 0] = 1
        for pulls in range(1, horizon):
            for _ in range(pulls + 1):
                for k in range(1, count + 1):
                    ways[k, pulls:] += ways[k - 1, :-pulls]
        total = np.convolve(total, ways.sum(0))[:horizon]
    return total


def solve(
    a: Sequence[float],
    b: Sequence[float],
    horizon: int,
    progress: Callable[[float], None] = lambda done: None,
    afterwards: int = 0,
) -> Graph:
    """The optimal expected reward of n rounds and of an arm's pulls `afterwards`, and the optimal policy.

    Check with `nodes` first that it is feasible. Arms' positions are their ranks by kind, then by `code`.

    >>> round(solve([1] * 5, [1] * 5, horizon=10).value, 5)
    6.65999
    """
    check_shapes(a, b)
    n, arms = whole("horizon", horizon), len(a)
    kind = np.sort(kinds(a, b))
    alpha, beta = (np.asarray(x, float)[np.argsort(kinds(a, b), kind="stable")] for x in (a, b))
    pulls, ones = states_up_to(n)
    codes = len(pulls)
    offset = kind * codes
    # A multiset's key is the sum of its members' random words, which does not depend on their order.
    words = np.random.default_rng(0).integers(0, 2**64, (arms, codes), np.uint64)[kind]
    states: np.ndarray = np.zeros((1, arms), np.int32)
    keys = words[np.arange(arms), 0].sum()[None]
    layers = []
    position = np.arange(arms)
    for t in range(n):
        word = words[position, states]
        after = np.stack([code(pulls[states] + 1, ones[states] + outcome) for outcome in (0, 1)])
        reached = np.stack([keys[:, None] - word + words[position, c] for c in after], -1)
        keys, first, child = np.unique(reached, return_index=True, return_inverse=True)
        layers.append((states, child.reshape(reached.shape).astype(np.int32)))
        parent, moved, outcome = np.unravel_index(first, reached.shape)
        states = states[parent]
        states[np.arange(len(first)), moved] = after[outcome, parent, moved]
        states = _sorted(states, offset)
        _verify(states, layers[-1], after, offset)
        progress((t + 1) / n)

    def chances(rows: np.ndarray) -> np.ndarray:
        return (alpha + ones[rows]) / (alpha + beta + pulls[rows])

    return induce([(chances(rows), child) for rows, child in layers], chances(states), afterwards)


def _sorted(states: np.ndarray, offset: np.ndarray) -> np.ndarray:
    return (np.sort(states + offset, axis=1) - offset).astype(np.int32)


def _verify(
    states: np.ndarray, layer: tuple[np.ndarray, ...], after: np.ndarray, offset: np.ndarray
) -> None:
    """Makes sure that no two states had the same key."""
    before, child = layer
    for moved in range(before.shape[1]):
        for outcome in (0, 1):
            reached = before.copy()
            reached[:, moved] = after[outcome, :, moved]
            if (_sorted(reached, offset) != states[child[:, moved, outcome]]).any():
                raise ArithmeticError("two different states have the same key")
