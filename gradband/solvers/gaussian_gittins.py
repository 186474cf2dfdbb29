"""Gittins indices of a normal arm for a finite horizon.

Rewards are N(μ, 1), and the belief after k pulls is N(z, 1/p) with precision p = `precision` + k. With the
next pull z moves by a normal step of variance 1/p − 1/(p + 1). With D the advantage of the arm over a known
one that pays 0, and R rounds left,

    D(z, k) = max(0, Q),  Q = z + E D(z + step, k + 1),

and the arm is worth pulling above the root of Q. By shift invariance the index of (z, k) is z minus that
root, so one table of roots serves all means, and all rewards in units of their standard deviation.

With R rounds left the recursion depends only on c = k + R, so each c is a pass of its own. Beliefs are on a
grid no coarser than the smallest step of all. Expectations are sums over the grid's own points, whose error
for smooth functions falls like exp(−2π²/δ²), δ being the distance of nodes in steps' standard deviations.
Beyond a few standard deviations of what is still to be learned, D is 0 or R z.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np

from gradband.core.errors import positive, whole
from gradband.solvers.compiled import compiled
from gradband.solvers.layout import pair_place, pairs

place = compiled(inline="always")(pair_place)

REACH = 5.0  # standard deviations of a step, and of all that is still to be learned
APART = 0.4  # distance of nodes, in standard deviations of a step,
NARROW = 0.2  # and of all that is still to be learned after it
FINE = 1.25  # points of the grid in the smallest step
SETTINGS = {"method": 1, "reach": REACH, "apart": APART, "narrow": NARROW, "fine": FINE}
"""identify a table, with the precision and n"""


def finite_horizon(
    precision: float, horizon: int, workers: int = 1, progress: Callable[[float], None] | None = None
) -> np.ndarray:
    """Index minus mean of all states (t, k) that n rounds can reach, in standard deviations of a reward.

    `precision` is that of the prior: the variance of a reward over that of means.

    >>> table = finite_horizon(1.0, horizon=3)
    >>> print(table[pair_place(1, 0)].round(3), table[pair_place(2, 2)])  # two rounds are left, and one
    0.195 0.0
    """
    positive("precision", precision)
    whole("horizon", horizon)
    table = np.zeros(pairs(horizon), np.float32)
    done, total = 0.0, float(sum(c**1.5 for c in range(1, horizon + 1)))
    with ThreadPoolExecutor(workers) as pool:
        passes = {pool.submit(_pass, precision, c, horizon, table): c for c in range(horizon, 1, -1)}
        for future in as_completed(passes):
            future.result()
            done += passes[future] ** 1.5
            if progress:
                progress(done / total)
    return table


@compiled(fastmath={"contract", "nnan", "nsz", "reassoc"})
def _pass(precision: float, last: int, horizon: int, table: np.ndarray) -> None:
    """Fills in the roots of all states (k, R) with k + R = `last` and R ≥ 2; with R = 1 they are 0."""
    end = precision + last - 1  # what the last pull shows comes too late
    h = 1 / np.sqrt((end - 1) * end) / FINE
    widest, first = np.sqrt(1 / precision - 1 / end), 1 / np.sqrt(precision * (precision + 1))
    zero = int(REACH * (widest + first) * (1 + APART) / h) + 8  # where z = 0 is
    top_of_all = 2 * zero
    advantage, q = np.zeros(top_of_all + 1, np.float32), np.zeros(top_of_all + 1, np.float32)
    high = root = zero
    advantage[zero] = np.float32(h / 12)
    for pulls in range(last - 2, -1, -1):
        p, left = precision + pulls, last - pulls
        step, rest = 1 / np.sqrt(p * (p + 1)), np.sqrt(1 / p - 1 / end)
        later = np.sqrt(max(1 / (p + 1) - 1 / end, 0.0))
        apart = max(1, int(min(APART * step, NARROW * later) / h))
        count = int(REACH * step / (apart * h)) + 1
        top = zero + int(REACH * rest / h) + 2
        low = max(root - int(REACH * step / h), zero - int(REACH * rest / h)) - 2
        for i in range(high + 1, min(top + count * apart, top_of_all) + 1):
            advantage[i] = (left - 1) * (i - zero) * h  # it is never left
        total = 0.0
        for j in range(-count, count + 1):
            total += np.exp(-((j * apart * h / step) ** 2) / 2)
        for i in range(low, top + 1):
            q[i] = (i - zero) * h
        for j in range(-count, count + 1):
            weight = np.float32(np.exp(-((j * apart * h / step) ** 2) / 2) / total)
            by = j * apart
            for i in range(max(low, root - by), min(top, top_of_all - by) + 1):
                q[i] += weight * advantage[i + by]
        root = low + 1
        while q[root] <= 0:
            root += 1
        advantage[low:root] = 0
        for i in range(root, top + 1):
            advantage[i] = q[i]
        share = _share(q[root - 1], q[root], q[root + 1])
        # A sum over nodes errs where the slope jumps, by an amount that is known (Euler and Maclaurin).
        if apart == 1:
            advantage[root] += (q[root] - q[root - 1]) * (1 / 12 - share * (1 - share) / 2)
        high = top
        table[place(horizon - left, pulls)] = (zero - root + share) * h


@compiled(inline="always")
def _share(below: float, at: float, above: float) -> float:
    """How far left of the middle one of three points their parabola is 0, between it and the left one."""
    slope, bend = (above - below) / 2, (above - 2 * at + below) / 2
    inner = slope * slope - 4 * bend * at
    return min(max(2 * at / (slope + np.sqrt(max(inner, 0.0))), 0.0), 1.0)
