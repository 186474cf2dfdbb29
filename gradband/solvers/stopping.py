"""When to stop pulling a Bernoulli arm that costs λ per pull, if round t is discounted by γᵗ, γ = 1 − 1/m.

    J(s, N) = max(0, p − λ + γ [p J(s + 1, N + 1) + (1 − p) J(s, N + 1)]),  p = (a + s) / (a + b + N),

after s ones in N pulls. At a depth that bounds the work, the arm's mean μ is revealed, J = m E(μ − λ)⁺:
knowing more never makes stopping worse, so all J are at least the true ones. One backward pass handles a
block of λ. It skips states where J is 0 for all of them, and those where J is m (p − λ), that of never
stopping; `SLACK` bounds what this and rounding may change.
"""

import functools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from gradband.solvers.compiled import compiled
from gradband.solvers.layout import code

LANES = 32  # values of λ in one pass
SLACK = 1e-12  # of m, by which J may be too low
NEGLIGIBLE = 1e-13  # of m, what skipping changes at most


def advantages(
    shape: tuple[float, float], rounds: int, depth: int, charges: np.ndarray, kept: int, workers: int = 1
) -> np.ndarray:
    """J of all states with up to `kept` pulls, by `code`, and all charges λ: [states, charges].

    For an arm with a Beta(a, b) belief and m = `rounds`; its mean is revealed after `depth` pulls.

    >>> found = advantages((1.0, 1.0), 10, 40, np.array([0.0, 0.5, 1.0]), kept=1)
    >>> found[0].round(6)  # never stop, worth 10 times the mean, up to 0
    array([5.      , 0.839188, 0.      ])
    """
    a, b = shape
    parts = [charges[i : i + LANES] for i in range(0, len(charges), LANES)]
    padded = [np.append(part, np.repeat(part[-1], LANES - len(part))) for part in parts]
    above = np.array([_below_at_the_top(a, b, depth, part) for part in padded])
    logs = _log_normalisers(a, b, depth)
    found = np.empty((len(padded), code(kept + 1, 0), LANES))
    with ThreadPoolExecutor(workers) as pool:
        jobs = [
            pool.submit(_pass, shape, rounds, depth, part, logs, above[i], found[i])
            for i, part in enumerate(padded)
        ]
        for job in jobs:
            job.result()
    whole = np.concatenate(list(found), axis=1)[:, : len(charges)]
    return np.ascontiguousarray(whole)


def _below_at_the_top(a: float, b: float, depth: int, charges: np.ndarray) -> np.ndarray:
    """P(μ ≤ λ) after as many ones as pulls."""
    from scipy.special import betainc  # takes a while to import

    return betainc(a + depth, b, charges)


@functools.lru_cache(maxsize=8)
def _log_normalisers(a: float, b: float, depth: int) -> np.ndarray:
    """−log(α B(α, β)) for α = a + s, β = b + N − s, s = 0 … N."""
    from scipy.special import betaln

    ones = np.arange(depth + 1.0)
    return -betaln(a + ones, b + depth - ones) - np.log(a + ones)


@compiled(fastmath={"contract", "nsz"})
def _pass(
    shape: tuple[float, float],
    rounds: int,
    depth: int,
    charges: np.ndarray,
    logs: np.ndarray,
    top: np.ndarray,
    found: np.ndarray,
) -> None:
    """J for one block of charges, which do not decrease, into `found` [states, LANES]."""
    a, b = shape
    rest = np.empty((depth + 2, LANES))
    low, high = _reveal(shape, rounds, depth, charges, logs, top, rest)
    keep = 0
    while (keep + 1) * (keep + 2) // 2 < len(found):
        keep += 1
    discount, last = 1 - 1 / rounds, charges[LANES - 1]
    if depth <= keep:
        _store(shape, rounds, depth, (low, high), charges, rest, found)
    for pulls in range(depth - 1, -1, -1):
        start = max(0, low - 1)
        low = pulls + 1
        ones = min(high, pulls)
        for ones in range(start, pulls + 1):
            while high < ones + 1:
                high += 1
                p = (a + high) / (a + b + pulls + 1)
                for k in range(LANES):
                    rest[high, k] = rounds * (p - charges[k])
            p = (a + ones) / (a + b + pulls)
            up, stay = rest[ones + 1], rest[ones]
            for k in range(LANES):
                value = p - charges[k] + discount * (p * up[k] + (1 - p) * stay[k])
                stay[k] = value if value > 0 else 0.0
            if stay[0] > 0:
                low = min(low, ones)
            if stay[LANES - 1] - rounds * (p - last) <= NEGLIGIBLE * rounds:
                break
        high = ones
        if pulls <= keep:
            _store(shape, rounds, pulls, (low, high), charges, rest, found)


@compiled()
def _reveal(
    shape: tuple[float, float],
    rounds: int,
    depth: int,
    charges: np.ndarray,
    logs: np.ndarray,
    top: np.ndarray,
    rest: np.ndarray,
) -> tuple[int, int]:
    """m E(μ − λ)⁺ of the states at the depth, and the first and last of those that are not trivial.

    P(μ ≤ λ) follows from that of one more one and one zero less by a positive term: no digits are lost.
    """
    a, b = shape
    below = top.copy()
    term = np.zeros(LANES)
    low, high = depth + 1, depth
    for ones in range(depth, -1, -1):
        alpha, beta = a + ones, b + depth - ones
        mean = alpha / (alpha + beta)
        most, excess = 0.0, 0.0
        for k in range(LANES):
            x = charges[k]
            term[k] = 0.0
            if 0 < x < 1:
                term[k] = math.exp(logs[ones] + alpha * math.log(x) + (beta - 1) * math.log1p(-x))
            if ones < depth:
                below[k] += term[k]
            less = max(below[k] - term[k] * (1 - x), 0.0)  # P(μ ≤ λ) with α + 1 for α
            value = rounds * (mean * max(1 - less, 0.0) - x * max(1 - below[k], 0.0))
            rest[ones, k] = max(value, 0.0, rounds * (mean - x))
            most = max(most, rest[ones, k])
            excess = max(excess, rest[ones, k] - rounds * (mean - x))
        if excess <= NEGLIGIBLE * rounds:
            high = ones
        if most > NEGLIGIBLE * rounds:
            low = ones
        else:
            break
    for ones in range(low):
        for k in range(LANES):
            rest[ones, k] = 0.0
    return low, high


@compiled()
def _store(
    shape: tuple[float, float],
    rounds: int,
    pulls: int,
    between: tuple[int, int],
    charges: np.ndarray,
    rest: np.ndarray,
    found: np.ndarray,
) -> None:
    """J of all states with so many pulls into `found`: those `between` from `rest`; others are trivial."""
    (a, b), (low, high) = shape, between
    start = pulls * (pulls + 1) // 2
    for ones in range(pulls + 1):
        p = (a + ones) / (a + b + pulls)
        for k in range(LANES):
            value = rest[ones, k] if low <= ones <= high else 0.0
            found[start + ones, k] = rounds * (p - charges[k]) if ones > high else value


def reach(rounds: int, kept: int, states: float, charges: int) -> int:
    """The depth at which an arm's mean is revealed: four times the rounds, or what the work allows.

    A pass over all charges visits about half the square of the depth in states, times `LANES`.
    """
    most = math.sqrt(2 * states / max(charges, 1)) if states < math.inf else math.inf
    return kept + int(min(4 * rounds, max(most, 50))) + 1


def kinds_of(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different (a, b) [kinds, 2], and how many arms have each."""
    shapes, count = np.unique(np.stack([a, b], 1), axis=0, return_counts=True)
    return shapes, count
