"""The Bayes optimum of two Bernoulli arms with independent Beta priors, by backward induction.

After T₀ + T₁ = t pulls, the value of the remaining rounds is a function of (T₀, s₀, s₁), where s are ones:

    V_t = max_i m_i + m_i V_{t+1}(one more one of i) + (1 − m_i) V_{t+1}(one more zero of i),

m_i = (a_i + s_i) / (a_i + b_i + T_i). One array of n (n + 1)(n + 2)/6 numbers holds V: each layer, in order
of T₀ and s₁, overwrites the one after it. The work is n⁴/24 such steps.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from gradband.core.errors import whole
from gradband.solvers import layout
from gradband.solvers.compiled import compiled
from gradband.solvers.layout import check_shapes, size

place = compiled(inline="always")(layout.place)
cell = compiled(inline="always")(layout.cell)

TIE = 1e-10  # smaller advantages are rounding: arm 0 is pulled
LONGEST = 1450  # rounds: a policy file of a gigabyte


class _Work(NamedTuple):
    """What all layers share: the priors, the arrays that they write, and where T₀'s values start."""

    a: np.ndarray
    b: np.ndarray
    rounds: int
    weight: float
    starts: np.ndarray
    value: np.ndarray
    table: np.ndarray


def memory(horizon: int) -> int:
    """Bytes that `solve` needs, with a second copy of the policy to play it."""
    return size(horizon) * (8 + 2 + 2) + 16 * horizon**2


def solve(
    a: Sequence[float],
    b: Sequence[float],
    horizon: int,
    workers: int = 1,
    progress: Callable[[float], None] | None = None,
    afterwards: int = 0,
) -> tuple[float, np.ndarray]:
    """The optimal expected reward of n rounds, and the optimal policy as a table of thresholds (int16).

    Before round t, after s₀ ones in T₀ pulls of arm 0, the policy pulls arm 0 if s₁ is below
    `table[place(t, T₀, s₀)]`. With independent priors decisions are monotone in s₁, which is checked.

    An arm's pulls `afterwards` are one more round, whose reward counts that many times. Decisions are then
    not monotone, since arms that are close are worth exploring: the table has one bit per state
    (`layout.cell`), whether to pull arm 1, starting at byte `layout.byte_starts(n + 1)[t]` for round t.

    >>> value, table = solve([1, 1], [1, 1], horizon=10)
    >>> round(value, 7)
    6.0217857
    """
    n = whole("horizon", horizon) + bool(afterwards)
    shared = _begin(a, b, n, float(afterwards or 1), bool(afterwards))
    packed: list[np.ndarray] = []
    for advantage in _layers(shared, workers, bool(afterwards), progress):
        packed.append(np.packbits(advantage > TIE * shared.weight, bitorder="little"))
    return float(shared.value[0]), np.concatenate(packed[::-1]) if afterwards else shared.table


def advantages(
    a: Sequence[float],
    b: Sequence[float],
    horizon: int,
    workers: int = 1,
    progress: Callable[[float], None] | None = None,
) -> np.ndarray:
    """How much more arm 1 is worth than arm 0 in every state, if optimal decisions follow (float32).

    The entry of round t with s₀ ones in T₀ pulls of arm 0 and s₁ ones of arm 1 is at
    `layout.starts(n)[t] + cell(t, T₀, s₀, s₁)`.

    >>> round(float(advantages([1, 3], [1, 1], horizon=1)[0]), 3)  # 3/4 less 1/2
    0.25
    """
    shared = _begin(a, b, whole("horizon", horizon), 1.0, True)
    found = [layer.astype(np.float32) for layer in _layers(shared, workers, True, progress)]
    return np.concatenate(found[::-1])


def _begin(a: Sequence[float], b: Sequence[float], n: int, weight: float, kept: bool) -> _Work:
    """Nothing solved yet; there is no table of thresholds if advantages are kept."""
    check_shapes(a, b)
    starts = np.array([0, *np.cumsum([(pulls + 1) * (n - pulls) for pulls in range(n)])])
    value = np.zeros(starts[-1] + 1)  # the last row reads one number too many, times 0
    table = np.zeros(0 if kept else size(n), np.int16)
    return _Work(np.asarray(a, float), np.asarray(b, float), n, weight, starts, value, table)


def _layers(
    shared: _Work, workers: int, kept: bool, progress: Callable[[float], None] | None
) -> Iterator[np.ndarray]:
    """Solves all rounds, from the last to the first; each gives arm 1's advantages, if they are kept."""
    n, starts, value = shared.rounds, shared.starts, shared.value
    with ThreadPoolExecutor(workers) as pool:
        for t in range(n - 1, -1, -1):
            # Each worker takes a range of T₀, and reads the first rectangle of the next range from a copy,
            # since its own worker overwrites it.
            work = np.cumsum([(pulls + 1) * (t - pulls + 1) for pulls in range(t + 1)])
            cuts = [int(c) for c in np.searchsorted(work, np.linspace(0, work[-1], workers + 1))]
            cuts[-1] = t + 1
            advantage = np.zeros(work[-1] if kept else 0)
            edges = [value[starts[c] : starts[min(c + 1, n)]].copy() for c in cuts[1:]]
            jobs = [
                pool.submit(_layer, shared, t, low, high, edge, advantage)
                for low, high, edge in zip(cuts[:-1], cuts[1:], edges, strict=True)
            ]
            if not all(job.result() for job in jobs):
                raise ArithmeticError("the optimal decision is not monotone in the other arm's ones")
            yield advantage
            if progress:
                progress(1 - (t / n) ** 4)


@compiled(fastmath={"contract", "nnan", "nsz"})
def _layer(shared: _Work, t: int, low: int, high: int, edge: np.ndarray, advantage: np.ndarray) -> bool:
    """Overwrites the next round's values by those of round t, T₀ in [low, high); whether decisions are
    monotone. The reward of the last round counts `weight` times, and so does rounding.
    """
    a, b, n, weight, starts, value, table = shared
    tie = TIE * weight
    m1 = np.empty(t + 1)
    better = np.empty(t + 1)
    monotone = True
    for first in range(low, high):
        second = t - first
        for ones in range(second + 1):
            m1[ones] = (a[1] + ones) / (a[1] + b[1] + second)
        width = n - first
        last_layer = t == n - 1
        for s0 in range(first + 1):
            m0 = (a[0] + s0) / (a[0] + b[0] + first)
            row = value[starts[first] + s0 * width : starts[first] + (s0 + 1) * width + 1]
            if last_layer:
                for s1 in range(second + 1):
                    better[s1] = weight * (m1[s1] - m0)
                    row[s1] = weight * max(m0, m1[s1])
            else:
                if first + 1 < high:
                    zero = value[starts[first + 1] + s0 * (width - 1) :]
                else:
                    zero = edge[s0 * (width - 1) :]
                one = zero[width - 1 :]
                for s1 in range(second + 1):
                    q0 = m0 + (m0 * one[s1] + (1 - m0) * zero[s1])
                    q1 = m1[s1] + (m1[s1] * row[s1 + 1] + (1 - m1[s1]) * row[s1])
                    better[s1] = q1 - q0
                    row[s1] = max(q0, q1)
            if len(advantage):
                begin = cell(t, first, s0, 0)
                for s1 in range(second + 1):
                    advantage[begin + s1] = better[s1]
                continue
            threshold = 0
            for s1 in range(second + 1):
                threshold += better[s1] <= tie
            for s1 in range(threshold, second + 1):
                monotone &= better[s1] > tie
            table[place(t, first, s0)] = threshold
    return monotone
