"""Exact rounds before a bound: dynamic programmes whose last states are worth what the bound says.

Arms with the same prior are exchangeable, so a state is a multiset. The multisets of a round are enumerated
arm by arm, the most pulled first, and their values found by a key, the sum of random words. Each is entered
once: a key that is there already would be that of two states, and ends the programme.
"""

from typing import Any

import numpy as np

from gradband.solvers.compiled import compiled
from gradband.solvers.many_arms import nodes

BYTES = 70  # of memory for each state of the last two rounds
TWO_ARMS_BYTES = 24


def states(a: np.ndarray, b: np.ndarray, rounds: int) -> np.ndarray:
    """How many states there are before each round 0 … d."""
    return nodes(a.tolist(), b.tolist(), rounds + 1)


def solve(
    shapes: np.ndarray, counts: np.ndarray, rounds: int, factors: np.ndarray, leaf: float, bounds: tuple
) -> float:
    """The value of `rounds` exact rounds with a bound at the end.

    Arms are of kinds with beliefs Beta(a, b), `shapes` [kinds, 2], so many of each as in `counts`.
    `factors` [kinds, states, cells] has e of every state of an arm, by its code, and `leaf` the rounds m
    that the bound is for; `bounds` has the widths of the cells, and a second bound: a constant and what
    every state of an arm adds to it [kinds, states].
    """
    width, constant, added = bounds
    kinds, codes = factors.shape[:2]
    words = np.random.default_rng(0).integers(1, 2**63, (kinds, codes), np.uint64)
    kind_of = np.repeat(np.arange(kinds), counts)
    a, b = np.repeat(shapes[:, 0], counts), np.repeat(shapes[:, 1], counts)
    amount = states(a, b, rounds)
    rest = np.ones((len(kind_of) + 1, factors.shape[2]))
    for position in range(len(kind_of) - 1, -1, -1):
        rest[position] = rest[position + 1] * factors[kind_of[position], 0]
    pulls = np.concatenate([np.full(t + 1, t) for t in range(rounds + 2)])
    keys, values = _empty(amount[rounds])
    bound = (float(leaf), width, factors, rest, float(constant), added)
    good = _leaves(rounds, kind_of, pulls, words, bound, keys, values)
    for t in range(rounds - 1, -1, -1):
        new_keys, new_values = _empty(amount[t])
        good = good and _round(t, kind_of, pulls, words, shapes, (keys, values, new_keys, new_values))
        keys, values = new_keys, new_values
    if not good:
        raise ArithmeticError("two different states have the same key")
    return float(values[keys != 0][0])


def _empty(count: float) -> tuple[np.ndarray, np.ndarray]:
    size = 1 << int(2 * count + 1).bit_length()
    return np.zeros(size, np.uint64), np.empty(size)


@compiled(inline="always")
def _slot(keys: np.ndarray, key: Any) -> Any:
    """Where a key is, or the free place for it."""
    mask = np.uint64(len(keys) - 1)
    at = (key ^ (key >> np.uint64(29))) & mask
    while keys[at] != 0 and keys[at] != key:
        at = (at + np.uint64(1)) & mask
    return at


@compiled()
def _descend(
    kind_of: np.ndarray, pulls: np.ndarray, chosen: np.ndarray, left: np.ndarray, position: int
) -> int:
    """Moves on to the next choice of an arm's state: the position that it is for, or −1 at the end.

    `chosen` [K] has the codes; that of the position returned was just set, those behind it are not valid.
    """
    arms = len(kind_of)
    while position >= 0:
        chosen[position] -= 1
        now = chosen[position]
        if now < 0:
            position -= 1
            continue
        last = kind_of[position] == kind_of[arms - 1]
        if last and pulls[now] * (arms - position) < left[position]:
            position -= 1  # the arms from here on have no more pulls than this one
            continue
        return position
    return -1


@compiled()
def _first(kind_of: np.ndarray, chosen: np.ndarray, left: np.ndarray, position: int) -> None:
    """Prepares the choice of a position: one beyond the greatest code that it may have."""
    most = (left[position] + 1) * (left[position] + 2) // 2
    if position > 0 and kind_of[position] == kind_of[position - 1]:
        most = min(most, chosen[position - 1] + 1)
    chosen[position] = most


