"""Explore-then-commit on two Gaussian arms in closed form (Theorem 1, Appendix A)."""

import math
from collections.abc import Sequence


def explore_then_commit_reward(
    means: Sequence[float], horizon: int, theta: float, sd: float = 1.0
) -> float:
    """Expected n-round reward of randomised explore-then-commit on arms N(μ_i, sd²).

    For whole θ it is μ₁ n − Δ [θ + Φ(−Δ √(θ/2) / sd) (n − 2θ)] with μ₁ > μ₂ and Δ = μ₁ − μ₂; between
    whole numbers it is linear. Concave in θ.

    >>> explore_then_commit_reward([1.0, 1.0], horizon=10, theta=2.5)
    10.0
    """
    best, gap = max(means), abs(means[0] - means[1])

    def at(pulls: int) -> float:
        wrong = math.erfc(gap * math.sqrt(pulls / 2) / sd / math.sqrt(2)) / 2
        return best * horizon - gap * (pulls + wrong * (horizon - 2 * pulls))

    lower = math.floor(theta)
    fraction = theta - lower
    return (1 - fraction) * at(lower) + (fraction * at(lower + 1) if fraction else 0)
