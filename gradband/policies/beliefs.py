"""Beliefs about linear rewards: what policies know of θ where arms or visitors have features.

The expected reward of an arm with features x is xᵀθ, or its logistic function for rewards of 0 and 1. The
belief is θ ~ N(m, S Sᵀ), for one θ [d] that all arms share, or for one per arm [K, d]. A reward changes S
by Potter's square-root form of the Kalman filter: S Sᵀ is positive definite whatever the rounding, also
after 10⁵ rewards in single precision.
"""

from typing import NamedTuple

import numpy as np
from numpy.polynomial import hermite_e

from gradband.core.arrays import Array, namespace, nn, one_hot

NODES = hermite_e.hermegauss(7)[0]  # for the moments of a logistic posterior
LOG_WEIGHTS = np.log(hermite_e.hermegauss(7)[1]) + NODES**2 / 2
SMALL = 1e-2  # variance up to which such a posterior is as good as normal
LITTLE = 1e-2  # the least reward that is expected of an arm when another's is shared out
STEPS = 10  # of Newton's method for a logistic posterior's mode, enough for variances up to 3000


class Belief(NamedTuple):
    """θ ~ N(mean, root rootᵀ), and the rewards behind it."""

    mean: Array
    """m [d], or [K, d] with one θ per arm"""
    root: Array
    """S [d, d] or [K, d, d]"""
    rewards: Array
    """how many rewards were observed"""

    @classmethod
    def before(cls, mean: Array, sds: Array, arms: int) -> "Belief":
        """Before the first reward: coordinates of θ are independent, with means and deviations [d].

        With `arms` there is one θ for each of them.
        """
        xp = namespace(mean, sds)
        root = xp.where(xp.eye(mean.shape[0]) > 0, sds[None], 0 * sds[None])
        if arms:
            mean, root = (xp.stack([each] * arms) for each in (mean, root))
        return cls(mean, root, xp.zeros(()))


class Seen(NamedTuple):
    """A belief about the arms in the round's context."""

    belief: Belief
    features: Array
    """x of every arm [K, d], or of all arms together [d]"""
    spread: Array
    """Sᵀ x of every arm [K, d]"""
    mean: Array
    """mᵀ x: what the arms' linear functions are expected to be [K]"""

    @property
    def variance(self) -> Array:
        """The variances of the arms' linear functions [K]."""
        return (self.spread**2).sum(1)

    @property
    def best(self) -> Array:
        """Which arm has the greatest mean, as booleans [K]; the first of them if several have."""
        return one_hot(self.mean.argmax(), self.mean.shape[0])

    @property
    def apart(self) -> Array:
        """The variances of the arms' differences to the one with the greatest mean [K]."""
        xp, best = namespace(self.mean), self.best
        if self.belief.mean.ndim == 2:  # what is believed of different arms is independent
            return xp.where(best, 0, self.variance + (self.variance * best).sum())
        return ((self.spread - (self.spread * best[:, None]).sum(0)[None]) ** 2).sum(1)

    @property
    def gap(self) -> Array:
        """How far means are below the greatest [K]."""
        return self.mean.max() - self.mean


def see(belief: Belief, features: Array) -> Seen:
    """The belief about every arm, given features [K, d] or [d]."""
    if belief.mean.ndim == 2:
        rows = features if features.ndim == 2 else features[None]
        spread = (belief.root * rows[..., None]).sum(1)
        return Seen(belief, features, spread, (belief.mean * rows).sum(1))
    if namespace(features, belief.root) is np:  # an array [K, d, d] would be large
        return Seen(belief, features, features @ belief.root, features @ belief.mean)
    spread = (features[:, :, None] * belief.root[None]).sum(1)
    return Seen(belief, features, spread, (features * belief.mean[None]).sum(1))