@compiled(fastmath=True)
def _leaves(
    rounds: int,
    kind_of: np.ndarray,
    pulls: np.ndarray,
    words: np.ndarray,
    bound: tuple,
    keys: np.ndarray,
    values: np.ndarray,
) -> bool:
    """Enters the bound of all states after the exact rounds; False if two have the same key."""
    left_over, width, factors, rest, constant, added = bound
    arms, cells = len(kind_of), len(width)
    chosen, left = np.zeros(arms + 1, np.int64), np.zeros(arms + 1, np.int64)
    key = np.zeros(arms + 1, np.uint64)
    total = np.zeros(arms + 1)
    product = np.empty((arms + 1, cells))
    product[0] = width
    rest_word, rest_added = np.zeros(arms + 1, np.uint64), np.zeros(arms + 1)
    for i in range(arms - 1, -1, -1):
        rest_word[i] = rest_word[i + 1] + words[kind_of[i], 0]
        rest_added[i] = rest_added[i + 1] + added[kind_of[i], 0]
    left[0] = rounds
    _first(kind_of, chosen, left, 0)
    position = _descend(kind_of, pulls, chosen, left, 0)
    while position >= 0:
        kind, now = kind_of[position], chosen[position]
        after = left[position] - pulls[now]
        row, mine = product[position], factors[kind, now]
        if after == 0:
            behind, area = rest[position + 1], 0.0
            for g in range(cells):
                area += row[g] * mine[g] * behind[g]
            value = left_over * (1 - area)
            other = constant + total[position] + added[kind, now] + rest_added[position + 1]
            own = key[position] + words[kind, now] + rest_word[position + 1]
            at = _slot(keys, own)
            if keys[at] != 0:
                return False
            keys[at], values[at] = own, min(value, other)
        elif position < arms - 1:
            key[position + 1] = key[position] + words[kind, now]
            total[position + 1] = total[position] + added[kind, now]
            for g in range(cells):
                product[position + 1, g] = row[g] * mine[g]
            position += 1
            left[position] = after
            _first(kind_of, chosen, left, position)
        position = _descend(kind_of, pulls, chosen, left, position)
    return True


@compiled()
def _round(
    t: int, kind_of: np.ndarray, pulls: np.ndarray, words: np.ndarray, shapes: np.ndarray, tables: tuple
) -> bool:
    """Enters the values of all states before round t, from those after it."""
    keys, values, new_keys, new_values = tables
    arms = len(kind_of)
    chosen, left = np.zeros(arms + 1, np.int64), np.zeros(arms + 1, np.int64)
    key, rest_word = np.zeros(arms + 1, np.uint64), np.zeros(arms + 1, np.uint64)
    for i in range(arms - 1, -1, -1):
        rest_word[i] = rest_word[i + 1] + words[kind_of[i], 0]
    left[0] = t
    _first(kind_of, chosen, left, 0)
    position = _descend(kind_of, pulls, chosen, left, 0)
    while position >= 0:
        kind, now = kind_of[position], chosen[position]
        after = left[position] - pulls[now]
        if after == 0:
            own = key[position] + words[kind, now] + rest_word[position + 1]
            at = _slot(new_keys, own)
            if new_keys[at] != 0:
                return False
            best = -np.inf
            for i in range(arms):
                state = chosen[i] if i <= position else 0
                before = -1 if i == 0 else chosen[i - 1] if i - 1 <= position else 0
                if state == before and kind_of[i] == kind_of[i - 1]:
                    continue
                type_of, n = kind_of[i], pulls[state]
                a, b = shapes[type_of, 0], shapes[type_of, 1]
                p = (a + state - n * (n + 1) // 2) / (a + b + n)
                without = own - words[type_of, state]
                lost = values[_slot(keys, without + words[type_of, state + n + 1])]
                won = values[_slot(keys, without + words[type_of, state + n + 2])]
                best = max(best, p * (1 + won) + (1 - p) * lost)
            new_keys[at], new_values[at] = own, best
        elif position < arms - 1:
            key[position + 1] = key[position] + words[kind, now]
            position += 1
            left[position] = after
            _first(kind_of, chosen, left, position)
        position = _descend(kind_of, pulls, chosen, left, position)
    return True


def solve_two(
    shapes: np.ndarray, rounds: int, factors: np.ndarray, leaf: float, width: np.ndarray
) -> float:
    """The value of `rounds` exact rounds of two arms, from e [2, states, cells] and the bound's m."""
    value = np.empty((rounds + 1) * (rounds + 2) * (rounds + 3) // 6)
    first = 0
    for pulls in range(rounds + 1):
        rest = rounds - pulls
        mine = factors[0, pulls * (pulls + 1) // 2 : (pulls + 1) * (pulls + 2) // 2]
        other = factors[1, rest * (rest + 1) // 2 : (rest + 1) * (rest + 2) // 2]
        area = (mine * width) @ other.T
        value[first : first + area.size] = leaf * (1 - area.ravel())
        first += area.size
    for t in range(rounds - 1, -1, -1):
        _round_of_two(t, shapes, value)
    return float(value[0])


@compiled()
def _round_of_two(t: int, shapes: np.ndarray, value: np.ndarray) -> None:
    """Values of the states of two arms before round t, in the places of those after it.

    States are ordered by the first arm's pulls, then its ones, then the other's; their places never lie
    behind those of the states that they read.
    """
    here = 0
    start = 0  # of the next round's states with as many pulls of the first arm
    for pulls in range(t + 1):
        rest = t - pulls
        more = start + (pulls + 1) * (rest + 2)  # of those with one more
        for ones in range(pulls + 1):
            p = (shapes[0, 0] + ones) / (shapes[0, 0] + shapes[0, 1] + pulls)
            same, lost, won = (
                start + ones * (rest + 2),
                more + ones * (rest + 1),
                more + (ones + 1) * (rest + 1),
            )
            for others in range(rest + 1):
                q = (shapes[1, 0] + others) / (shapes[1, 0] + shapes[1, 1] + rest)
                one = p * (1 + value[won + others]) + (1 - p) * value[lost + others]
                two = q * (1 + value[same + others + 1]) + (1 - q) * value[same + others]
                value[here] = max(one, two)
                here += 1
        start = more
