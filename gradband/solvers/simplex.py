"""A regular grid on the simplex of probability vectors."""

import itertools
import math

import numpy as np


class Grid:
    """Posteriors k / M with whole k [J] ≥ 0, Σ k = M, and interpolation between them.

    In coordinates x_j = M Σ_{i ≥ j} π_i for j ≥ 2, which do not increase with j, the grid's simplices are
    found by sorting fractional parts (Freudenthal), and a point's number is its rank among combinations.
    """

    def __init__(self, instances: int, resolution: int) -> None:
        self.axes, self.resolution = instances - 1, resolution
        # ranks[y, j] = C(y + J − 2 − j, J − 1 − j)
        above = range(self.axes, 0, -1)
        self.ranks = np.array([[math.comb(y + j - 1, j) for j in above] for y in range(resolution + 1)])
        falling = itertools.combinations_with_replacement(range(resolution, -1, -1), self.axes)
        corners = np.array(list(falling), np.int64)
        order = np.argsort(self.number(corners))
        bounded = np.pad(corners[order], ((0, 0), (1, 1)), constant_values=((0, 0), (resolution, 0)))
        self.points = (bounded[:, :-1] - bounded[:, 1:]) / resolution

    def number(self, corner: np.ndarray) -> np.ndarray:
        """Numbers [S] of the points with whole coordinates [S, J − 1]."""
        return np.take_along_axis(self.ranks, corner, 0).sum(1)

    def coordinates(self, posterior: np.ndarray) -> np.ndarray:
        tails = np.cumsum(posterior[:, :0:-1], axis=1)[:, ::-1] * self.resolution
        return np.minimum.accumulate(np.clip(tails, 0, self.resolution), axis=1)

    def nearest(self, posterior: np.ndarray) -> np.ndarray:
        """Numbers [S] of the points whose coordinates are nearest."""
        return self.number(np.floor(self.coordinates(posterior) + 0.5).astype(np.int64))

    def simplex(self, posterior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers [S, J] of the corners around each posterior, and its weights [S, J] on them."""
        x = self.coordinates(posterior)
        corner = np.minimum(np.floor(x), self.resolution - 1).astype(np.int64)
        fraction = x - corner
        order = np.argsort(-fraction, axis=1, kind="stable")
        steps = np.take_along_axis(fraction, order, 1)
        edges = np.pad(steps, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0)))
        numbers = [self.number(corner)]
        for axis in order.T:
            corner[np.arange(len(corner)), axis] += 1
            numbers.append(self.number(corner))
        return np.stack(numbers, 1), edges[:, :-1] - edges[:, 1:]
