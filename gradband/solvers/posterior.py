"""The Bayes optimum of Bernoulli arms when the instance is one of J known ones, through its posterior.

A history matters only through the posterior π over the J instances. Two methods work together:

- A regular grid on the simplex of posteriors bounds the value from both sides. V is convex in π, so
  interpolating it on the grid's simplices bounds it from above (Lovejoy, 1991); an α-vector, the reward [J]
  of one policy on each instance, bounds it from below, and each grid point keeps its best.
- The lattice holds the posteriors that histories can reach, equal ones merged, without arms that the bounds
  prove worse than another. Backward induction on it is exact.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gradband.core import resources
from gradband.solvers.graph import Graph, induce
from gradband.solvers.simplex import Grid

SAME = 1e-9  # posteriors whose log-likelihoods differ by less are equal
COARSE, FINE = 4096, 65536  # points of a grid
STEPS = 1_000_000_000  # most numbers that the bounds on a grid process, in a minute or two
WORK = 20_000_000  # most posteriors × instances × arms of a lattice
MEMORY = 1 << 30  # bytes of a grid's bounds
LOOKAHEAD = 1 << 24  # numbers that a step back on a grid processes at a time
MOST_INSTANCES = 256
LATTICE, GRID = "lattice of posteriors", "bounds on a grid of posteriors"
Progress = Callable[[float], None]


class Instances:
    """J instances with their weights [J]; arms with equal means in every instance are merged."""

    def __init__(self, means: np.ndarray, weights: np.ndarray) -> None:
        likely = weights > 0
        columns, first, kind = np.unique(means[likely], axis=1, return_index=True, return_inverse=True)
        self.means = columns
        self.weights = weights[likely] / weights[likely].sum()
        self.arm_of, self.kind_of = first, kind.reshape(-1)
        self.likelihood = np.stack([1 - columns, columns])  # [2, J, A], of a zero and of a one
        with np.errstate(divide="ignore"):
            self.log_weights, self.log_likelihood = np.log(self.weights), np.log(self.likelihood)

    def predict(self, posterior: np.ndarray) -> np.ndarray:
        """Probabilities [S, A] that the next reward is 1, given posteriors [S, J]."""
        return posterior @ self.means

    def next(self, posterior: np.ndarray, arm: int, outcome: int) -> np.ndarray:
        """Posteriors [S, J] after one more reward; unchanged where that reward is impossible."""
        weighed = posterior * self.likelihood[outcome, :, arm]
        total = weighed.sum(1, keepdims=True)
        return np.where(total > 0, weighed / np.maximum(total, 1e-300), posterior)


class Bounds:
    """Bounds on the value of rounds t, …, n − 1, for every t, on a grid."""

    def __init__(
        self, instances: Instances, grid: Grid, horizon: int, progress: Progress, afterwards: int = 0
    ) -> None:
        self.instances, self.grid, self.horizon = instances, grid, horizon
        points = len(grid.points)
        self.upper = np.zeros((horizon + 1, points))
        self.alpha = np.zeros((horizon + 1, points, len(instances.weights)))
        self.action = np.zeros((horizon + bool(afterwards), points), np.int16)
        ahead = self.successors(grid.points)
        if afterwards:
            worth = instances.predict(grid.points)
            self.action[horizon] = worth.argmax(1)
            self.upper[horizon] = afterwards * worth.max(1)
            self.alpha[horizon] = afterwards * instances.means.T[worth.argmax(1)]
        for t in range(horizon - 1, -1, -1):
            q, alphas = self.lookahead(t, grid.points, ahead)
            lower = np.einsum("saj,sj->sa", alphas, grid.points)
            self.upper[t], self.alpha[t] = q.max(1), alphas[np.arange(points), lower.argmax(1)]
            self.action[t] = (q + lower).argmax(1)  # by the middle of both bounds
            progress((horizon - t) / horizon)

    def successors(self, posterior: np.ndarray) -> list[Any]:
        """For each arm and outcome: posteriors [S, J], and the corners and weights [S, J] around them."""
        arms = range(self.instances.means.shape[1])
        after = [[self.instances.next(posterior, arm, outcome) for outcome in (0, 1)] for arm in arms]
        return [[(p, *self.grid.simplex(p)) for p in pair] for pair in after]

    def lookahead(self, t: int, posterior: np.ndarray, ahead: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds [S, A] on each arm's value in round t, and α-vectors [S, A, J] of lower bounds."""
        ones = self.instances.predict(posterior)
        uppers, alphas = [], []
        for arm, outcomes in enumerate(ahead):
            upper = ones[:, arm].copy()
            alpha = np.tile(self.instances.means[:, arm], (len(posterior), 1))
            for outcome, (after, corners, weights) in enumerate(outcomes):
                chance = ones[:, arm] if outcome else 1 - ones[:, arm]
                upper += chance * (self.upper[t + 1][corners] * weights).sum(1)
                candidates = self.alpha[t + 1][corners]
                best = np.einsum("svj,sj->sv", candidates, after).argmax(1)
                likelihood = self.instances.likelihood[outcome, :, arm]
                alpha += likelihood * candidates[np.arange(len(best)), best]
            uppers.append(upper)
            alphas.append(alpha)
        return np.stack(uppers, 1), np.stack(alphas, 1)

    def plausible(self, t: int, posterior: np.ndarray) -> np.ndarray:
        """Arms [S, A] that the bounds do not prove worse than another in round t."""
        size = max(1, LOOKAHEAD // posterior.shape[1] ** 2)
        found = []
        for start in range(0, len(posterior), size):
            part = posterior[start : start + size]
            upper, alphas = self.lookahead(t, part, self.successors(part))
            lower = np.einsum("saj,sj->sa", alphas, part)
            most = lower.max(1, keepdims=True)
            found.append(upper >= most - 1e-12 * np.maximum(1, most))  # rounding must not drop the best arm
        return np.concatenate(found)

    def chosen(self, t: int, posterior: np.ndarray) -> np.ndarray:
        """The arm [S, A] that the nearest grid point pulls in round t."""
        action = self.action[t][self.grid.nearest(posterior)]
        return action[:, None] == np.arange(self.instances.means.shape[1])

    def now(self) -> tuple[float, float]:
        """Bounds on the value of all rounds at the prior."""
        prior = self.instances.weights[None]
        corners, weights = self.grid.simplex(prior)
        low = float((self.alpha[0][corners[0]] @ prior[0]).max())
        return low, max(low, float((self.upper[0][corners] * weights).sum()))


class Layer(NamedTuple):
    """One round of a lattice: all pairs of a posterior and an arm, in order."""

    starts: np.ndarray
    """the first pair of each posterior [S]"""
    chance: np.ndarray
    """probability of a one"""
    child: np.ndarray
    """numbers […, 2] in the next round of the posteriors after a zero and after a one"""


def lattice(
    instances: Instances,
    horizon: int,
    arms: Callable[[int, np.ndarray], np.ndarray],
    most: int,
    progress: Progress = lambda done: None,
) -> tuple[list[Layer], np.ndarray] | None:
    """Posteriors that are reached if round t pulls only the arms [S, A] of `arms(t, posteriors)`, and the
    arms' mean rewards [S, A] after the last round; None if there are more than `most` posteriors.
    """
    log = instances.log_weights[None]
    mix = np.random.default_rng(0).integers(1, 2**63, len(instances.weights), np.uint64)
    layers, states = [], 0
    for t in range(horizon):
        posterior = np.exp(log)
        posterior /= posterior.sum(1, keepdims=True)
        state, arm = np.nonzero(arms(t, posterior))
        chance = instances.predict(posterior)[state, arm]
        after = np.concatenate([log[state] + instances.log_likelihood[o].T[arm] for o in (0, 1)])
        peak = after.max(1, keepdims=True)
        # Any posterior will do for an outcome that no instance allows: its chance is 0.
        after = np.where(np.isfinite(peak), after - np.where(np.isfinite(peak), peak, 0), 0)
        key = np.where(np.isfinite(after), np.round(after / SAME), -(2.0**62)).astype(np.int64)
        hashed = (key.view(np.uint64) * mix).sum(1)
        _, first, child = np.unique(hashed, return_index=True, return_inverse=True)
        if (key[first][child] != key).any():
            raise ArithmeticError("two different posteriors have the same hash")
        pairs = child.astype(np.int32).reshape(2, -1).T
        layers.append(Layer(np.searchsorted(state, np.arange(len(log))), chance, pairs))
        log = after[first]
        states += len(log)
        if states > most:
            return None
        progress((t + 1) / horizon)
    posterior = np.exp(log)
    return layers, instances.predict(posterior / posterior.sum(1, keepdims=True))


def best_value(found: tuple[list[Layer], np.ndarray] | None, afterwards: int = 0) -> float | None:
    """The value of the best choices on a lattice, by backward induction."""
    if found is None:
        return None
    layers, ending = found
    value = afterwards * ending.max(1)
    for layer in reversed(layers):
        q = layer.chance * (1 + value[layer.child[:, 1]]) + (1 - layer.chance) * value[layer.child[:, 0]]
        value = np.maximum.reduceat(q, layer.starts)
    return float(value[0])


def whole_graph(instances: Instances, horizon: int, most: int, afterwards: int = 0) -> Graph | None:
    """The optimal choice at every posterior that any history leads to, if there are at most `most`."""
    count = instances.means.shape[1]
    found = lattice(instances, horizon, lambda t, posterior: np.ones((len(posterior), count), bool), most)
    if found is None:
        return None
    layers = [(layer.chance.reshape(-1, count), layer.child.reshape(-1, count, 2)) for layer in found[0]]
    return induce(layers, found[1], afterwards)


@dataclasses.dataclass(frozen=True)
class Solution:
    """The optimal value lies in [value, value + error], and `bounds.action` is a policy on the grid."""

    value: float
    error: float
    loss: float | None
    """how far the policy's reward is below `value`; None if unknown"""
    method: str
    bounds: Bounds
    graph: Graph | None = None
    """the optimal choices, where the grid's policy loses reward and the lattice is small enough"""


def solve(
    means: np.ndarray,
    weights: np.ndarray,
    horizon: int,
    progress: Progress = lambda done: None,
    afterwards: int = 0,
) -> Solution:
    """The optimal expected reward of n rounds, and of an arm's pulls `afterwards`, on instances with means
    [J, K] and weights [J].

    Tries a coarse grid first, then a fine one if the coarse bounds do not keep the lattice small, or their
    policy loses more than a ten-thousandth of the regret.

    >>> two_point = np.array([[0.6, 0.4], [0.4, 0.6]])
    >>> round(0.6 * 20 - solve(two_point, np.array([0.5, 0.5]), horizon=20).value, 4)
    1.1425
    """
    if (weights > 0).sum() == 1:  # a posterior needs two instances
        means, weights = np.repeat(means[weights > 0], 2, axis=0), np.array([0.5, 0.5])
    instances = Instances(means, weights)
    count, arms = instances.means.shape
    most = WORK // (count * arms)
    exact = None
    for points in (COARSE, FINE):
        room = resources.fits(2 * memory(count, horizon, points), resources.free_memory())
        if points == FINE and (grid_steps(count, arms, horizon, points) > STEPS or not room):
            break
        grid = Grid(count, resolution_for(count, horizon, points))
        bounds = Bounds(instances, grid, horizon, lambda done: progress(0.5 * done), afterwards)
        if exact is None:
            found = lattice(instances, horizon, bounds.plausible, most, lambda x: progress((1 + x) / 2))
            exact = best_value(found, afterwards)
        reached = best_value(lattice(instances, horizon, bounds.chosen, most), afterwards)
        loss = None if reached is None or exact is None else max(exact - reached, 0.0)
        regret = (horizon + afterwards) * float(instances.weights @ instances.means.max(1)) - (exact or 0.0)
        if exact is not None and loss is not None and loss <= 1e-4 * regret + 1e-9:
            return Solution(exact, 0.0, loss, LATTICE, bounds)
    if exact is not None:
        graph = whole_graph(instances, horizon, most, afterwards)
        return Solution(exact, 0.0, 0.0 if graph else loss, LATTICE, bounds, graph)
    low, high = bounds.now()
    low = low if reached is None else max(low, reached)
    return Solution(low, max(high - low, 0.0), None if reached is None else low - reached, GRID, bounds)


def resolution_for(instances: int, horizon: int, points: int) -> int:
    """The resolution of the finest grid with at most this many points that fits `MEMORY`; at least 1."""
    points = min(points, MEMORY // (8 * (instances + 1) * (horizon + 1)), LOOKAHEAD // instances**2)
    resolution = 1
    while instances > 1 and math.comb(resolution + instances, instances - 1) <= points:
        resolution += 1
    return resolution


def grid_size(instances: int, horizon: int, points: int) -> int:
    return math.comb(resolution_for(instances, horizon, points) + instances - 1, instances - 1)


def grid_steps(instances: int, arms: int, horizon: int, points: int) -> float:
    """Numbers that the bounds on a grid of at most this many points process."""
    return 2.0 * arms * horizon * grid_size(instances, horizon, points) * instances**2


def longest(instances: int, arms: int, horizon: int) -> int:
    """A horizon, at most this one, whose bounds on a coarse grid take at most `STEPS`."""
    while horizon and (steps := grid_steps(instances, arms, horizon, COARSE)) > STEPS:
        horizon = min(horizon - 1, int(horizon * STEPS / steps))
    return horizon


def memory(instances: int, horizon: int, points: int) -> int:
    """Bytes that these bounds take."""
    return 8 * (instances + 1) * (horizon + 1) * grid_size(instances, horizon, points)
