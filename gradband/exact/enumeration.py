"""Bayes reward and its gradient by enumerating all histories."""

import dataclasses
import itertools
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core.arrays import pick
from gradband.core.errors import InputError
from gradband.core.pytrees import by_path
from gradband.exact.quadrature import best_mean, check_prior
from gradband.policies import Params, Policy, binding
from gradband.policies.given import Given, unpack
from gradband.policies.guarded import within_guardrails
from gradband.problems import Problem, as_problem, priors

LIMIT = 2_000_000  # pulls in all histories together


@dataclasses.dataclass(frozen=True)
class Exact:
    """Bayes reward r(n; θ) and regret, and the reward's gradient by parameter."""

    reward: float
    regret: float
    gradient: dict[str, np.ndarray]


def by_enumeration(policy: Given, problem: Problem | str | Path, params: Params | None = None) -> Exact:
    """The sum over all histories of their probability times their reward, in double precision.

    For Bernoulli rewards, a finite or beta prior, and (2K)^n histories that fit into memory. The policy is
    a `Policy`, a learned one, a name or a policy file; `params` override its own. The gradient is that of
    Σ_h P_θ(h) R(h), the mean of the score-function estimator for the same policy, including what the policy
    holds fixed when it is differentiated.

    >>> from gradband import policies, problems
    >>> two_point = problems.named("two-point", horizon=2)
    >>> round(by_enumeration(policies.SoftElim(), two_point).reward, 6)
    1.0
    """
    problem = as_problem(problem)
    policy, params = unpack(policy, problem, params)
    bound = binding.check(policy, problem)
    if not bound.differentiable:
        raise InputError(f"{bound.name} has no density p(i | H) to enumerate")
    prior, arms, horizon = check_prior(problem, "enumeration"), problem.arms, problem.horizon
    outcomes = 2 * arms
    if horizon * outcomes**horizon > LIMIT:
        longest = max((n for n in range(1, 64) if n * outcomes**n <= LIMIT), default=0)
        feasible = f"with {arms} arms a horizon of {longest} is feasible"
        raise InputError(f"{outcomes}^{horizon} histories are too many: {feasible}")
    with jax.enable_x64(True):
        start = bound.init(jax.random.key(0)) if params is None else params
        start = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), float), start)
        digits = np.array(list(itertools.product(range(outcomes), repeat=horizon)))
        pulled, gained = digits % arms, (digits // arms).astype(np.float64)
        weight = (_reward_probability(prior, pulled, gained) * gained.sum(1))[:, None]
        played = within_guardrails(bound.compiled(), problem)
        if problem.afterwards:
            one = np.append(gained, np.ones((len(gained), 1)), axis=1)  # the last arm pays once more
            chosen = np.asarray(_play(played, start, pulled, gained)[1]).T  # [latents, H]
            ends = [
                _reward_probability(prior, np.append(pulled, arm[:, None], axis=1), one) for arm in chosen
            ]
            weight = weight + problem.afterwards * np.stack(ends, axis=1)
        slope, total = _slope_and_value(played, start, pulled, gained, weight)
    gradient = {name: np.asarray(leaf) for name, leaf in by_path(slope).items()}
    return Exact(float(total), problem.pulls * best_mean(prior) - float(total), gradient)


@partial(jax.jit, static_argnums=0)
def _slope_and_value(
    policy: Policy, params: Params, pulled: Array, gained: Array, weight: Array
) -> tuple[Params, Array]:
    """The gradient of Σ_h P_θ(h) R(h), and the sum itself; the weights [H, 1 or latents] are R(h)."""

    def value(params: Params) -> tuple[Array, Array]:
        total = (jnp.exp(_play(policy, params, pulled, gained)[0]) * weight).sum()
        return total, total

    return jax.jacfwd(value, has_aux=True)(params)


@partial(jax.jit, static_argnums=0)
def _play(policy: Policy, params: Params, pulled: Array, gained: Array) -> tuple[Array, Array]:
    """Log-probabilities [H, latents] of all histories [H, n], and the arms recommended in the end."""
    return jax.vmap(lambda arms, rewards: _log_probability(policy, params, arms, rewards))(pulled, gained)


def _log_probability(policy: Policy, params: Params, arms: Array, gained: Array) -> tuple[Array, Array]:
    """Log-probabilities [latents] of these arms [n], given their rewards [n], and the recommended arms."""
    params = policy.folded(params)

    def of(latent: Array, log_prob: Array) -> tuple[Array, Array]:
        def step(carry: tuple, seen: tuple[Array, Array, Array]) -> tuple[tuple, None]:
            (state, total), (t, arm, reward) = carry, seen
            total = total + pick(policy.next_log_probs(params, state, t), arm)
            return (policy.update(params, state, arm, reward), total), None

        start = (policy.begin(params, latent), log_prob)
        state, total = jax.lax.scan(step, start, (jnp.arange(len(arms)), arms, gained))[0]
        return total, policy.recommend(params, state)

    return jax.vmap(of)(jnp.arange(policy.latents), policy.latent_log_probs(params))


def _reward_probability(
    prior: priors.Finite | priors.Beta, arms: np.ndarray, gained: np.ndarray
) -> np.ndarray:
    """Probabilities [H] of these rewards [H, n] of these arms [H, n] under the prior."""
    from scipy.special import betaln  # takes a while to import

    chosen = arms[..., None] == np.arange(prior.arms)
    ones = (chosen * gained[..., None]).sum(1)
    zeros = (chosen * (1 - gained[..., None])).sum(1)
    if isinstance(prior, priors.Beta):
        return np.exp((betaln(prior.a + ones, prior.b + zeros) - betaln(prior.a, prior.b)).sum(1))
    means, weights = np.asarray(prior.instances, float), np.asarray(prior.weights, float)
    return weights @ np.array([(row**ones * (1 - row) ** zeros).prod(1) for row in means])
