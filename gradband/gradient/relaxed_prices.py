"""What decisions cost if the remaining rounds are worth as much as a bound says.

In place of the optimal value V, which is unknown for more than two arms, stands the geometric horizon's
bound: the value of m endless rounds that are discounted by γ = 1 − 1/m,

    V(H) = m ∫ (1 − Π_i e_i(λ)) dλ,   Q(H, i) = p_i + p_i V(H, i pays 1) + (1 − p_i) V(H, i pays 0).

A policy's expected reward is V at the start less its prices V − Q along the way, whatever the function V
is, as long as V = 0 at the end. So gradients have no bias; the closer V is to the optimal value, the less
luck is left in them.
"""

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import jax
import numpy as np

from gradband.core import resources
from gradband.core.arrays import Array, namespace
from gradband.policies import Counting, Counts, Params
from gradband.solvers import layout, product_form

LONGEST = 200  # rounds, whose table has 180 megabytes for each kind of arm
CELLS = 32  # between charges
LEAST = -60.0  # log e


class RelaxedPrices(Counting):
    """Independent Bernoulli arms beside a bound on what they are worth."""

    name: ClassVar[str] = "relaxed-prices"

    def log_probs(self, params: Params, state: Counts) -> Array:
        raise NotImplementedError  # it judges the decisions of others

    def of(self, params: Params, state: Counts) -> Array:
        """The prices [K] of the arms; by the bound a few may be negative."""
        xp, t = namespace(state.pulls), state.rounds.astype(np.int32)
        left = xp.maximum(self.horizon - state.rounds, 1)
        pulls, ones = state.pulls.astype(np.int32), state.sums.astype(np.int32)
        logs, width, first = params["logs"], params["width"], params["first"]

        def factors(t: Array, pulls: Array, ones: Array) -> Array:
            return logs[first + layout.place(t, pulls, ones)]

        def worth(rounds: Array, total: Array) -> Array:
            return rounds * (1 - xp.exp(total) @ width)

        same = factors(t + 1, pulls, ones)
        others = same.sum(0)[None] - same
        lost, won = (worth(left - 1, others + factors(t + 1, pulls + 1, ones + y)) for y in (0, 1))
        mean = (params["a"] + state.sums) / (params["a"] + params["b"] + state.pulls)
        return worth(left, factors(t, pulls, ones).sum(0)) - (mean + mean * won + (1 - mean) * lost)


@functools.lru_cache(maxsize=2)
def find_relaxed_prices(
    a: tuple[float, ...], b: tuple[float, ...], horizon: int
) -> tuple[RelaxedPrices, Params]:
    """The prices for Beta(a, b) arms."""
    from gradband.solvers import stopping  # Numba is slow to import

    shapes, _ = stopping.kinds_of(np.array(a), np.array(b))
    charges = product_form.first_charges(shapes, CELLS - 1)
    size = layout.size(horizon + 1)
    logs = np.zeros((len(shapes), size, len(charges) - 1), np.float32)

    def fill(kind: int, t: int) -> None:
        left, shape = horizon - t, (float(shapes[kind, 0]), float(shapes[kind, 1]))
        found = stopping.advantages(shape, left, stopping.reach(left, t, np.inf, 1), charges, t)
        factors = np.log(np.maximum(product_form.slopes(charges, found, left), np.exp(LEAST)))
        logs[kind, layout.size(t) : layout.size(t + 1)] = factors

    with ThreadPoolExecutor(resources.cores()) as pool:
        list(pool.map(fill, *zip(*np.ndindex(len(shapes), horizon), strict=True)))
    kind_of = (np.stack([a, b], 1)[:, None] == shapes[None]).all(2).argmax(1)
    params: dict[str, Any] = {
        "logs": logs.reshape(-1, logs.shape[-1]),
        "width": np.diff(charges).astype(np.float32),
        "first": (kind_of * size).astype(np.int32),
        "a": np.array(a, np.float32),
        "b": np.array(b, np.float32),
    }
    return RelaxedPrices().bind(len(a), horizon), jax.device_put(params)


def memory(kinds: int, horizon: int) -> int:
    """Bytes of the table."""
    return kinds * layout.size(horizon + 1) * (CELLS + 1) * 4
