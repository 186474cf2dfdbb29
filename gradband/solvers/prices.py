"""A bound from prices of rounds: arms that may be pulled all at once, each for the price λ_t in round t.

For any prices the best policy of n rounds earns at most Σ_t λ_t + Σ_i J_i(λ), with J_i what arm i earns by
itself beyond the prices that it pays: its pulls are no longer limited to one arm per round. The bound is
convex in λ, with the derivative 1 − E[pulls in round t]. It is good if rounds are few for the arms.
"""

import numpy as np

from gradband.solvers.compiled import compiled

ITERATIONS = 400


def best_prices(
    shapes: np.ndarray, counts: np.ndarray, rounds: int, iterations: int = ITERATIONS
) -> tuple[np.ndarray, float]:
    """Prices [n], about the best ones, and the bound that they give.

    >>> prices, reward = best_prices(np.array([[1.0, 1.0]]), np.array([10]), rounds=20)
    >>> bool(20 * 10 / 11 - reward > 3.45)
    True
    """
    means = shapes[:, 0] / shapes.sum(1)
    spread = float(np.sqrt(means * (1 - means) / (shapes.sum(1) + 1)).max())
    prices = np.linspace(means.max() + spread, means.max() + spread / 2, rounds)
    best, found = np.inf, prices
    first, second = np.zeros(rounds), np.zeros(rounds)
    for i in range(iterations):
        worth, slope = float(prices.sum()), np.ones(rounds)
        for (a, b), count in zip(shapes, counts, strict=True):
            value, pulls = _one_arm(float(a), float(b), prices)
            worth, slope = worth + count * value, slope - count * pulls
        if worth < best:
            best, found = worth, prices
        first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
        step = 0.1 * spread * (1 - i / iterations) ** 2
        scale = np.sqrt(second / (1 - 0.99 ** (i + 1))) + 1e-9
        prices = prices - step * first / (1 - 0.9 ** (i + 1)) / scale
    return found, best


def later(shape: tuple[float, float], prices: np.ndarray, first: int) -> np.ndarray:
    """What an arm earns from round `first` on, for its states with up to as many pulls, by their code."""
    return _values(*shape, prices, first)


@compiled()
def _back(a: float, b: float, prices: np.ndarray, t: int, most: int, worth: np.ndarray) -> None:
    """From what states are worth after round t to what they are worth before it, for up to `most` pulls."""
    for pulls in range(most + 1):
        row = pulls * (pulls + 1) // 2
        for ones in range(pulls + 1):
            p = (a + ones) / (a + b + pulls)
            lost, won = worth[row + ones + pulls + 1], worth[row + ones + pulls + 2]
            worth[row + ones] = max(worth[row + ones], p - prices[t] + p * won + (1 - p) * lost)


@compiled()
def _values(a: float, b: float, prices: np.ndarray, first: int) -> np.ndarray:
    rounds = len(prices)
    worth = np.zeros((rounds + 1) * (rounds + 2) // 2)
    for t in range(rounds - 1, first - 1, -1):
        _back(a, b, prices, t, t, worth)
    return worth[: (first + 1) * (first + 2) // 2].copy()


@compiled()
def _one_arm(a: float, b: float, prices: np.ndarray) -> tuple[float, np.ndarray]:
    """What an arm earns by itself, and how likely it is pulled in each round."""
    rounds = len(prices)
    worth = np.zeros((rounds + 1) * (rounds + 2) // 2)
    start = np.zeros(rounds + 1, np.int64)
    for t in range(rounds):
        start[t + 1] = start[t] + (t + 1) * (t + 2) // 2
    pull = np.zeros(start[rounds], np.bool_)
    for t in range(rounds - 1, -1, -1):
        size = (t + 1) * (t + 2) // 2
        before = worth[:size].copy()
        _back(a, b, prices, t, t, worth)
        for i in range(size):
            pull[start[t] + i] = worth[i] > before[i]
    chance, pulled = np.zeros(len(worth)), np.zeros(rounds)
    chance[0] = 1.0
    for t in range(rounds):
        for pulls in range(t, -1, -1):
            row = pulls * (pulls + 1) // 2
            for ones in range(pulls + 1):
                c = chance[row + ones]
                if c > 0 and pull[start[t] + row + ones]:
                    p = (a + ones) / (a + b + pulls)
                    chance[row + ones] = 0.0
                    chance[row + ones + pulls + 1] += c * (1 - p)
                    chance[row + ones + pulls + 2] += c * p
                    pulled[t] += c
    return worth[0], pulled
