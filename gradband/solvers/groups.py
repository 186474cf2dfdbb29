"""Groups of visitors in turn, each a bandit of its own: round t belongs to group t mod C.

Nothing that one group shows tells anything about another, so the optimum is that of C separate bandits, the
first n mod C of which have one more round.
"""

from collections.abc import Callable

from gradband.core.errors import whole


def split(groups: int, horizon: int) -> list[tuple[int, int]]:
    """Pairs of a number of rounds and how many groups have so many.

    >>> split(groups=3, horizon=11)
    [(4, 2), (3, 1)]
    """
    least, longer = divmod(whole("horizon", horizon), whole("groups", groups))
    pairs = [(least + 1, longer), (least, groups - longer)]
    return [(rounds, count) for rounds, count in pairs if rounds and count]


def total(value: Callable[[int], float], groups: int, horizon: int) -> float:
    """What all groups are worth, or cost, in n rounds, given the value of one group as a function of n.

    >>> total(lambda rounds: rounds**0.5, groups=2, horizon=8)
    4.0
    """
    return float(sum(count * value(rounds) for rounds, count in split(groups, horizon)))
