"""A critic: predicts how much regret is still to come, and how much of it was luck.

The regret-to-go G_t of a rollout varies with what happened before round t: a rollout that believes in the
wrong arm loses more. A prediction from φ_t, which does not depend on the arm of round t, may be subtracted
from G_t in Theorem 2 without a bias. G_t also varies with the luck of later rewards. A reward less its
mean, Y_s − μ, is zero on average whatever came before, and so is ψ_s, any multiple of it that is chosen
before the reward is seen: Σ_{s ≥ t} ψ_s may be subtracted too.

Here φ_t are a few features of the gaps Δ_i = μ* − μ_i and the probabilities p_t(i), which exist for every
policy and any number of arms, and ψ_s are their differences between a reward of 1 and a reward of 0,
times Y_s − μ. What is subtracted is V_t = w_t · x_t, linear in x_t = φ_t for the baseline critic, and in
x_t = (φ_t, Σ_{s ≥ t} ψ_s) for the baseline luck, which takes two more updates of the policy per round. The
weights w_t are fitted by least squares to earlier batches, never to the one that they serve.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

BELIEFS = 12
SURPRISES = 9  # the beliefs that change from round to round
MEMORY = 0.9  # weight of earlier batches
RIDGE = 1e-3  # relative to the features' mean squares


def beliefs(log_probs: Array, gaps: Array) -> Array:
    """φ [12, R, B] from log p_t [K, R, B] and the gaps Δ [K, 1, B].

    Powers of p, and of p^(1/4), which still tells beliefs apart where p is almost 0 or 1.
    """
    p = jnp.exp(log_probs)
    soft = jax.nn.softmax(jnp.maximum(log_probs, -80) / 4, axis=0)
    gaps = jnp.broadcast_to(gaps, p.shape)
    lost = (p * gaps).sum(0)
    seen = (
        jnp.ones_like(lost),
        gaps.mean(0),
        (gaps**2).mean(0),
        lost,
        lost**2,
        (p * gaps**2).sum(0),
        (p**2 * gaps).sum(0),
        (p**3 * gaps).sum(0),
        (soft * gaps).sum(0),
        (soft * gaps**2).sum(0),
        (soft**2 * gaps).sum(0),
        (soft**2 * gaps**2).sum(0),
    )
    return jnp.stack(seen)


def surprise(luck: Array, after: tuple[Array, Array], gaps: Array) -> Array:
    """ψ [9, R, B]: how a reward that was better or worse than its mean moves the next round's beliefs."""
    worst, best = (beliefs(log_probs, gaps)[-SURPRISES:] for log_probs in after)
    return luck[None] * (best - worst)


def moments(seen: Array, to_go: Array, counted: Array) -> Array:
    """Σ x (x, G)ᵀ [n, F, F + 1] over the counted rollouts, from x [n, F, R, B] and G [n, R, B]."""
    both = jnp.where(counted[None, None, None], jnp.concatenate([seen, to_go[:, None]], axis=1), 0)
    return jnp.einsum("tfrb,tgrb->tfg", seen, both)


@dataclasses.dataclass(frozen=True)
class Critic:
    """What the weights w [n, F] are fitted to: moments [n, F, F + 1] of earlier batches."""

    moments: np.ndarray

    @classmethod
    def blank(cls, features: int, rounds: int) -> "Critic | None":
        """A critic that has seen nothing, and predicts 0; None for a baseline without features."""
        return cls(np.zeros((rounds, features, features + 1))) if features else None

    def after(self, batch: np.ndarray) -> "Critic":
        """The critic after the moments of another batch."""
        return Critic(MEMORY * self.moments + batch)

    @property
    def weights(self) -> np.ndarray:
        squares, products = self.moments[..., :-1], self.moments[..., -1:]
        diagonal = np.einsum("tff->tf", squares)
        # A feature may be zero throughout, and all of them are before the first batch.
        penalty = RIDGE * diagonal + 1e-9 * diagonal.max(1, keepdims=True) + 1e-12
        ridge = squares + penalty[..., None] * np.eye(diagonal.shape[1])
        return np.linalg.solve(ridge, products)[..., 0].astype(np.float32)
