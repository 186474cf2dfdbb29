"""Two arms ±x of a linear bandit, with x ~ N(0, I) in each round: the optimum and Thompson sampling.

Both arms show the same, so no policy learns more than another, and greedy choices are optimal. With the
prior's variance v₀ of xᵀθ, the posterior's v, and c = √(2/π), a round costs c (√v₀ − √(v₀ − v)) at least,
and Thompson sampling c v/√v₀. By symmetry v/v₀ is distributed as an entry 1/(1 + Q) on the diagonal of the
posterior's covariance over the prior's, independent of |x|.

After m rounds Q is a continued fraction of independent χ², Q = Q(m, d − 1), because

    Q(m, p) = ρ² aᵀ(I + ρ² B Bᵀ)⁻¹ a = ρ² χ²_m / (1 + Q(p, m − 1)),  Q(0, p) = 0,

for normal a [m] and B [m, p], ρ being θ's deviation over the noise's: turn a into the first direction, and
the first row of B is to the rows below it what a is to B. So expectations are a chain of integrals over one
variable each, of functions that are smooth in 1/√(1 + Q).
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from gradband.core.errors import positive, whole

SIGN = math.sqrt(2 / math.pi)  # E |z| of a standard normal z
DEGREE = 40  # Chebyshev points of a function of 1/√(1 + Q)
NODES, REACH = 160, 9.0  # of integrals over χ, and how far they reach around √k


class Regrets(NamedTuple):
    """Bayes regrets over n rounds; of a list of contexts, an array of each."""

    optimal: float | np.ndarray
    thompson: float | np.ndarray
    uniform: float | np.ndarray


def regrets(dimension: int, horizon: int, prior_sd: float = 1.0, noise_sd: float = 1.0) -> Regrets:
    """Regrets of the optimal policy, of Thompson sampling and of uniform play, θ ~ N(0, prior_sd² I).

    >>> print(*(round(regret, 3) for regret in regrets(dimension=3, horizon=30)))
    4.815 7.166 38.197
    """
    d, n = whole("dimension", dimension), whole("horizon", horizon)
    ratio = positive("prior_sd", prior_sd) / positive("noise_sd", noise_sd)
    at, back = _points()
    step = cache(lambda k: _step(k, ratio, at, back))
    lost = np.ones(2)  # of √v₀ in the first round: by the best choice, by Thompson sampling
    for rounds in range(1, n):
        chi, weight = _chi(rounds)
        q = (ratio * chi[:, None] * at) ** 2
        value = np.stack([weight @ (1 - np.sqrt(q / (1 + q))), weight @ (1 / (1 + q))], 1)
        left, after = d - 1, rounds - 1
        while left:
            value = step(left) @ value
            left, after = after, left - 1
        lost += (back @ value).sum(0)  # nothing follows: the value at Q = 0, where 1/√(1 + Q) is 1
    length = math.sqrt(2) * math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))  # E |x|
    optimal, thompson = (SIGN * prior_sd * length * lost).tolist()
    return Regrets(optimal, thompson, SIGN * prior_sd * length * n)


def _points() -> tuple[np.ndarray, np.ndarray]:
    """Chebyshev points of [0, 1], and the matrix from values there to coefficients."""
    angle = np.pi * (np.arange(DEGREE) + 0.5) / DEGREE
    back = 2 / DEGREE * np.cos(np.arange(DEGREE)[:, None] * angle)
    back[0] /= 2
    return (1 + np.cos(angle)) / 2, back


_legendre = cache(np.polynomial.legendre.leggauss)


def _chi(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of an expectation over χ with k degrees of freedom."""
    low, high = max(0.0, math.sqrt(k) - REACH), math.sqrt(k) + REACH
    node, weight = _legendre(NODES)
    node = low + (high - low) * (node + 1) / 2
    density = (k - 1) * np.log(node) - node**2 / 2
    weight = weight * np.exp(density - density.max())
    return node, weight / weight.sum()


def _step(k: int, ratio: float, at: np.ndarray, back: np.ndarray) -> np.ndarray:
    """The matrix from a function's values at the points to those of its mean at ρ² χ²_k / (1 + Q)."""
    chi, weight = _chi(k)
    inner = 1 / np.hypot(1, ratio * chi[:, None] * at)  # [nodes, points]
    basis = np.polynomial.chebyshev.chebvander(2 * inner - 1, DEGREE - 1)
    return np.tensordot(weight, basis, 1) @ back
