"""Intervals for the arms' means that hold although a policy chose what to pull.

All functions take arrays [..., K] or of any other shape, so that many tests can be measured at once.
"""

import math
from statistics import NormalDist

import numpy as np

from gradband.core.special import lgamma, xlogy
from gradband.play.reporting.scores import ARM_SUMS

A = B = 0.5  # of the mixture in the confidence sequence: Jeffreys's Beta(½, ½), good for small rates too
HALVINGS = 60
TUNED_FOR = 1000.0  # pulls at which the sequence for unbounded rewards is narrowest

Interval = tuple[np.ndarray, np.ndarray]


NOTHING = {True: np.array([[0.0], [1.0]]), False: np.array([[-math.inf], [math.inf]])}
"""intervals of a mean of which nothing is known, for rewards in [0, 1] or any"""


def quantile(confidence: float) -> float:
    """The normal quantile of a two-sided interval.

    >>> round(quantile(0.95), 3)
    1.96
    """
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def aipw_estimate(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weighted mean of AIPW scores and its standard error, from `ARM_SUMS`; NaN without decisions."""
    found = dict(zip(ARM_SUMS, sums, strict=True))
    weight = np.where(found["h"] > 0, found["h"], np.nan)
    mean = found["hg"] / weight
    square = found["h2g2"] - 2 * mean * found["h2g"] + mean**2 * found["h2"]
    return mean, np.sqrt(np.maximum(square, 0)) / weight


def wald_interval(sums: np.ndarray, confidence: float) -> Interval:
    """The usual interval around the AIPW estimate: its standard error times a normal quantile."""
    mean, se = aipw_estimate(sums)
    return mean - quantile(confidence) * se, mean + quantile(confidence) * se


def score_interval(sums: np.ndarray, confidence: float) -> Interval:
    """Means μ that a score test does not reject, for rewards of 0 and 1.

    The variance of hΓ, given the past, is μ (1 − μ) + (1 − e) (m − μ)², so nothing has to be estimated:
    (Σ h (Γ − μ))² ≤ z² Σ of these is a quadratic inequality in μ, as Wilson's for one proportion.
    """
    found = dict(zip(ARM_SUMS, sums, strict=True))
    z2, weight, score = quantile(confidence) ** 2, found["h"], found["hg"]
    first = weight**2 + z2 * (found["chances"] - found["rest"])
    half = weight * score + z2 * (found["chances"] / 2 - found["rest_m"])
    last = score**2 - z2 * found["rest_m2"]
    first = np.where(first > 0, first, np.nan)
    root = np.sqrt(np.maximum(half**2 - first * last, 0))
    return np.clip((half - root) / first, 0, 1), np.clip((half + root) / first, 0, 1)


def log_mixture(ones: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """log ∫ p^ones (1 − p)^zeros dBeta(p)."""
    return log_beta(ones + A, zeros + B) - log_beta(np.array(A), np.array(B))


def log_beta(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def evidence_against(mean: np.ndarray, pulls: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """The logarithm of a betting score against the mean `mean`, for rewards in [0, 1].

    It is the logarithm of a supermartingale if the arm has this mean: ∏ (p/μ)^Y ((1−p)/(1−μ))^(1−Y) has
    expectation ≤ 1, because each factor is convex in Y. So it ever exceeds log(1/α) with probability ≤ α,
    under any policy, however often one looks.
    """
    zeros = pulls - sums
    return log_mixture(sums, zeros) - xlogy(sums, mean) - xlogy(zeros, 1 - mean)


def sequence(pulls: np.ndarray, sums: np.ndarray, confidence: float) -> Interval:
    """The confidence sequence for rewards in [0, 1]: all means without much evidence against them."""
    bar = -math.log1p(-confidence)
    middle = sums / np.maximum(pulls, 1)
    ends = []
    for inside, outside, certain in (
        (middle, np.zeros_like(middle), sums == 0),
        (middle, np.ones_like(middle), sums == pulls),
    ):
        for _ in range(HALVINGS):
            between = (inside + outside) / 2
            fine = evidence_against(between, pulls, sums) < bar
            inside, outside = np.where(fine, between, inside), np.where(fine, outside, between)
        ends.append(np.where(certain | (pulls == 0), np.round(outside), outside))
    return ends[0], ends[1]


def normal_sequence(
    pulls: np.ndarray, sums: np.ndarray, squares: np.ndarray, confidence: float
) -> Interval:
    """An asymptotic confidence sequence for unbounded rewards (Waudby-Smith et al., 2024).

    A normal mixture with the arm's sample variance, so it holds for many pulls, not for few; infinite below
    two pulls.
    """
    miss = 1 - confidence
    rho2 = (-2 * math.log(miss) + math.log(-2 * math.log(miss)) + 1) / TUNED_FOR
    n = np.maximum(pulls, 2)
    mean = sums / np.maximum(pulls, 1)
    variance = np.maximum(squares - pulls * mean**2, 0) / (n - 1)
    inside = 2 * (n * rho2 + 1) / (n**2 * rho2) * np.log(np.sqrt(n * rho2 + 1) / miss)
    half = np.where(pulls < 2, math.inf, np.sqrt(variance * inside))
    return mean - half, mean + half


def evidence_of_lead(
    pulls: np.ndarray, sums: np.ndarray, other_pulls: np.ndarray, other_sums: np.ndarray
) -> np.ndarray:
    """The logarithm of a betting score against "this arm is not better than the other", for [0, 1].

    The product of both arms' scores, at the means that favour the hypothesis most: both pooled. It ever
    exceeds log(1/α) with probability ≤ α if the hypothesis is true.
    """
    n, s = pulls + other_pulls, sums + other_sums
    pooled = s / np.maximum(n, 1)
    likelihood = xlogy(s, pooled) + xlogy(n - s, 1 - pooled)
    together = log_mixture(sums, pulls - sums) + log_mixture(other_sums, other_pulls - other_sums)
    leads = sums * other_pulls > other_sums * pulls
    return np.where(leads, together - likelihood, 0.0)