def relief(seen: Seen, weights: Array, noise: Array | float) -> Array:
    """By how much a reward of each arm [K] would lower Σ_j w_j Var(difference of arm j to the best).

    With the best arm b, weights w [K] and noise variances σ², that is Σ_j w_j Cov(i, j − b)² / (vᵢ + σ²).
    """
    xp, best, v = namespace(seen.mean), seen.best, seen.variance
    if seen.belief.mean.ndim == 2:  # a reward tells of its own arm alone
        own = xp.where(best, (weights * ~best).sum(), weights)
        return own * v**2 / (v + noise)
    apart = seen.spread - (seen.spread * best[:, None]).sum(0)[None]
    if xp is np:
        told = seen.spread @ ((weights[:, None] * apart).T @ apart)
    else:
        rivals = ((weights[:, None] * apart)[:, :, None] * apart[:, None, :]).sum(0)  # [d, d]
        told = (seen.spread[:, None, :] * rivals[None]).sum(-1)
    return (told * seen.spread).sum(1) / (v + noise)


def observe(seen: Seen, arm: Array, reward: Array, noise: Array | float, logistic: bool) -> Belief:
    """The belief after an arm's reward, with the noise variance σ² of gaussian rewards.

    With f = Sᵀx, v = fᵀf and α = 1 / (v + σ²), m moves by α (r − mᵀx) S f, and S by − α / (1 + √(α σ²)) S f
    fᵀ. After a logistic reward the belief is the normal one with the mean and the covariance of the
    posterior (assumed-density filtering), which differ from those before along S f alone.
    """
    belief, (pulled, f, mean) = seen.belief, _of(seen, arm)
    xp = namespace(f)
    own = belief.root if belief.root.ndim == 2 else (belief.root * pulled[:, None, None]).sum(0)
    along, v = (own * f[None]).sum(1), (f**2).sum()
    if logistic:
        surprise, less = _moments(mean, v, reward)
    else:
        share = 1 / (v + noise)
        surprise, less = (reward - mean) / (v + noise), share / (1 + xp.sqrt(share * noise))
    shift, shrink = surprise * along, less * along[:, None] * f[None]
    if belief.root.ndim == 3:
        shift, shrink = pulled[:, None] * shift[None], pulled[:, None, None] * shrink[None]
    return Belief(belief.mean + shift, belief.root - shrink, belief.rewards + 1)


def observe_all(
    seen: Seen, arm: Array, reward: Array, noise: Array | float, logistic: bool, weight: Array | float
) -> Belief:
    """The belief after an arm's reward r where the rewards of all arms add up to 1, with one θ per arm.

    Of the others' share 1 − r, an arm j is expected to have y = (1 − r) q, with q ∝ its expected reward.
    That is observed as a reward of weight w, with noise σ² / w, in so far as it is known: its variance u =
    (1 − r)² q (1 − q) is added back to what is left of v. With two arms and w = 1, both arms' rewards are
    known. After logistic rewards the beliefs about the others are Laplace's.
    """
    xp, f, v = namespace(seen.mean), seen.spread, seen.variance
    belief = observe(seen, arm, reward, noise, logistic)
    others = ~one_hot(arm, seen.mean.shape[0])
    expected = nn(seen.mean).sigmoid(seen.mean) if logistic else seen.mean
    q = xp.where(others, xp.maximum(expected, np.float32(LITTLE)), 0)
    q = q / xp.maximum(q.sum(), np.float32(LITTLE))
    share, unsure = (1 - reward) * q, (1 - reward) ** 2 * q * (1 - q)
    if logistic:
        surprise, spread = _mode(seen.mean, weight * v, share)
        surprise, known = weight * surprise, weight * xp.maximum(1 / spread - unsure, 0)
        resolved = known / (1 + v * known)
    else:
        gain = weight / (weight * v + noise)
        surprise, resolved = gain * (share - seen.mean), gain * xp.maximum(1 - gain * unsure, 0)
    less = resolved / (1 + xp.sqrt(xp.maximum(1 - v * resolved, 0)))
    along = (seen.belief.root * f[:, None, :]).sum(2)
    shift = xp.where(others, surprise, 0)[:, None] * along
    shrink = (xp.where(others, less, 0)[:, None] * along)[:, :, None] * f[:, None, :]
    return belief._replace(mean=belief.mean + shift, root=belief.root - shrink)


