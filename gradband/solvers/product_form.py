"""What independent arms are worth together, if round t is discounted by γᵗ, γ = 1 − 1/m.

With J_i(λ) the advantage of arm i over its charge λ per pull, and e_i = 1 + J_i′ / m, the best policy earns

    V = m low + m ∫ (1 − Π_i e_i(λ)) dλ

above a λ below all means (Whittle's product form of the Gittins value). Integrating by parts, V grows with
each J_i if the others are convex. So chords of J_i between the charges of a grid err upwards.
"""

import numpy as np


def slopes(charges: np.ndarray, advantages: np.ndarray, rounds: float) -> np.ndarray:
    """e in each cell between charges, from J [..., charges]: 1 + ΔJ / (m Δλ)."""
    return np.clip(1 + np.diff(advantages) / (rounds * np.diff(charges)), 0.0, 1.0)


def value(charges: np.ndarray, factors: np.ndarray, counts: np.ndarray, rounds: float) -> float:
    """V, from e [kinds, cells] of each kind of arm and the number of arms of that kind.

    >>> charges = np.array([0.0, 0.5, 1.0])
    >>> value(charges, np.array([[0.0, 1.0]]), np.array([2]), rounds=10)  # two arms that pay .5 for sure
    5.0
    """
    product = (factors ** counts[:, None]).prod(0)
    return float(rounds * (charges[0] + np.diff(charges) @ (1 - product)))


def first_charges(shapes: np.ndarray, count: int) -> np.ndarray:
    """Charges in [0, 1] for beliefs Beta(a, b) [kinds, 2]: 0, 1, and `count` where means may be."""
    from scipy.special import betaincinv  # takes a while to import

    low = betaincinv(*shapes.T, 1e-3).min()
    high = 1 - betaincinv(*shapes.T[::-1], 1e-7).min()
    angle = np.linspace(0, np.pi / 2, count)
    return np.unique(np.concatenate([[0.0], low + (high - low) * np.sin(angle) ** 2, [1.0]]))


def refine(charges: np.ndarray, factors: np.ndarray, counts: np.ndarray, count: int) -> np.ndarray:
    """A grid of so many cells on which chords err least, from e [kinds, cells] on a coarser one.

    The error of a cell is proportional to its cube times Σ_{i ≠ j} e_i′ e_j′ times the product of the
    others.
    """
    middle, width = (charges[1:] + charges[:-1]) / 2, np.diff(charges)
    safe = np.maximum(factors, 1e-9)
    rate = np.gradient(safe, middle, axis=1) / safe * (counts[:, None] > 0)
    pairs = (counts @ rate) ** 2 - counts @ rate**2
    density = np.cbrt(np.maximum(pairs * (safe ** counts[:, None]).prod(0), 0.0))
    density = np.maximum.reduce([density, np.roll(density, 1), np.roll(density, -1)])
    total = density @ width
    share = np.append(0.0, np.cumsum((density + 0.15 * total) * width))
    return np.interp(np.linspace(0, share[-1], count + 1), share, charges)
