"""Gittins indices of a Bernoulli arm with a Beta(a, b) belief.

An index is the value λ of a known arm that is worth as much, pulled forever, as pulling the unknown arm
first. With D the advantage of the unknown arm over receiving λ in every round,

    D(s, N) = max(0, Q),  Q = p − λ + β [p D(s + 1, N + 1) + (1 − p) D(s, N + 1)],

after s ones in N pulls, p = (a + s) / (a + b + N). Q is convex and falls in λ; the index of (s, N) is its
root. One backward pass handles all λ of a grid.

With m rounds left, the recursion depends only on c = N + m, so each c is a pass of its own whose row of
states stays in a core's cache, and passes run in parallel. A pass skips states where D is 0 for all its λ,
and those where D is m (p − λ), that of never stopping, to the precision of float32.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np

from gradband.core.errors import InputError, number, whole
from gradband.solvers import layout
from gradband.solvers.compiled import compiled
from gradband.solvers.layout import check_shapes, size

place = compiled(inline="always")(layout.place)

LANES = 64  # values of λ in one pass
ROUNDING = 1e-6  # relative error of float32, and a little more
GRID = 3072  # values of λ between 0 and 1
SCALE = 65535  # an index in [0, 1] is stored as a 16-bit fixed-point number
DEEPEST = 50_000  # rows of a discounted pass
SETTINGS = {"method": 2, "grid": GRID, "scale": SCALE}  # identify a table, with a, b and n


def finite_horizon(
    a: float, b: float, horizon: int, workers: int = 1, progress: Callable[[float], None] | None = None
) -> tuple[np.ndarray, float]:
    """Indices of all states that n rounds can reach (uint16, × 65535), and a bound on their error.

    >>> table, error = finite_horizon(1, 1, horizon=10)
    >>> len(table) == size(10), error < 1e-4
    (True, True)
    """
    check_shapes([a], [b])
    whole("horizon", horizon)
    table = np.zeros(size(horizon), np.uint16)
    errors = np.zeros(horizon + 1, np.float32)
    known, done = _known_arms(), 0.0
    longest_first = range(horizon, 0, -1)  # so that the workers finish together
    total = float(sum(c**2 for c in longest_first))
    with ThreadPoolExecutor(workers) as pool:
        passes = {pool.submit(_fill, a, b, c, horizon, known, table, errors): c for c in longest_first}
        for future in as_completed(passes):
            future.result()
            done += passes[future] ** 2
            if progress:
                progress(done / total)
    return table, float(errors.max()) + 0.5 / SCALE


def diagonal(a: float, b: float, last: int, depth: int = 0) -> np.ndarray:
    """Indices of all states whose pulls N and rounds left m ≤ `depth` add up to `last`.

    The index of (s, N) is in place N (N + 1) / 2 + s, and NaN where m > `depth`; a depth of 0 is no limit.

    >>> float(diagonal(1, 1, last=2)[0].round(4))  # the unpulled arm with two rounds left
    0.5556
    """
    check_shapes([a], [b])
    whole("last", last)
    found = np.full(last * (last + 1) // 2, np.nan)
    _pass(float(a), float(b), last, depth or last, _known_arms(), found, np.zeros(last + 1, np.float32))
    return found


def discounted(a: float, b: float, discount: float) -> float:
    """The Gittins index of Beta(a, b) when the reward of round t is discounted by βᵗ, β = `discount`.

    The pass begins at a depth N where β^N / (1 − β) < 1e-8, taking the arm's mean as known.

    >>> round(discounted(1, 1, discount=0.9), 4)
    0.7029
    """
    check_shapes([a], [b])
    if not 0 < number("discount", discount) < 1:
        raise InputError(f"discount must be between 0 and 1, not {discount!r}")
    depth = math.ceil(math.log(1e-8 * (1 - discount)) / math.log(discount))
    if depth > DEEPEST:
        raise InputError(f"discount must be at most .999, not {discount}: it needs {depth} states per row")
    low, high = 0.0, 1.0
    while high - low > 1e-9:
        known = np.linspace(low, high, LANES)
        k = int((_root_advantage(a, b, discount, depth, known) > 0).sum())
        low, high = known[max(k - 1, 0)], known[min(k, LANES - 1)]
    return float(low + high) / 2


@compiled()
def _root_advantage(a: float, b: float, discount: float, depth: int, known: np.ndarray) -> np.ndarray:
    """Q before the first pull, for each λ of `known`, in double precision."""
    advantage = np.empty((depth + 1, LANES))
    for ones in range(depth + 1):
        mean = (a + ones) / (a + b + depth)
        advantage[ones] = np.maximum((mean - known) / (1 - discount), 0)
    for pulls in range(depth - 1, -1, -1):
        for ones in range(pulls + 1):
            p = (a + ones) / (a + b + pulls)
            up, stay = advantage[ones + 1], advantage[ones]
            for k in range(LANES):
                value = p - known[k] + discount * (p * up[k] + (1 - p) * stay[k])
                stay[k] = value if value > 0 or pulls == 0 else 0.0
    return advantage[0]


def _known_arms() -> np.ndarray:
    """Values of λ, denser towards 0 and 1, where indices curve most, with two beyond each end."""
    x = np.arange(-2, GRID + 3) / GRID
    inside = np.sin(np.pi / 2 * np.clip(x, 0, 1)) ** 2
    return (inside + np.minimum(x, 0) / GRID + np.maximum(x - 1, 0) / GRID).astype(np.float32)


@compiled()
def _fill(
    a: float, b: float, last: int, horizon: int, known: np.ndarray, table: np.ndarray, errors: np.ndarray
) -> None:
    """Fills in a table's indices of all states (s, N, m) with N + m = `last`, and their greatest error."""
    found = np.zeros(last * (last + 1) // 2)
    _pass(a, b, last, last, known, found, errors)
    for pulls in range(last):
        first, row = place(horizon - last + pulls, pulls, 0), pulls * (pulls + 1) // 2
        for ones in range(pulls + 1):
            table[first + ones] = round(found[row + ones] * SCALE)


@compiled(fastmath={"contract", "nnan", "nsz"})
def _pass(
    a: float, b: float, last: int, depth: int, known: np.ndarray, found: np.ndarray, errors: np.ndarray
) -> None:
    """Finds the indices of all (s, N, m) with N + m = `last` and m ≤ `depth`, and their greatest error."""
    q = np.empty(LANES, np.float32)
    advantage = np.empty((last + 2, LANES), np.float32)
    # Blocks of λ overlap by three values, the neighbours that bracket a root.
    for block in range(0, len(known) - 3, LANES - 3):
        first = min(block, len(known) - LANES)
        grid = known[first : first + LANES]
        advantage[:] = 0
        lowest = last  # ones below which the advantage is 0 for all λ of the block
        highest = last  # ones above which one never stops: rows beyond are not updated
        for pulls in range(last - 1, last - depth - 1, -1):
            start = max(0, min(lowest - 1, math.floor(grid[0] * (a + b + pulls) - a)))
            lowest = pulls + 1
            ones = highest
            for ones in range(start, pulls + 1):
                while highest < ones + 1:
                    highest += 1
                    p = np.float32((a + highest) / (a + b + pulls + 1))
                    advantage[highest] = (last - pulls - 1) * (p - grid)
                p = np.float32((a + ones) / (a + b + pulls))
                up, stay = advantage[ones + 1], advantage[ones]
                for k in range(LANES):
                    value = p - grid[k] + (p * up[k] + (1 - p) * stay[k])
                    q[k] = value
                    stay[k] = value if value > 0 else np.float32(0)
                if q[0] > 0:
                    lowest = min(lowest, ones)
                if q[1] > 0 and q[LANES - 2] <= 0:
                    k = 1
                    while q[k + 1] > 0:
                        k += 1
                    # Q is convex: its root lies left of the chord's and right of the next secants'.
                    high = _root(grid, q, k, k + 1)
                    low = max(_root(grid, q, k - 1, k), _root(grid, q, k + 1, k + 2))
                    found[pulls * (pulls + 1) // 2 + ones] = min(max((low + high) / 2, 0), 1)
                    errors[last] = max(errors[last], (high - low) / 2)
                never = (last - pulls) * (p - grid[LANES - 1])
                if q[LANES - 1] - never <= ROUNDING * never:
                    break
            highest = ones


@compiled(inline="always")
def _root(x: np.ndarray, y: np.ndarray, i: int, j: int) -> float:
    """Where the line through points i and j is 0."""
    return x[i] + (x[j] - x[i]) * (y[i] / (y[i] - y[j]))
