"""The Bayes optimum of Bernoulli arms in contexts, when instance and context are each one of a known list.

The value of a belief b over the J instances, before round t's context is drawn, is

    V_t(b) = Σ_c w_tc max_a Σ_y P(y | b, c, a) [y + V_{t+1}(b′)].

A pair of a context and an arm shows what one arm without contexts would, so the beliefs that are reached
are those of C K arms: `posterior.lattice` merges equal ones, and backward induction on them is exact.
"""

from typing import NamedTuple

import numpy as np

from gradband.core.errors import InputError, shown, whole
from gradband.solvers.posterior import WORK, Instances, lattice


class FiniteProblem(NamedTuple):
    """J instances in C contexts with K arms, for n rounds."""

    means: np.ndarray
    """of rewards [J, C, K]"""
    weights: np.ndarray
    """of instances [J], with sum 1"""
    contexts: np.ndarray
    """probabilities [n, C] of the contexts in each round"""

    @property
    def best(self) -> float:
        """What the best arm of each context would earn."""
        return float(np.einsum("j,nc,jc->", self.weights, self.contexts, self.means.max(2)))


class Solution(NamedTuple):
    """The optimum, and what it does."""

    reward: float
    regret: float
    action: list[np.ndarray]
    """the best arm [S, C] in each of round t's S beliefs; −1 in contexts that do not occur"""
    child: list[np.ndarray]
    """the belief [S, C, K, 2] of round t + 1 after a zero and after a one; −1 likewise"""


def finite_problem(
    means: np.ndarray, weights: np.ndarray, contexts: np.ndarray, horizon: int
) -> FiniteProblem:
    """A checked problem; `contexts` are weights [C], or [n, C] where they depend on the round.

    >>> round(finite_problem([[[0.2, 0.8]], [[0.8, 0.2]]], [1, 1], [1], horizon=3).best, 6)
    2.4
    """
    m, w, c = np.asarray(means, float), np.asarray(weights, float), np.asarray(contexts, float)
    n = whole("horizon", horizon)
    if m.ndim != 3 or not m.size or not ((m >= 0) & (m <= 1)).all():
        raise InputError(f"means must be numbers [J, C, K] from 0 to 1, not {shown(means)}")
    if w.shape != m.shape[:1] or not ((w >= 0) & np.isfinite(w)).all() or not w.sum():
        raise InputError(f"weights must be {len(m)} numbers of at least 0, not {shown(weights)}")
    if c.shape not in ((m.shape[1],), (n, m.shape[1])) or not ((c >= 0) & np.isfinite(c)).all():
        allowed = f"[{m.shape[1]}] or [{n}, {m.shape[1]}]"
        raise InputError(f"contexts must be weights {allowed} of at least 0, not {shown(contexts)}")
    c = np.broadcast_to(c, (n, m.shape[1]))
    if not c.any(1).all():
        raise InputError("contexts must have a positive weight in every round")
    return FiniteProblem(m, w / w.sum(), c / c.sum(1, keepdims=True))


def solve(means: np.ndarray, weights: np.ndarray, contexts: np.ndarray, horizon: int) -> Solution:
    """The optimal expected reward of n rounds, its regret, and the optimal choices.

    `means` are [J, C, K], `weights` [J], and `contexts` [C] or [n, C].

    >>> two_point = [[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.6, 0.4]]]
    >>> round(solve(two_point, [1, 1], [0.3, 0.7], horizon=20).regret, 4)  # as without contexts
    1.1425
    """
    given = finite_problem(means, weights, contexts, horizon)
    arms = given.means.shape[2]
    instances = Instances(given.means.reshape(len(given.means), -1), given.weights)
    pair_of = instances.kind_of.reshape(-1, arms)  # [C, K]: pairs with equal means are merged
    occur = np.zeros((horizon, instances.means.shape[1]), bool)
    for chances, row in zip(given.contexts, occur, strict=True):
        row[pair_of[chances > 0]] = True
    most = max(1, WORK // instances.means.size)
    feasible = 0

    def pairs(t: int, beliefs: np.ndarray) -> np.ndarray:
        nonlocal feasible
        feasible = t
        return np.broadcast_to(occur[t], (len(beliefs), occur.shape[1]))

    found = lattice(instances, horizon, pairs, most)
    if found is None:
        what = f"the optimum of {pair_of.size} pairs of a context and an arm over {horizon} rounds"
        hint = f"{feasible} rounds are feasible" if feasible else "use fewer instances, contexts or arms"
        raise InputError(f"{what} has more than {most} beliefs: {hint}")
    value = np.zeros(len(found[1]))
    action, children = [], []
    for layer, chances, now in reversed(list(zip(found[0], given.contexts, occur, strict=True))):
        shape = (len(layer.starts), now.sum())
        chance, child = layer.chance.reshape(shape), layer.child.reshape(*shape, 2)
        q = chance * (1 + value[child[..., 1]]) + (1 - chance) * value[child[..., 0]]
        place = (np.cumsum(now) - 1)[pair_of]  # of a pair among those that occur
        value = q[:, place].max(2) @ chances
        never = chances == 0
        action.append(np.where(never, -1, q[:, place].argmax(2)))
        children.append(np.where(never[:, None, None], -1, child[:, place]))
    reward = float(value[0])
    return Solution(reward, given.best - reward, action[::-1], children[::-1])
