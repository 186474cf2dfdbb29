"""Forward: plays all rounds of 64 rollouts, and keeps what the way back needs.

The gates' tanh and the cell of each round are kept, 5 d numbers per rollout; the rest is cheaper to compute
again. A unit's four gates are one product in registers, from which its cell and its output follow at once.
"""

from functools import partial
from typing import NamedTuple

from llvmlite import ir

from gradband.engine.recurrent.vectors import LANES, Value, Writer

FORWARD = (
    "uniforms",  # [n, 64], which decide the arms
    "rewards",  # [n, K, 64] of all arms
    "gates",  # [d, d + 2K, 4], weights of a unit's gates
    "head",  # [K, d]
    "bias",  # [K]
    "arms",  # [n, 64]: the arms pulled
    "log_probs",  # [n, K, 64]: and the logarithms of all probabilities
    "kept",  # [n + 1, d, 5, 64]: tanh of the gates before a round, and the cell
    "inputs",  # [2, d + 2K, 64]: outputs, arms and rewards of even and odd rounds
)
AHEAD = (
    *FORWARD,
    "imagined",  # [2, d, 64]: outputs after rewards of 0 and 1
    "after",  # [2, n, K, 64]: log p after them
)


class Shape(NamedTuple):
    """The sizes of a network."""

    hidden: int
    arms: int

    @property
    def inputs(self) -> int:
        """The outputs, and for each arm whether a reward of 0 or 1 was observed."""
        return self.hidden + 2 * self.arms

    @property
    def padded(self) -> int:
        """The same in whole vectors."""
        return -(-self.inputs // 16) * 16

    @property
    def rows(self) -> int:
        """The units that a product on the way back is computed for at once."""
        return max(rows for rows in (1, 2, 3, 4, 5, 6) if self.hidden % rows == 0)


def write(module: ir.Module, shape: Shape, tile: int) -> None:
    """Writes the functions `forward`, and `ahead`, which also looks at what a reward of 0 or 1 changes."""
    for name, pointers in (("forward", FORWARD), ("ahead", AHEAD)):
        w = Writer(module, name, pointers, tile)
        w.clear("inputs", 2 * shape.inputs * LANES)
        w.clear("kept", 5 * shape.hidden * LANES)
        w.loop(w.rounds, partial(_round, w, shape))
        w.end()


def _round(w: Writer, shape: Shape, t: Value) -> None:
    turns = parities(w, t, shape.inputs * LANES)
    w.tiles(partial(_choose, w, shape, t, turns[0]))
    unit = _unit_ahead if "after" in w.at else _unit
    w.loop(shape.hidden, lambda j: w.tiles(partial(unit, w, shape, t, turns, j)))
    if "after" in w.at:
        w.tiles(partial(_look_ahead, w, shape, t))


def parities(w: Writer, t: Value, size: int) -> tuple[Value, Value]:
    """Where the arrays of this size begin that even and odd rounds take in turns: this and the other."""
    odd = w.code.and_(t, t.type(1))
    return w.place((odd, size)), w.place((w.code.xor(odd, t.type(1)), size))


def _choose(w: Writer, shape: Shape, t: Value, now: Value, lane: Value) -> None:
    """log p of all arms, the arm that a uniform number decides for, and its reward among the inputs."""
    edges = [w.number(0)]
    for arm, log_prob in enumerate(_log_probs(w, shape, "inputs", now, lane)):
        w.store(log_prob, "log_probs", *row(w, shape, t, arm, lane))
        edges.append(w.add(edges[-1], w.exp(log_prob)))
    point = w.times(w.load("uniforms", (t, w.stride), lane), edges[-1])
    chosen = w.number(0)
    for edge in edges[1:]:
        chosen = w.add(chosen, w.where(point, ">=", edge, w.number(1), w.number(0)))
    w.store(chosen, "arms", (t, w.stride), lane)
    hear(w, shape, t, now, lane)


def _log_probs(w: Writer, shape: Shape, outputs: str, place: Value, lane: Value) -> list[Value]:
    """log p of all arms from the network's outputs."""
    scores = []
    for arm in range(shape.arms):

        def add(j: Value, total: Value, arm: int = arm) -> list[Value]:
            h = w.load(outputs, place, (j, LANES), lane)
            return [w.fma(w.everywhere("head", arm * shape.hidden, j), w.leaky(h, h), total)]

        scores += w.loop(shape.hidden, add, [w.everywhere("bias", arm)])
    most, total = scores[0], w.number(0)
    for score in scores[1:]:
        most = w.where(score, ">", most, score, most)
    for score in scores:
        total = w.add(total, w.exp(w.minus(score, most)))
    log_total = w.add(most, w.log(total))
    return [w.minus(score, log_total) for score in scores]


def row(w: Writer, shape: Shape, t: Value, arm: int, lane: Value) -> tuple[Value, ...]:
    """The place of an arm's numbers in a round."""
    return (t, shape.arms, w.stride), (arm, w.stride), lane


def hear(w: Writer, shape: Shape, t: Value, inputs: Value, lane: Value) -> None:
    """Writes what is observed in a round below the outputs: 1 − Y and Y of the arm that was pulled."""
    zero, chosen = w.number(0), w.load("arms", (t, w.stride), lane)
    for arm in range(shape.arms):
        reward = w.load("rewards", *row(w, shape, t, arm, lane))
        for y, heard in enumerate((w.minus(w.number(1), reward), reward)):
            seen = w.where(chosen, "==", w.number(arm), heard, zero)
            w.store(seen, "inputs", inputs, (shape.hidden + y * shape.arms + arm) * LANES, lane)


Turns = tuple[Value, Value]
"""where a round's inputs are, and where the next round's go"""


def _unit(w: Writer, shape: Shape, t: Value, turns: Turns, j: Value, lane: Value) -> None:
    """A unit's gates, its cell and its output after a round."""
    sums = _sums(w, shape, turns[0], (0, shape.inputs), j, lane, [w.number(0)] * 4)
    kept, output = _cell(w, shape, t, j, lane, sums)
    _keep(w, shape, t, turns, j, lane, [*kept, output])


def _unit_ahead(w: Writer, shape: Shape, t: Value, turns: Turns, j: Value, lane: Value) -> None:
    """The same for rewards of 0 and 1, of which one is observed."""
    d, k = shape
    shared = _sums(w, shape, turns[0], (0, d), j, lane, [w.number(0)] * 4)
    one, ends = w.number(1), []
    for y in (0, 1):
        sums = shared
        for arm in range(k):
            pulled = w.where(w.load("arms", (t, w.stride), lane), "==", w.number(arm), one, w.number(0))
            place = w.place((j, 4 * shape.inputs), 4 * (d + y * k + arm))
            sums = [w.fma(w.everywhere("gates", place, g), pulled, sums[g]) for g in range(4)]
        kept, output = _cell(w, shape, t, j, lane, sums)
        w.store(output, "imagined", y * d * LANES, (j, LANES), lane)
        ends.append([*kept, output])
    reward = w.number(0)
    for arm in range(k):
        reward = w.add(reward, w.load("inputs", turns[0], (d + k + arm) * LANES, lane))
    seen = [w.where(reward, ">=", one, b, a) for a, b in zip(*ends, strict=True)]
    _keep(w, shape, t, turns, j, lane, seen)


def _sums(
    w: Writer, shape: Shape, now: Value, inputs: tuple[int, int], j: Value, lane: Value, start: list[Value]
) -> list[Value]:
    """A unit's gates before their tanh, from some of the inputs."""

    def add(i: Value, *sums: Value) -> list[Value]:
        k = w.place(i, inputs[0])
        x, place = w.load("inputs", now, (k, LANES), lane), w.place((j, 4 * shape.inputs), (k, 4))
        return [w.fma(w.everywhere("gates", place, gate), x, sums[gate]) for gate in range(4)]

    return w.loop(inputs[1] - inputs[0], add, start)


def _cell(
    w: Writer, shape: Shape, t: Value, j: Value, lane: Value, sums: list[Value]
) -> tuple[list[Value], Value]:
    """What is kept of a unit, its gates and its cell, and its output."""
    add, forget, new, show = gates = [w.tanh(x) for x in sums]
    before = w.load("kept", (t, 5 * shape.hidden * LANES), (j, 5 * LANES), 4 * LANES, lane)
    cell = w.fma(w.share(add), new, w.times(w.share(forget), before))
    return [*gates, cell], w.times(w.share(show), w.tanh(cell))


def _keep(
    w: Writer, shape: Shape, t: Value, turns: Turns, j: Value, lane: Value, seen: list[Value]
) -> None:
    """Keeps a unit's gates and cell, and passes its output on."""
    *kept, output = seen
    after = w.place((t, 5 * shape.hidden * LANES), (j, 5 * LANES), lane, 5 * shape.hidden * LANES)
    for place, x in enumerate(kept):
        w.store(x, "kept", after, place * LANES)
    w.store(output, "inputs", turns[1], (j, LANES), lane)


def _look_ahead(w: Writer, shape: Shape, t: Value, lane: Value) -> None:
    """log p in the next round, had the reward been 0 or 1."""
    for y in (0, 1):
        place = w.place(y * shape.hidden * LANES)
        for arm, log_prob in enumerate(_log_probs(w, shape, "imagined", place, lane)):
            w.store(log_prob, "after", (w.rounds, y * shape.arms, w.stride), *row(w, shape, t, arm, lane))
