"""Sums over decisions from which estimates follow, for one test or for many at once.

In these formulas a decision pulls arm I, chosen with the logged probabilities e [K], and has the reward Y;
m [K] are the arms' plug-in means, known when it is made. Its AIPW score for arm k is

    Γ_k = m_k + 1{I = k} (Y − m_k) / e_k,

whose mean is that of the arm, whatever the policy did before. Scores are weighted by h = √e_k, which makes
their variances alike and the weighted mean asymptotically normal (Hadad et al., 2021: constant allocation).
"""

import dataclasses

import numpy as np

SHRINKAGE = 10.0
"""pseudo-pulls, with the mean of all arms, in an arm's plug-in mean"""


@dataclasses.dataclass(frozen=True)
class Played:
    """Decisions with their rewards: arrays [..., K], with one entry per decision or batch before K."""

    shares: np.ndarray  # probabilities, from which the weights come
    propensities: np.ndarray  # the same, exact for arms that were pulled
    means: np.ndarray  # the plug-in means m
    pulls: np.ndarray
    sums: np.ndarray  # of the rewards of these pulls
    squares: np.ndarray  # of their squares

    @property
    def inverse(self) -> np.ndarray:
        """1 / e, and 0 for arms that could not be pulled."""
        possible = self.shares > 0
        return np.where(possible, 1 / np.where(possible, self.propensities, 1), 0)


def plug_in_means(pulls: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """The arms' running means [..., K], shrunk a little to the mean of all arms; 0 at first.

    >>> plug_in_means(np.array([2.0, 0.0]), np.array([1.0, 0.0]))
    array([0.36111111, 0.33333333])
    """
    together = sums.sum(-1, keepdims=True) / (pulls.sum(-1, keepdims=True) + 1)
    return (sums + SHRINKAGE * together) / (pulls + SHRINKAGE)


ARM_SUMS = ("h", "hg", "h2", "h2g", "h2g2", "chances", "rest", "rest_m", "rest_m2")
"""Σ h, Σ hΓ, Σ h², Σ h²Γ, Σ h²Γ², decisions with e > 0, of these Σ (1 − e), Σ (1 − e) m, Σ (1 − e) m²"""


def arm_sums(played: Played, weights: np.ndarray | None = None) -> np.ndarray:
    """`ARM_SUMS` of each decision [9, ..., K], with √e as weights h unless others are given."""
    e, m, inverse = played.shares, played.means, played.inverse
    count = played.pulls.sum(-1, keepdims=True)
    off = played.sums - played.pulls * m
    off2 = played.squares - 2 * m * played.sums + played.pulls * m**2
    scores = count * m + off * inverse
    scores2 = count * m**2 + 2 * m * off * inverse + off2 * inverse**2
    chances = count * (e > 0)
    rest = chances * (1 - e)
    h = np.sqrt(e) if weights is None else weights
    h2 = h**2
    return np.stack(
        [count * h, h * scores, count * h2, h2 * scores, h2 * scores2, chances, rest, rest * m, rest * m**2]
    )


VALUE_SUMS = ("n", "y", "y2", "w", "wy", "w2", "w2y", "wy2", "w2y2", "dr", "dr2", "gain", "gain2")
"""counts, and sums of products of rewards y and weights w = (1/K)/e; of DR scores, and of y − DR score"""


def value_sums(played: Played, active: np.ndarray) -> np.ndarray:
    """`VALUE_SUMS` of each decision [13, ...], against an equal split over the `active` arms [..., K].

    Decisions in which an active arm could not be pulled say nothing about an equal split, and count 0.
    """
    known = np.all((played.shares > 0) | ~active, axis=-1, keepdims=True)
    arms = active.sum(-1, keepdims=True)
    n, y, y2 = (np.where(known, x, 0) for x in (played.pulls, played.sums, played.squares))
    w = played.inverse / arms
    offset = np.where(active, played.means, 0).sum(-1, keepdims=True) / arms - w * played.means
    dr, dr2 = offset * n + w * y, offset**2 * n + 2 * offset * w * y + w**2 * y2
    gain, gain2 = y - dr, y2 - 2 * (offset * y + w * y2) + dr2
    columns = (n, y, y2, w * n, w * y, w**2 * n, w**2 * y, w * y2, w**2 * y2, dr, dr2, gain, gain2)
    return np.stack([column.sum(-1) for column in columns])


def lead_sums(played: Played) -> np.ndarray:
    """What each decision adds to the evidence that arm a is better than arm b [..., K (a), K (b)].

    It is the logarithm of a bet. If m_a > m_b, the reward of either arm is bet to have the mean m_I instead
    of μ₀ = (e_a m_a + e_b m_b) / (e_a + e_b), which one would expect if both arms were alike:

        Y m_I / μ₀ + (1 − Y) (1 − m_I) / (1 − μ₀).

    The expectation over I and Y is 1 if both means are equal, whatever they are, and less if b is better
    (Turner, Ly and Grünwald, 2024, here with logged probabilities). So the product over all decisions ever
    exceeds 1/α with probability ≤ α. Rewards are in [0, 1]; several pulls in a batch, 0 or 1.
    """
    e, m = played.shares, np.clip(played.means, 1e-9, 1 - 1e-9)
    both = e[..., :, None] + e[..., None, :]
    alike = (e * m)[..., :, None] + (e * m)[..., None, :]
    alike = np.where(both > 0, alike / np.where(both > 0, both, 1), 0.5)
    total = np.zeros(alike.shape)
    for mine, pulls, sums in (
        (m[..., :, None], played.pulls[..., :, None], played.sums[..., :, None]),
        (m[..., None, :], played.pulls[..., None, :], played.sums[..., None, :]),
    ):
        up, down = mine / alike, (1 - mine) / (1 - alike)
        part = sums - np.floor(sums)  # of a single reward between 0 and 1
        ones, zeros = np.floor(sums), np.floor(pulls - sums)
        total += ones * np.log(up) + zeros * np.log(down)
        total += np.where(part > 0, np.log(part * up + (1 - part) * down), 0)
    possible = (e > 0)[..., :, None] & (e > 0)[..., None, :]
    return np.where((m[..., :, None] > m[..., None, :]) & possible, total, 0)
