"""The wheel bandit with rewards that are almost free of noise: what not knowing δ costs.

In each round a context is uniform in the unit disk, at radius r. The safe arm loses nothing if r < δ, and
`gain` if r > δ. The arm of the context's quadrant loses `cost` if r < δ, nothing if r > δ, and shows which
is true. So the belief is δ ~ U(lo, hi), all is known outside of (lo, hi), and inside a policy explores or
not. Squared radii are uniform, and rates are differences of squares, as β = δ².

- A policy that always explores loses `cost` at each new maximum of the radii below δ: over n rounds, with
  p = β − lo², that is cost h_n(p), h_n(p) = Σ_{k ≤ n} (1 − (1 − p)^k)/k.
- The greedy policy explores if the chance f = (r − lo)/(hi − lo) of a gain is at least
  τ = cost/(gain + cost). It differs from the one before where f < τ. What it saves there is summed over the
  rounds, with the distribution of the nearest radii below and above δ after t of them, and what lo = r
  would have been worth later. (That radii it skipped are not among those seen is of second order: a share τ
  of a saving that is itself a share τ.)
- No policy saves more than that without the worth of lo = r, since knowing more cannot hurt.

With the wheel's usual rewards the two bounds differ by 5 parts in 10⁵: greedy is optimal.
"""

from typing import NamedTuple

import numpy as np

from gradband.core.errors import InputError, number, positive, shown, whole

Nodes = tuple[np.ndarray, np.ndarray]


class Losses(NamedTuple):
    """Regret of the safe arm outside δ, and of the quadrant's arm inside."""

    gain: float = 48.8
    cost: float = 0.2

    @property
    def share(self) -> float:
        """τ, the least chance of a gain that is worth its cost."""
        return self.cost / (self.gain + self.cost)


USUAL = Losses()  # rewards of 50, 1.2 and 1.0


class Regrets(NamedTuple):
    """Expected regrets over n rounds. The optimum over δ ~ U(0, 1) is in [least, greedy]."""

    greedy: float
    exploring: float
    """of the policy that explores wherever it does not know"""
    uniform: float
    """of all five arms alike"""
    least: float | None
    """no policy has less; None for one δ, where one that knew it would lose nothing"""


def regrets(horizon: int, losses: Losses = USUAL, nodes: int = 16) -> Regrets:
    """Bayes regrets with δ ~ U(0, 1).

    Args:
        horizon: n.
        losses: Regret of wrong choices.
        nodes: Of each integral. Twice as many tell how precise they are.

    >>> found = regrets(horizon=50)
    >>> round(found.greedy, 4), round(found.exploring, 4)
    (0.5483, 0.5496)
    """
    n, losses = whole("horizon", horizon), _checked(losses)
    k = np.arange(1, n + 1)
    never = np.cumprod(2 * k / (2 * k + 1))  # ∫ (1 − δ²)^k dδ
    exploring = losses.cost * float(((1 - never) / k).sum())
    node, weight = _unit(nodes)
    delta = node * node * (3 - 2 * node)  # closer where δ is near 0 and 1
    weight = 6 * node * (1 - node) * weight
    saved = float(weight @ [_saving(x, n, losses, nodes) for x in delta])
    uniform = _uniform(n, losses, 1 / 3)
    return Regrets(exploring - saved, exploring, uniform, exploring - _most_saved(n, losses, nodes))


def regrets_at(delta: float, horizon: int, losses: Losses = USUAL, nodes: int = 24) -> Regrets:
    """Regrets if δ is this, of policies that believe δ ~ U(0, 1).

    The optimal policy also counts what lo = r would have been worth, so it explores a little nearer to lo:
    by a few per cent of τ, and so of the difference between `greedy` and `exploring`, at most.

    >>> found = regrets_at(0.99, horizon=2000)
    >>> round(found.greedy, 3), round(found.exploring, 3), round(found.uniform)
    (1.625, 1.632, 1872)
    """
    number("delta", delta, 0, 1)
    n, losses = whole("horizon", horizon), _checked(losses)
    k = np.arange(1, n + 1)
    exploring = losses.cost * float(((1 - (1 - delta**2) ** k) / k).sum())
    saved = _saving(delta, n, losses, nodes) if 0 < delta < 1 else 0.0
    return Regrets(exploring - saved, exploring, _uniform(n, losses, delta**2), None)


def _checked(losses: Losses) -> Losses:
    gain, cost = (positive(name, value) for name, value in zip(("gain", "cost"), losses, strict=True))
    if cost > gain:
        raise InputError(f"cost must be at most the gain {shown(gain)}, not {shown(cost)}")
    return losses


def _uniform(n: int, losses: Losses, inside: float) -> float:
    """One arm in five is the safe one, one the quadrant's, and three lose both."""
    return n * (inside * 0.8 * losses.cost + (1 - inside) * (0.8 * losses.gain + 0.6 * losses.cost))


