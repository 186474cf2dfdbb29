"""Bayes reward and its gradient by enumerating all histories."""

import dataclasses
import itertools
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core.arrays import pick
from gradband.core.errors import InputError
from gradband.core.pytrees import by_path
from gradband.exact.quadrature import best_mean
from gradband.policies import Params, Policy, binding
from gradband.policies.given import Given, unpack
from gradband.problems import Problem, as_problem, priors, rewards

LIMIT = 2_000_000  # pulls in all histories together


@dataclasses.dataclass(frozen=True)
class Exact:
    """Bayes reward r(n; θ) and regret, and the reward's gradient by parameter."""

    reward: float
    regret: float
    gradient: dict[str, np.ndarray]


def by_enumeration(policy: Given, problem: Problem | str | Path, params: Params | None = None) -> Exact:
    """The sum over all histories of their probability times their reward, in double precision.

    For Bernoulli rewards, a finite or beta prior, and (2K)^n histories that fit into memory. The
    gradient is that of Σ_h P_θ(h) R(h), the mean of the score-function estimator for the same policy,
    including what the policy holds fixed when it is differentiated.

    >>> from gradband import policies, problems
    >>> two_point = problems.named("two-point", horizon=2)
    >>> round(by_enumeration(policies.SoftElim(), two_point).reward, 6)
    1.0
    """
    problem = as_problem(problem)
    problem.one_by_one("enumeration")
    policy, params = unpack(policy, problem, params)
    bound = binding.check(policy, problem)
    if not bound.differentiable:
        raise InputError(f"{bound.name} has no density p(i | H) to enumerate")
    prior, arms, horizon = problem.prior, problem.arms, problem.horizon
    if not isinstance(prior.rewards, rewards.Bernoulli):
        raise InputError("enumeration needs Bernoulli rewards")
    if not isinstance(prior, priors.Finite | priors.Beta):
        raise InputError("enumeration needs a finite or beta prior")
    outcomes = 2 * arms
    if horizon * outcomes**horizon > LIMIT:
        longest = max((n for n in range(1, 64) if n * outcomes**n <= LIMIT), default=0)
        raise InputError(
            f"{outcomes}^{horizon} histories are too many: with {arms} arms a horizon of {longest} is "
            "feasible"
        )
    with jax.enable_x64(True):
        start = bound.init(jax.random.key(0)) if params is None else params
        start = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), float), start)
        digits = np.array(list(itertools.product(range(outcomes), repeat=horizon)))
        pulled, gained = digits % arms, (digits // arms).astype(np.float64)
        weight = (_reward_probability(prior, pulled, gained) * gained.sum(1))[:, None]

        def play(params: Params) -> tuple[Array, Array]:
            return jax.vmap(lambda a, y: _log_probability(bound, params, a, y))(pulled, gained)

        if problem.afterwards:
            one = np.append(gained, np.ones((len(gained), 1)), axis=1)  # the arm at the end pays once more
            chosen = np.asarray(play(start)[1]).T  # [latents, H]
            ends = [
                _reward_probability(prior, np.append(pulled, arm[:, None], axis=1), one) for arm in chosen
            ]
            weight = weight + problem.afterwards * np.stack(ends, axis=1)

        def value(params: Params) -> Array:
            return (jnp.exp(play(params)[0]) * weight).sum()

        gradient = jax.jacfwd(value)(start)
        reward = float(value(start))
        return Exact(
            reward,
            problem.pulls * best_mean(prior) - reward,
            {name: np.asarray(leaf) for name, leaf in by_path(gradient).items()},
        )


def _log_probability(policy: Policy, params: Params, arms: Array, gained: Array) -> tuple[Array, Array]:
    """Log-probabilities [latents] of pulling these arms [n], given their rewards [n], and the arms that
    are recommended in the end."""
    params = policy.folded(params)

    def of(latent: Array, log_prob: Array) -> tuple[Array, Array]:
        def step(carry: tuple, seen: tuple[Array, Array, Array]) -> tuple[tuple, None]:
            (state, total), (t, arm, reward) = carry, seen
            total = total + pick(policy.next_log_probs(params, state, t), arm)
            return (policy.update(params, state, arm, reward), total), None

        start = (policy.begin(params, latent), log_prob)
        state, total = jax.lax.scan(step, start, (jnp.arange(len(arms)), arms, gained))[0]
        return total, policy.recommend(params, state)

    logs = policy.latent_log_probs(params)
    return jax.vmap(of)(jnp.arange(policy.latents), logs)


def _reward_probability(prior: priors.Prior, arms: np.ndarray, gained: np.ndarray) -> np.ndarray:
    """Probabilities [H] of these rewards [H, n] of these arms [H, n] under the prior."""
    chosen = arms[..., None] == np.arange(prior.arms)
    ones = (chosen * gained[..., None]).sum(1)
    zeros = (chosen * (1 - gained[..., None])).sum(1)
    if isinstance(prior, priors.Beta):
        ratio = _log_beta(prior.a + ones, prior.b + zeros) - _log_beta(prior.a, prior.b)
        return np.exp(ratio.sum(1))
    assert isinstance(prior, priors.Finite)
    means, weights = np.asarray(prior.instances, float), np.asarray(prior.weights, float)
    return weights @ np.array([(row**ones * (1 - row) ** zeros).prod(1) for row in means])


def _log_beta(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """log B(a, b) in full double precision, which `jax.scipy.special.betaln` does not have."""
    log_gamma = np.vectorize(math.lgamma, otypes=[float])
    return log_gamma(a) + log_gamma(b) - log_gamma(a + b)
