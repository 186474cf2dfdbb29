"""The minimum of a smooth function with noise, by quadratics fitted to many points.

The best of many noisy values is best by luck. A quadratic fitted to all of them averages the noise out, and
its axes show the direction of a narrow valley.
"""

import dataclasses

import numpy as np

LONGEST, SHORTEST = 0.6, 0.05  # lengths of axes
FURTHEST = 0.9  # how far away a minimum may be along an axis


@dataclasses.dataclass(frozen=True)
class Valley:
    """A centre [P], axes [P, P] in columns, and the lengths [P] over which the function rises noticeably.

    >>> bowl = Valley.around(2, 0.3)
    >>> points = bowl.points()
    >>> found = bowl.fitted(points, ((points - [0.1, -0.2]) ** 2).sum(1), 0.04)
    >>> found.centre.round(6).tolist(), found.lengths.round(6).tolist()
    ([0.1, -0.2], [0.2, 0.2])
    """

    centre: np.ndarray
    axes: np.ndarray
    lengths: np.ndarray

    @classmethod
    def around(cls, count: int, reach: float) -> "Valley":
        """A first guess, along the coordinates."""
        return cls(np.zeros(count), np.eye(count), np.full(count, reach))

    def points(self) -> np.ndarray:
        """Points [D, P] to fit: the centre, both directions of each axis, and between each two axes."""
        unit = np.eye(len(self.centre))
        pairs = [(unit[i], unit[j]) for i in range(len(unit)) for j in range(i)]
        between = [(one + sign * other) / np.sqrt(2) for one, other in pairs for sign in (1, -1)]
        ways = np.array([*unit, *between])
        moves = np.vstack([np.zeros((1, len(unit))), ways, -ways])
        return self.centre + moves * self.lengths @ self.axes.T

    def fitted(self, points: np.ndarray, values: np.ndarray, rise: float) -> "Valley":
        """The valley of a quadratic fitted to values at points, which rises by `rise` over its lengths.

        Values far above the least say little about the valley and have little weight.
        """
        seen = np.isfinite(values)
        x, y, count = points[seen] - self.centre, values[seen], len(self.centre)
        first, second = np.triu_indices(count)
        columns = np.hstack([np.ones((len(x), 1)), x, x[:, first] * x[:, second]])
        if len(x) < columns.shape[1]:
            return self
        weight = 1 / (1 + (y - y.min()) / rise)
        found = np.linalg.lstsq(columns * weight[:, None], y * weight, rcond=None)[0]
        half = np.zeros((count, count))
        half[first, second] = found[1 + count :]
        curvature, axes = np.linalg.eigh(half + half.T)
        curved = np.maximum(curvature, 1e-12)
        lengths = np.clip(np.sqrt(2 * rise / curved), SHORTEST, LONGEST)
        slopes = axes.T @ found[1 : 1 + count]
        # Along an axis that does not curve upwards, the minimum is as far away as allowed.
        moves = -slopes / np.maximum(curved, np.abs(slopes) / FURTHEST)
        return Valley(self.centre + axes @ moves, axes, lengths)
