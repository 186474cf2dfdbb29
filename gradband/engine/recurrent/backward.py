"""Backward: from derivatives with respect to all scores to those with respect to all weights.

Rounds go by backwards. In each, outputs are computed again and turned, so that the rollouts' products with
the next round's derivatives become one matrix product, summed over rollouts one after the other; another
leads to the derivatives of the round before.
"""

from functools import partial

from llvmlite import ir

from gradband.engine.recurrent.forward import Shape, hear, parities, row
from gradband.engine.recurrent.vectors import LANES, Value, Writer

BACKWARD = (
    "rewards",  # [n, K, 64]
    "arms",  # [n, 64]
    "slopes",  # [n, K, 64], derivatives with respect to the scores
    "back",  # [d / rows, 4d, rows], weights of the gates from an output
    "back_head",  # [d, K]
    "kept",  # [n + 1, d, 5, 64]
    "inputs",  # [padded, 64]: outputs, arms and rewards of a round
    "turned",  # [64, padded]: the same, turned
    "bent",  # [d, 64]: tanh of the cells
    "sums",  # [2, 4d, 64]: derivatives of the gates' sums in this round and the next
    "cells",  # [d, 64]: those of the cells
    "of_gates",  # [4d, padded]: derivatives of weights, to which those of these rollouts are added
    "of_head",  # [K, d, 64]
    "of_bias",  # [K, 64]
)
LINE = 16  # numbers that come from memory together
TURNED = 16  # numbers in the rows of a block that is turned


def write(module: ir.Module, shape: Shape, tile: int) -> None:
    """Writes the function `backward`."""
    w = Writer(module, "backward", BACKWARD, tile)
    w.clear("inputs", shape.padded * LANES)
    w.clear("sums", 8 * shape.hidden * LANES)
    w.clear("cells", shape.hidden * LANES)
    w.loop(w.rounds, partial(_round, w, shape))
    w.end()