def _unit(count: int) -> Nodes:
    """Gauss-Legendre nodes and weights of [0, 1]."""
    node, weight = np.polynomial.legendre.leggauss(count)
    return (node + 1) / 2, weight / 2


def _toward_zero(length: np.ndarray, rounds: int, count: int) -> Nodes:
    """Nodes and weights [..., count] of [0, length], dense up to 1/n."""
    node, weight = _unit(count)
    rate = np.log1p(4.0 * rounds * np.asarray(length))[..., None] + 1.0
    scale = np.asarray(length)[..., None] / np.expm1(rate)
    return scale * np.expm1(rate * node), scale * rate * np.exp(rate * node) * weight


class _Neighbours(NamedTuple):
    """Squares a and b of the nearest radii below and above δ, as nodes of integrals over both.

    After t rounds, their density at a node is t!/(t − k)! (1 − (b − a))^(t − k), where k of the two are
    radii that were seen: below there may be none, so that a = 0, and above none, so that b = 1.
    """

    a: np.ndarray
    b: np.ndarray
    weight: np.ndarray
    seen: np.ndarray


def _neighbours(delta: float, n: int, share: float, count: int) -> _Neighbours:
    square = delta**2
    y, weight_y = _toward_zero(np.array(1 - square), n, count)
    b, weight_b = np.append(square + y, 1.0), np.append(weight_y, 1.0)
    # Beyond this a, whatever greedy skips is below δ: the integrand has a kink there.
    kink = square - np.maximum((delta - share * np.sqrt(b)) / (1 - share), 0) ** 2
    near, weight_near = _toward_zero(kink, n, count)
    far, weight_far = _toward_zero(square - kink, n, count)
    ending = np.ones((len(b), 1))
    a = np.maximum(np.concatenate([square - near, square - kink[:, None] - far, 0 * ending], 1), 0)
    weight = np.concatenate([weight_near, weight_far, ending], 1) * weight_b[:, None]
    seen = np.full(a.shape, 2)
    seen[-1] -= 1
    seen[:, -1] -= 1
    b = np.broadcast_to(b[:, None], a.shape)
    return _Neighbours(*(x.reshape(-1) for x in (a, b, weight, seen)))


def _saving(delta: float, n: int, losses: Losses, count: int) -> float:
    """What greedy saves in n rounds over the policy that always explores, at this δ."""
    a, b, weight, seen = _neighbours(delta, n, losses.share, count)
    square = delta**2
    low, high = np.sqrt(a), np.sqrt(b)
    skipped = (low + losses.share * (high - low)) ** 2  # radii from a to here
    inside = np.minimum(skipped, square)
    lost = losses.gain * np.maximum(skipped - square, 0)
    p, rest = square - a, square - inside
    log_empty = np.log(np.maximum(1 - (b - a), 1e-300))
    miss_p, miss_rest = 1 - p, 1 - rest
    power_p, power_rest = miss_p.copy(), miss_rest.copy()
    h, area = np.zeros_like(a), np.zeros_like(a)  # h_R(p), and the integral of h_R from `rest` to p
    total = 0.0
    for left in range(n):  # rounds left after this one
        t = n - 1 - left
        ways = np.where(seen == 2, t * (t - 1), np.where(seen == 1, t, 1.0))
        chance = weight * ways * np.exp(np.maximum(t - seen, 0) * log_empty)
        worth = losses.cost * ((inside - a) * (1 - h) + area) - lost
        total += float(chance @ worth)
        # now for one more round left
        h += (1 - power_p) / (left + 1)
        power_p *= miss_p
        power_rest *= miss_rest
        area += (p - rest + (power_p - power_rest) / (left + 2)) / (left + 1)
    return total


def _most_saved(n: int, losses: Losses, count: int) -> float:
    """What any policy saves at most, over δ ~ U(0, 1): the sum over all gaps between radii seen."""

    def most(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        low, width = np.sqrt(a), np.sqrt(b) - np.sqrt(a)
        skipped = losses.share * width
        return losses.cost * width * skipped * (low + skipped / 3)

    t = np.arange(n)[::-1]  # as coefficients, highest first
    p, weight = _toward_zero(np.array(1.0), n, 2 * count)
    node, weight_node = _unit(2 * count)
    low = np.sqrt(1 - p)[:, None] * node**2
    inner = (most(low**2, low**2 + p[:, None]) * 2 * low * 2 * node * weight_node).sum(1) * np.sqrt(1 - p)
    ends = most(0 * p, p) + most(1 - p, 1 + 0 * p)
    once = np.polyval((t * 1.0)[:-1], 1 - p) if n > 1 else 0 * p
    twice = np.polyval((t * (t - 1.0))[:-2], 1 - p) if n > 2 else 0 * p
    return float(weight @ (twice * inner + once * ends)) + float(most(np.zeros(1), np.ones(1))[0])
