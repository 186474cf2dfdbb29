"""How long NumPy takes for the matrix products of an LSTM's iteration.

In each round a rollout multiplies the gates [4d, d + 2K] and the head [K, d] by a vector each. The
derivatives with respect to vectors cost as much again, and so do those with respect to matrices. Nothing
that learns the LSTM in this way can be faster than these products.
"""

import time

import numpy as np

WIDTHS = (128, 512, 1000)  # rollouts in a product


def operations(arms: int = 2, hidden: int = 50, rollouts: int = 1000, horizon: int = 200) -> int:
    """Multiplications and additions in the products of an iteration, forward and back."""
    gates = 4 * hidden * (hidden + 2 * arms)
    head = arms * hidden
    return 3 * 2 * (gates + head) * rollouts * horizon


def speed(width: int, arms: int = 2, hidden: int = 50, repeats: int = 10) -> float:
    """Operations a second of the gates' product [4d, d + 2K] [d + 2K, width], at its best."""
    rng = np.random.default_rng(0)
    inputs = hidden + 2 * arms
    gates = rng.random((4 * hidden, inputs), np.float32)
    memory = rng.random((inputs, width), np.float32)
    out = gates @ memory
    work = 2 * gates.size * width
    count = 1 + 2 * 10**8 // work
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(count):
            np.matmul(gates, memory, out=out)
        best = min(best, time.perf_counter() - began)
    return work * count / best


def seconds() -> float:
    """Seconds for the products of an iteration at the best speed, on as many cores as NumPy uses."""
    return operations() / max(speed(width) for width in WIDTHS)
