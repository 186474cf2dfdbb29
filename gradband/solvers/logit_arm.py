"""When to stop pulling an arm with beta rewards that costs λ per pull, if round t is discounted by γᵗ.

Rewards are Beta(v μ, v (1 − μ)). After k of them, L = Σ logit y says all about μ: its likelihood is
exp(v μ L) / B(v μ, v (1 − μ))^k. Of what the arm is worth to one who knows μ, R = m ∫ (μ − λ)⁺, others lose
at least X, with all integrals over prior times likelihood:

    X_k(L) = min(R_k(L), ∫ (λ − μ)⁺ + γ ∫ (1 + e^x)^−v X_{k+1}(L + x) dx).

Each way to stop loses ∫ e^{v μ L} Q(μ) dμ with Q ≥ 0, which is concave in e^{v L}; so X is concave in it,
and chords between the points of a grid err downwards, as does X = 0 to the right of the grid and at the
depth that bounds the work, where the mean is revealed. To the left of points where X = R, X = R too.
"""

import numpy as np

from gradband.solvers.compiled import compiled

STEP = 0.125  # between points of the grid: of v L, times the standard deviation of a coin with mean λ
WIDTH = 5.0  # of the grid, in standard deviations of L
MEANS = 240  # nodes of integrals over μ
LEAST = 1e-8  # mass of a kernel that is left out at either end


def losses(
    shape: tuple[float, float], v: float, rounds: int, depth: int, charges: np.ndarray, step: float = STEP
) -> np.ndarray:
    """X before the first pull, for each charge in (0, 1), and m = `rounds`."""
    from scipy.special import betaincinv, betaln, digamma, polygamma, roots_legendre

    node, weight = roots_legendre(MEANS)
    mu = np.clip(betaincinv(*shape, (node + 1) / 2), 1e-12, 1 - 1e-12)
    found = np.empty(len(charges))
    for i, charge in enumerate(charges):
        up, down = v * charge, v * (1 - charge)
        drift, sd = digamma(up) - digamma(down), np.sqrt(polygamma(1, up) + polygamma(1, down))
        wide = step / v / np.sqrt(charge * (1 - charge))
        width = WIDTH * sd / wide
        low, high = betaincinv(up, down, LEAST), betaincinv(down, up, LEAST)
        first = int(np.floor((np.log(low) - np.log1p(-low) - drift) / wide))
        last = int(np.ceil((np.log1p(-high) - np.log(high) - drift) / wide))
        first, last = (int(np.clip(end, -3 * width, 3 * width)) for end in (first, last))
        kernel = _kernel(v, charge, drift, wide, first, last)
        rates = betaln(v * mu, v * (1 - mu)) - betaln(up, down) - v * (mu - charge) * drift
        logs = v * (mu - charge) * wide
        nodes = np.stack([weight / 2, mu - charge, rates, logs])
        found[i] = _pass(rounds, depth, width, first, kernel, nodes)
    return found


def _kernel(v: float, charge: float, drift: float, step: float, first: int, last: int) -> np.ndarray:
    """Weights of the points first … last, from chords that are linear in e^{v x}, under the mean λ."""
    from scipy.special import betaln, roots_legendre

    node, weight = roots_legendre(6)
    tilt = v * charge
    left = drift + step * np.arange(first, last)[:, None]
    x = left + step * (node + 1) / 2
    density = np.exp(tilt * x - v * np.logaddexp(0, x) - betaln(tilt, v - tilt)) * weight * step / 2
    near = np.expm1(v * (x - left - step)) / np.expm1(-v * step)
    far = np.expm1(v * (x - left)) / np.expm1(v * step)
    # Chords are of X; points have e^{−v λ L} X.
    near = (density * np.exp(-tilt * (x - left)) * near).sum(1)
    far = (density * np.exp(-tilt * (x - left - step)) * far).sum(1)
    return np.append(near, 0.0) + np.append(0.0, far)


@compiled(fastmath={"contract", "nsz", "reassoc"})
def _pass(
    rounds: int,
    depth: int,
    width: float,
    first: int,
    kernel: np.ndarray,
    nodes: np.ndarray,
) -> float:
    """X at the root, times e^{−v λ L} = 1. Points are numbered from the middle of a level's grid.

    `nodes` [4, MEANS] has each mean's share of the prior, its excess over λ, and how its logarithm falls
    with k and grows with a step.
    """
    share, excess, rates, logs = nodes[0], nodes[1], nodes[2], nodes[3]
    discount, size = 1 - 1 / rounds, len(kernel)
    room = int(width * np.sqrt(depth + 1.0)) + 2
    extra = max(-first, 0) + 1  # points to the left of a grid that the level before looks at
    lost, after = np.zeros(2 * room + extra), np.zeros(2 * room + extra)
    terms, grown = np.empty(len(share)), np.exp(logs)
    ahead = 0
    for k in range(depth - 1, -1, -1):
        half = int(width * np.sqrt(k + 1.0)) + 1
        start = -half - extra
        for q in range(len(share)):
            terms[q] = share[q] * np.exp(-k * rates[q] + start * logs[q])
        for i in range(start, half + 1):
            known, cost = 0.0, 0.0
            for q in range(len(share)):
                value = terms[q] * excess[q]
                known += max(value, 0.0)
                cost -= min(value, 0.0)
                terms[q] *= grown[q]
            known *= rounds
            if i < -half:
                lost[i - start] = known
                continue
            total = 0.0
            if k < depth - 1:
                # Point j of the next level is at j + ahead + extra; there are 2 ahead + 1 + extra of them.
                begin = i + first + ahead + extra
                low = max(0, -begin)
                high = min(size, 2 * ahead + 1 + extra - begin)
                for o in range(low, high):
                    total += kernel[o] * after[begin + o]
            rest = cost + discount * total
            lost[i - start] = min(known, rest)
            if i == -half and rest < known:
                lost[:extra] = 0.0  # not stopped here, so perhaps not to the left either
        ahead = half
        lost, after = after, lost
    return after[ahead + extra]