def correct(seen: Seen, arm: Array, change: Array | float, noise: Array | float) -> Belief:
    """The belief if a gaussian reward of an arm had been greater by `change`: m moves by change / σ² S f.

    S does not depend on rewards, so this is exact, whatever was observed since.
    """
    belief, (pulled, f, _) = seen.belief, _of(seen, arm)
    if belief.root.ndim == 2:
        shift = (belief.root * f[None]).sum(1)
    else:
        shift = pulled[:, None] * (belief.root * f[None, None]).sum(2)
    return belief._replace(mean=belief.mean + change / noise * shift)


def _of(seen: Seen, arm: Array) -> tuple[Array, Array, Array]:
    """Which arm it is, as zeros and a one [K], its Sᵀx [d] and its mean."""
    pulled = one_hot(arm, seen.mean.shape[0]).astype(seen.mean.dtype)
    return pulled, (pulled[:, None] * seen.spread).sum(0), (pulled * seen.mean).sum()


def _moments(mean: Array, v: Array, reward: Array) -> tuple[Array, Array]:
    """How far the mean of xᵀθ rises, over v, and what S loses, as multiples of S f and of S f fᵀ.

    They are those of the posterior of η = xᵀθ ~ N(mean, v) after a logistic reward, by Gauss-Hermite
    quadrature around its mode, with the width of Laplace's approximation. Where v is small, that
    approximation is the posterior but for rounding.
    """
    xp = namespace(mean, v)
    surprise, noise = _mode(mean, v, reward)
    # The width is √(v / (1 + v w)), with the curvature w at the mode.
    left, off = noise / (noise + v), v * surprise
    points = mean + off + xp.sqrt(v * left) * xp.asarray(NODES, mean.dtype)
    mode = mean + off

    def log_density(eta: Array) -> Array:
        softplus = xp.maximum(eta, 0) + xp.log1p(xp.exp(-xp.abs(eta)))
        return reward * eta - softplus - (eta - mean) ** 2 / (2 * v)

    weights = xp.asarray(LOG_WEIGHTS, mean.dtype) + log_density(points) - log_density(mode)
    weights = xp.exp(weights - weights.max())
    weights = weights / weights.sum()
    middle = (weights * xp.asarray(NODES, mean.dtype)).sum()
    spread = (weights * (xp.asarray(NODES, mean.dtype) - middle) ** 2).sum()
    wide = v > SMALL
    rest = xp.where(wide, xp.clip(left * spread, np.float32(1e-6), 1), left)
    resolved = xp.where(wide, (1 - rest) / v, 1 / (noise + v))
    more = xp.where(wide, xp.sqrt(left / v) * middle, 0)
    return surprise + more, resolved / (1 + xp.sqrt(rest))


def _mode(mean: Array, v: Array, reward: Array) -> tuple[Array, Array]:
    """r − p at the mode η = mean + v (r − p) of the posterior along S f, and 1 / (p (1 − p)) there.

    p is the logistic function of η. The excess η − mean − v (r − p) is convex below 0 and concave above:
    Newton's steps from a point between 0 and the mode come closer without passing it.
    """
    xp, sigmoid = namespace(mean, v), nn(mean).sigmoid
    low, high = mean + v * (reward - 1), mean + v * reward
    eta = xp.where(low + high < 0, xp.minimum(high, 0), xp.maximum(low, 0))
    for _ in range(STEPS):
        p = sigmoid(eta)
        eta = eta - (eta - mean - v * (reward - p)) / (1 + v * p * (1 - p))
    p = sigmoid(eta)
    return reward - p, 1 / xp.maximum(p * (1 - p), np.float32(1e-7))