def _round(w: Writer, shape: Shape, i: Value) -> None:
    t = w.code.sub(w.code.sub(w.rounds, i), i.type(1))
    turns = parities(w, t, 4 * shape.hidden * LANES)
    w.tiles(partial(_remember, w, shape, t))
    _turn(w, shape)
    _add_products(w, shape, turns[1], before(w, t))
    w.loop(shape.hidden // shape.rows, lambda q: w.tiles(partial(_units, w, shape, t, turns, q)))


def _remember(w: Writer, shape: Shape, t: Value, lane: Value) -> None:
    """What the network put out and observed in a round, and the head's derivatives."""
    hear(w, shape, t, t.type(0), lane)
    slopes = [w.load("slopes", *row(w, shape, t, arm, lane)) for arm in range(shape.arms)]
    for arm, slope in enumerate(slopes):
        w.store(w.add(w.load("of_bias", arm * LANES, lane), slope), "of_bias", arm * LANES, lane)

    def unit(j: Value) -> None:
        kept, own = w.place((t, 5 * shape.hidden * LANES), (j, 5 * LANES), lane), w.place((j, LANES), lane)
        bent = w.tanh(w.load("kept", kept, 4 * LANES))
        h = w.times(w.share(w.load("kept", kept, 3 * LANES)), bent)
        w.store(bent, "bent", own)
        w.store(h, "inputs", own)
        for arm, slope in enumerate(slopes):
            place = w.place(arm * shape.hidden * LANES, own)
            w.store(w.fma(slope, w.leaky(h, h), w.load("of_head", place)), "of_head", place)

    w.loop(shape.hidden, unit)


def _turn(w: Writer, shape: Shape) -> None:
    """Turns inputs [padded, 64] to [64, padded]."""

    def block(a: Value, e: Value) -> None:
        places = (w.place((a, TURNED * LANES), r * LANES, (e, TURNED)) for r in range(TURNED))
        rows = [w.load("inputs", place, width=TURNED) for place in places]
        for r, column in enumerate(w.turned(rows)):
            w.store(column, "turned", (e, TURNED * shape.padded), r * shape.padded, (a, TURNED))

    w.loop(shape.padded // TURNED, lambda a: w.loop(LANES // TURNED, partial(block, a)))


def before(w: Writer, t: Value) -> Value:
    """The round before, or the first."""
    return w.code.select(w.code.icmp_signed("==", t, t.type(0)), t, w.code.sub(t, t.type(1)))


def _add_products(w: Writer, shape: Shape, sums: Value, past: Value) -> None:
    """Adds each derivative of a sum times each input, over all rollouts, for a unit's gates at a time.

    Meanwhile, what was kept of the round before comes from memory.
    """
    width = max(x for x in (16, 32, 48, 64) if shape.padded % x == 0 and x <= w.tile)

    def block(j: Value, e: Value) -> None:
        place = w.place((j, 4 * shape.padded), (e, width))

        def add(lane: Value, *totals: Value) -> list[Value]:
            x = w.load("turned", (lane, shape.padded), (e, width), width=width)
            at = w.place(sums, (j, 4 * LANES), lane)
            return [
                w.fma(w.everywhere("sums", at, gate * LANES, width=width), x, totals[gate])
                for gate in range(4)
            ]

        before = [w.load("of_gates", place, gate * shape.padded, width=width) for gate in range(4)]
        for gate, total in enumerate(w.loop(LANES, add, before)):
            w.store(total, "of_gates", place, gate * shape.padded)

    def unit(j: Value) -> None:
        for line in range(0, 5 * LANES, LINE):
            w.fetch("kept", (past, 5 * shape.hidden * LANES), (j, 5 * LANES), line)
        w.loop(shape.padded // width, partial(block, j))

    w.loop(shape.hidden, unit)


def _units(w: Writer, shape: Shape, t: Value, turns: tuple[Value, Value], q: Value, lane: Value) -> None:
    """Derivatives of a few units' outputs, from the next round's sums and from this round's scores."""
    rows = shape.rows

    def add(k: Value, *totals: Value) -> list[Value]:
        x = w.load("sums", turns[1], (k, LANES), lane)
        place = w.place((q, 4 * shape.hidden * rows), (k, rows))
        return [w.fma(w.everywhere("back", place, r), x, totals[r]) for r in range(rows)]

    for r, later in enumerate(w.loop(4 * shape.hidden, add, [w.number(0)] * rows)):
        j = w.place((q, rows), r)
        slope = w.number(0)
        for arm in range(shape.arms):
            weight = w.everywhere("back_head", (j, shape.arms), arm)
            slope = w.fma(weight, w.load("slopes", *row(w, shape, t, arm, lane)), slope)
        h = w.load("inputs", (j, LANES), lane)
        _unit(w, shape, t, turns[0], j, lane, w.add(later, w.leaky(h, slope)))


def _unit(w: Writer, shape: Shape, t: Value, sums: Value, j: Value, lane: Value, slope: Value) -> None:
    """From the derivative of a unit's output to those of its cell and of its gates' sums a round before."""
    size, half, own = 5 * shape.hidden * LANES, w.number(0.5), w.place((j, LANES), lane)
    kept = w.place((t, size), (j, 5 * LANES), lane)
    add, forget, new, show = (w.load("kept", kept, gate * LANES) for gate in range(4))
    cell, bent = w.load("kept", (before(w, t), size), (j, 5 * LANES), 4 * LANES, lane), w.load("bent", own)
    of_cell = w.fma(w.times(slope, w.share(show)), w.bend(bent), w.load("cells", own))
    w.store(w.times(of_cell, w.share(forget)), "cells", own)
    found = (
        w.times(of_cell, half, new, w.bend(add)),
        w.times(of_cell, half, cell, w.bend(forget)),
        w.times(of_cell, w.share(add), w.bend(new)),
        w.times(slope, half, bent, w.bend(show)),
    )
    for gate, x in enumerate(found):
        w.store(x, "sums", sums, (j, 4 * LANES), gate * LANES, lane)
