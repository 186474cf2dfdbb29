"""When to stop pulling a Gaussian arm that costs λ per pull, if round t is discounted by γᵗ, γ = 1 − 1/m.

A posterior N(x + λ, v_N) after N pulls is worth g_N(x) = max(0, x + γ E g_{N+1}(x + s_N Z)), with
s_N² = v_N − v_{N+1}: only the distance x from the charge matters, so one backward pass serves all charges.
g is kept on a grid of x / √v_N and is linear between its points; being convex, it errs upwards. So does the
table of E(u + Z)⁺, which is convex too. At a depth that bounds the work, the mean is revealed.
"""

import math

import numpy as np

from gradband.solvers.compiled import compiled

REACH = 8.0  # posterior standard deviations on either side of the charge
POINTS = 1601  # of the grid
TABLE = 4096  # cells of the table of E(u + Z)⁺ for |u| ≤ REACH


def advantages(
    ratio: float, rounds: int, depth: int, points: int = POINTS
) -> tuple[np.ndarray, np.ndarray]:
    """Distances x of the prior mean from a charge, and J, for a prior of variance 1 and m = `rounds`.

    `ratio` is the variance of a reward's noise, in units of the prior's variance. Left of the grid J is 0
    or less than the first value; right of it, it grows by m per unit.
    """
    places = np.linspace(-REACH, REACH, points)
    knots = np.linspace(-REACH, REACH, TABLE + 1)
    return places, _pass(ratio, rounds, depth, places, positive_part(knots))


def positive_part(u: np.ndarray) -> np.ndarray:
    """E(u + Z)⁺ for standard normal Z."""
    from scipy.special import ndtr  # takes a while to import

    return u * ndtr(u) + np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)


@compiled(fastmath={"contract", "nsz"})
def _pass(ratio: float, rounds: int, depth: int, places: np.ndarray, table: np.ndarray) -> np.ndarray:
    count, discount = len(places), 1 - 1 / rounds
    scale = len(table) - 1
    sd = math.sqrt(1 / (1 + depth / ratio))
    worth, kinks, sums = np.empty(count), np.empty(count), np.empty((2, count + 1))
    for i in range(count):
        at = min(int((places[i] + REACH) / (2 * REACH) * scale), scale - 1)
        share = (places[i] + REACH) / (2 * REACH) * scale - at
        worth[i] = rounds * sd * ((1 - share) * table[at] + share * table[at + 1])
    for pulls in range(depth - 1, -1, -1):
        before = math.sqrt(1 / (1 + pulls / ratio))
        move = math.sqrt(max(before**2 - sd**2, 0.0))
        # g is its first value, plus positive parts (x − x_j)⁺ times the kinks at x_j.
        step, slope = (places[1] - places[0]) * sd, 0.0
        sums[0, 0], sums[1, 0] = 0.0, 0.0
        for j in range(count):
            right = rounds if j == count - 1 else (worth[j + 1] - worth[j]) / step
            kinks[j] = max(right - slope, 0.0)
            slope = max(right, slope)
            sums[0, j + 1] = sums[0, j] + kinks[j]
            sums[1, j + 1] = sums[1, j] + kinks[j] * places[j] * sd
        base, tail = worth[0], table[0] * move
        for i in range(count):
            x = places[i] * before
            # Kinks that lie REACH moves to the left are passed for sure, those to the right never.
            first = min(max(int(math.floor((x - REACH * move - places[0] * sd) / step)) + 1, 0), count)
            last = min(max(int(math.ceil((x + REACH * move - places[0] * sd) / step)), first), count)
            value = base + x * sums[0, first] - sums[1, first] + tail * sums[0, count]
            for j in range(first, last):
                place = ((x - places[j] * sd) / move + REACH) / (2 * REACH) * scale
                at = min(max(int(place), 0), scale - 1)
                value += kinks[j] * move * (table[at] + (place - at) * (table[at + 1] - table[at]))
            worth[i] = max(0.0, x + discount * value)
        sd = before
    return worth
