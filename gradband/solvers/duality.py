"""How far play on given paths of rewards is below the best possible: the gap of an information relaxation.

With J^c the value of an arm by itself, at a charge c per pull and for up to n pulls, a martingale over the
arm's own clock is subtracted from its posterior means μ̂:

    φ(k) = Σ_{l<k} [μ̂_l − J^c(l + 1, s_{l+1}) + E J^c(l + 1, ·)].

No policy gains or loses by that on average, so E max_{Σ k_i = n} Σ φ_i(k_i) bounds the best reward, and
minus Σ φ_i(N_i) at a policy's own pulls N_i it bounds what the policy lacks. c may depend on all that is
known before a pull, and on all that other arms show: here it is half the least index of the arm so far, and
half the mean of the n greatest charges of the others.
"""

import numpy as np

from gradband.solvers.compiled import compiled

CHARGES = 128  # of the table
BINS = 512  # of charges, to find the n greatest


def table(a: float, b: float, rounds: int, charges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """J of all states by code and charge, [states, charges], and the states' indices, where J vanishes."""
    worth = np.zeros(((rounds + 1) * (rounds + 2) // 2, len(charges)), np.float32)
    _fill(a, b, rounds, charges, worth)
    last = np.clip((worth > 0).sum(1) - 1, 1, len(charges) - 2)  # the last charge that is worth paying
    row, step = np.arange(len(worth)), charges[1] - charges[0]
    fall = np.maximum(worth[row, last - 1] - worth[row, last], 1e-12)
    index = charges[last] + step * np.minimum(worth[row, last] / fall, 1.0)
    return worth, index.astype(np.float32)


@compiled()
def _fill(a: float, b: float, rounds: int, charges: np.ndarray, worth: np.ndarray) -> None:
    for pulls in range(rounds - 1, -1, -1):
        row, below = pulls * (pulls + 1) // 2, (pulls + 1) * (pulls + 2) // 2
        for ones in range(pulls + 1):
            p = (a + ones) / (a + b + pulls)
            lost, won = worth[below + ones], worth[below + ones + 1]
            for g in range(len(charges)):
                value = p - charges[g] + p * won[g] + (1 - p) * lost[g]
                worth[row + ones, g] = value if value > 0 else 0.0


@compiled()
def gaps(
    played: np.ndarray,
    means: np.ndarray,
    uniform: np.ndarray,
    shapes: np.ndarray,
    kind_of: np.ndarray,
    tables: tuple,
    found: np.ndarray,
) -> None:
    """Fills `found` [2, m] with the greatest Σ φ and the policy's own, for instances with means [m, K].

    `played` [m, 2, n] has the arms that a policy pulled and its rewards. Paths go on behind the policy's
    last pull with draws from `uniform` [m, K, n].
    """
    charges, worth, index = tables
    instances, arms = means.shape
    rounds = played.shape[2]
    for i in range(instances):
        pulls = np.zeros(arms, np.int64)
        path = np.zeros((arms, rounds + 1), np.int64)  # ones
        for t in range(rounds):
            arm = played[i, 0, t]
            path[arm, pulls[arm] + 1] = path[arm, pulls[arm]] + played[i, 1, t]
            pulls[arm] += 1
        charge = np.empty((arms, rounds), np.float32)
        for arm in range(arms):
            for step in range(pulls[arm], rounds):
                path[arm, step + 1] = path[arm, step] + (uniform[i, arm, step] < means[i, arm])
            least = np.float32(np.inf)
            for step in range(rounds):
                code = step * (step + 1) // 2 + path[arm, step]
                least = min(least, index[kind_of[arm], code])
                charge[arm, step] = least
        other = _others(charge, rounds)
        sums = np.empty((arms, rounds + 1), np.float32)
        for arm in range(arms):
            kind = kind_of[arm]
            a, b = shapes[kind, 0], shapes[kind, 1]
            total = 0.0
            sums[arm, 0] = 0.0
            for step in range(rounds):
                ones = path[arm, step]
                p = (a + ones) / (a + b + step)
                below = (step + 1) * (step + 2) // 2 + ones
                luck = 0.0
                for c in (charge[arm, step], other[arm]):
                    lost, won = _at(charges, worth[kind, below], c), _at(charges, worth[kind, below + 1], c)
                    expected = p * won + (1 - p) * lost
                    luck += 0.5 * ((won if path[arm, step + 1] > ones else lost) - expected)
                total += p - luck
                sums[arm, step + 1] = total
        own = 0.0
        for arm in range(arms):
            own += sums[arm, pulls[arm]]
        found[0, i], found[1, i] = _greatest(sums), own


@compiled(inline="always")
def _at(charges: np.ndarray, row: np.ndarray, c: float) -> float:
    """J between the charges of an even grid."""
    last = len(charges) - 1
    place = (c - charges[0]) / (charges[last] - charges[0]) * last
    at = min(max(int(place), 0), last - 1)
    return row[at] + (place - at) * (row[at + 1] - row[at])


@compiled()
def _others(charge: np.ndarray, rounds: int) -> np.ndarray:
    """The mean of the n greatest charges of all other arms [K]."""
    arms = len(charge)
    low, high = charge.min(), charge.max()
    scale = (BINS - 1) / max(high - low, 1e-9)
    count = np.zeros((arms + 1, BINS))
    for arm in range(arms):
        for step in range(rounds):
            place = int((charge[arm, step] - low) * scale)
            count[arm, place] += 1
            count[arms, place] += 1
    found = np.empty(arms, np.float32)
    for arm in range(arms):
        left, total = float(rounds), 0.0
        for place in range(BINS - 1, -1, -1):
            taken = min(left, count[arms, place] - count[arm, place])
            total += taken * (low + place / scale)
            left -= taken
        found[arm] = total / max(rounds - left, 1.0)
    return found


@compiled(fastmath=True)
def _greatest(sums: np.ndarray) -> float:
    """max Σ φ_i(k_i) over all whole k with Σ k_i = n."""
    arms, size = sums.shape
    best = sums[0].copy()
    for arm in range(1, arms - 1):
        after = np.full(size, np.float32(-np.inf))
        row = sums[arm]
        for k in range(size):
            base = best[k]
            for j in range(size - k):
                after[k + j] = max(after[k + j], base + row[j])
        best = after
    if arms == 1:
        return best[size - 1]
    most = np.float32(-np.inf)
    for k in range(size):
        most = max(most, best[k] + sums[arms - 1, size - 1 - k])
    return float(most)
