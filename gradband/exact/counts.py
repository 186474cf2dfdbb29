"""Bayes reward and its gradient on two Bernoulli arms, for policies whose state is counts.

With T₀ + T₁ = t pulls behind, a history matters only through (T₀, s₀, s₁), where s are ones. The rounds
left are worth

    V_t = Σ_i p_i [m_i + m_i V_{t+1}(one more one of i) + (1 − m_i) V_{t+1}(one more zero of i)],

p the policy's probabilities and m the posterior means, and ∇V_t follows by the product rule: n⁴/24 states
in all, and no sampling error. A layer has a rectangle [T₀ + 1, T₁ + 1] of values by (s₀, s₁) for each T₀.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from gradband.core.errors import InputError
from gradband.core.pytrees import by_path
from gradband.core.vmap_last import batch_last
from gradband.engine import blocks
from gradband.exact.enumeration import Exact
from gradband.exact.quadrature import Nodes, best_mean
from gradband.gradient.estimator import FEW
from gradband.policies import Counting, Counts, Params, Policy, ThompsonSampling, binding
from gradband.policies.given import Given, WithParams, resolve
from gradband.problems import Problem, as_problem, priors, rewards

LONGEST = 400  # rounds, a billion states
CHUNK = 1 << 14  # states whose probabilities are computed at a time
Layer = tuple[np.ndarray, np.ndarray]  # probabilities of arm 0 [N], and their derivatives [P, N]


def by_counts(
    policy: Given,
    problem: Problem | str | Path,
    params: Params | None = None,
    *,
    progress: Callable[[float], None] | None = None,
) -> Exact:
    """The exact Bayes reward of a policy on two Bernoulli arms, and its gradient if its parameters are few.

    The policy is a `Policy`, a learned one, a name or a policy file; `params` override its own.

    >>> from gradband import policies, problems
    >>> two_point = problems.named("two-point", horizon=2)
    >>> round(by_counts(policies.SoftElim(), two_point).reward, 6)
    1.0
    """
    problem = as_problem(problem)
    entry = resolve(policy, problem)
    if isinstance(entry, WithParams):
        bound, params = check(entry.policy, problem), entry.params if params is None else params
    else:
        bound = check(entry, problem)
    n = problem.horizon
    with jax.enable_x64(True):
        start = bound.init(jax.random.key(0)) if params is None else bound.as_params(params)
        learned = _learned(bound, start)
        layers: Callable[[int], Layer] = (
            _Thompson(bound, n).layer
            if isinstance(bound, ThompsonSampling)
            else partial(_probabilities, bound, learned, start)
        )
        value, slope = _ending(bound, start, problem), np.zeros((learned, _size(n)))
        for t in range(n - 1, -1, -1):
            value, slope = _backwards(problem.prior, t, layers(t), value, slope)
            if progress:
                progress(1 - (t / n) ** 4)
        gradient = ravel_pytree(start)[1](jnp.asarray(slope[:, 0])) if learned else {}
        gradient = {name: np.asarray(leaf) for name, leaf in by_path(gradient).items()}
    reward = float(value[0])
    prior: Any = problem.prior
    return Exact(reward, problem.pulls * best_mean(prior) - reward, gradient)


def check(policy: Policy, problem: Problem) -> Counting:
    """The bound policy, or an error that says why its reward can't be computed exactly."""
    prior = problem.prior
    problem.one_by_one("exact evaluation")
    bound = binding.check(policy, problem)
    if not isinstance(bound, Counting):
        raise InputError(
            f"{bound.name} can't be evaluated exactly: its state must be the arms' counts, as for "
            "softelim, epsilon-greedy, boltzmann, ts or ucb1"
        )
    if problem.arms != 2:
        raise InputError(f"exact evaluation needs 2 arms, not {problem.arms}")
    if not isinstance(prior.rewards, rewards.Bernoulli):
        raise InputError(f"exact evaluation needs bernoulli rewards, not {prior.rewards.kind} rewards")
    if not isinstance(prior, priors.Finite | priors.Beta):
        raise InputError(f"exact evaluation needs a finite or beta prior, not a {prior.kind} prior")
    if problem.horizon > LONGEST:
        raise InputError(
            f"exact evaluation goes through n⁴/24 states, too many for {problem.horizon} rounds: "
            f"at most {LONGEST} is feasible"
        )
    return bound


def _learned(policy: Policy, params: Params) -> int:
    """How many parameters to differentiate by: those of a policy with a density, if they are few."""
    count = sum(leaf.size for leaf in jax.tree.leaves(params)) if policy.differentiable else 0
    return count if count <= FEW else 0


def _starts(t: int) -> np.ndarray:
    """Where the rectangle of each T₀ = 0 … t begins in layer t, and where the last one ends."""
    pulls = np.arange(t + 1)
    return np.concatenate([[0], np.cumsum((pulls + 1) * (t - pulls + 1))])


def _size(t: int) -> int:
    return int(_starts(t)[-1])


def _backwards(
    prior: Any, t: int, layer: Layer, value: np.ndarray, slope: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Values [N] and their derivatives [P, N] before round t from those before the next."""
    here, ahead = _starts(t), _starts(t + 1)
    first, change = layer
    new_value, new_slope = np.empty(here[-1]), np.empty((len(slope), here[-1]))
    for pulls in range(t + 1):
        shape = (pulls + 1, t - pulls + 1)
        part = slice(here[pulls], here[pulls + 1])
        m0, m1 = _means(prior, *(size - 1 for size in shape))
        p, dp = first[part].reshape(shape), change[:, part].reshape(-1, *shape)

        def both(after: np.ndarray, pulls: int = pulls, m0: Any = m0, m1: Any = m1) -> tuple[Any, Any]:
            """What the next layer is worth after pulling arm 0, and after arm 1."""
            one = after[..., ahead[pulls + 1] : ahead[pulls + 2]].reshape(*after.shape[:-1], pulls + 2, -1)
            other = after[..., ahead[pulls] : ahead[pulls + 1]].reshape(*after.shape[:-1], pulls + 1, -1)
            return (
                m0 * one[..., 1:, :] + (1 - m0) * one[..., :-1, :],
                m1 * other[..., 1:] + (1 - m1) * other[..., :-1],
            )

        q0, q1 = both(value)
        q0, q1 = q0 + m0, q1 + m1
        new_value[part] = (p * q0 + (1 - p) * q1).ravel()
        if len(slope):
            d0, d1 = both(slope)
            new_slope[:, part] = (dp * (q0 - q1) + p * d0 + (1 - p) * d1).reshape(len(slope), -1)
    return new_value, new_slope


def _ending(policy: Counting, params: Params, problem: Problem) -> np.ndarray:
    """What the states [N] after the last round are worth: the pulls of the arm to stay with."""
    n = problem.horizon
    if not problem.afterwards:
        return np.zeros(_size(n))
    second = _by_state(partial(_recommended, policy.compiled(), params), n)
    worth = []
    for pulls, arm in enumerate(np.split(second, _starts(n)[1:-1])):
        m0, m1 = _means(problem.prior, pulls, n - pulls)
        worth.append(np.where(arm.reshape(pulls + 1, -1) == 0, m0, m1).ravel())
    return problem.afterwards * np.concatenate(worth)


def _means(prior: Any, pulls0: int, pulls1: int) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means of both arms by (s₀, s₁)."""
    ones0, ones1 = np.arange(pulls0 + 1.0)[:, None], np.arange(pulls1 + 1.0)[None]
    if isinstance(prior, priors.Beta):
        a, b = prior.a, prior.b
        return (a[0] + ones0) / (a[0] + b[0] + pulls0), (a[1] + ones1) / (a[1] + b[1] + pulls1)
    means = prior.instances[:, :, None, None]
    with np.errstate(divide="ignore"):
        log = np.log(prior.weights)[:, None, None]
    log = log + _log_likelihood(means[:, 0], ones0, pulls0) + _log_likelihood(means[:, 1], ones1, pulls1)
    peak = log.max(0)
    weight = np.exp(log - np.where(np.isfinite(peak), peak, 0))
    total = np.maximum(weight.sum(0), 1e-300)  # 0 where no instance allows it: it is never reached
    return (weight * means[:, 0]).sum(0) / total, (weight * means[:, 1]).sum(0) / total


def _log_likelihood(mean: np.ndarray, ones: np.ndarray, pulls: int) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        of_ones, of_zeros = ones * np.log(mean), (pulls - ones) * np.log1p(-mean)
    return np.where(ones > 0, of_ones, 0) + np.where(ones < pulls, of_zeros, 0)


def _probabilities(policy: Counting, learned: int, params: Params, t: int) -> Layer:
    """Probabilities of arm 0 in layer t, and their derivatives."""
    found = _by_state(partial(_chunk, policy.compiled(), learned, params), t)
    return found[0], found[1:]


def _by_state(function: Callable[[np.ndarray], Array], t: int) -> np.ndarray:
    """What a function of states [4, C] says of all states of layer t, chunk by chunk."""
    sides = [(pulls + 1, t - pulls + 1) for pulls in range(t + 1)]
    count = _size(t)
    states = np.zeros((4, -(-count // CHUNK) * CHUNK))  # T₀, T₁, s₀, s₁
    states[0, :count] = np.repeat(np.arange(t + 1), [a * b for a, b in sides])
    states[1, :count] = t - states[0, :count]
    states[2, :count] = np.concatenate([np.repeat(np.arange(a), b) for a, b in sides])
    states[3, :count] = np.concatenate([np.tile(np.arange(b), a) for a, b in sides])

    def in_double(block: int) -> Array:
        with jax.enable_x64(True):  # which holds for one thread only
            return function(states[:, block * CHUNK : (block + 1) * CHUNK])

    on = blocks.workers()._replace(memory=None)
    results = blocks.map_blocks(blocks.BlockJob(in_double, (), (), count, CHUNK), on)
    return np.concatenate(results, axis=-1)[..., :count]


@partial(jax.jit, static_argnums=0)
def _recommended(policy: Counting, params: Params, states: Array) -> Array:
    """The recommended arms [C] in states [4, C]."""

    def one(params: Params, pulls: Array, sums: Array) -> Array:
        return policy.recommend(params, policy.after(Counts(pulls, sums)))

    shape = (1, states.shape[1])
    return batch_last(one, shape, (False, True, True))(params, states[:2, None], states[2:, None])[0]


@partial(jax.jit, static_argnums=(0, 1))
def _chunk(policy: Counting, learned: int, params: Params, states: Array) -> Array:
    """Probabilities of arm 0 in states [4, C], and below them their derivatives [1 + P, C]."""
    count = states.shape[1]
    pulls, sums = states[:2, None], states[2:, None]

    def one(params: Params, pulls: Array, sums: Array) -> Array:
        return policy.next_probabilities(params, policy.after(Counts(pulls, sums)))[0]

    def of(params: Params) -> Array:
        return batch_last(one, (1, count), (False, True, True))(params, pulls, sums)[0]

    if not learned:
        return of(params)[None]
    flat, unravel = ravel_pytree(params)

    def along(direction: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda flat: of(unravel(flat)), (flat,), (direction,))

    results = [along(direction) for direction in jnp.eye(learned, dtype=flat.dtype)]
    return jnp.stack([results[0][0], *(derivative for _, derivative in results)])


class _Thompson:
    """P(X₀ > X₁) = ∫ f₀ F₁, X_i ~ Beta(a + s_i, b + T_i − s_i), by quadrature for all (s₀, s₁) at once."""

    def __init__(self, policy: ThompsonSampling, horizon: int) -> None:
        nodes = Nodes(129 + int(16 * horizon**0.5))
        pulls = np.arange(horizon)
        only_ones = nodes.below(policy.a + pulls, np.full(horizon, policy.b))
        self.below, self.density = [], []
        for count, most in zip(pulls, only_ones, strict=True):
            a = policy.a + np.arange(count + 1.0)
            density = nodes.density(a, policy.b + policy.a + count - a)
            if not np.allclose(density @ nodes.weights, 1, atol=1e-9):
                raise InputError(
                    f"ts with Beta({policy.a:g}, {policy.b:g}) can't be evaluated exactly: its samples "
                    "are too close to each other, or to 0 and 1, for the quadrature"
                )
            # I_x(a, b) = I_x(a + 1, b − 1) + x f(x) / a with f the density of Beta(a, b)
            terms = np.concatenate([(density * nodes.x / a[:, None])[:-1], most[None]])
            self.below.append(np.cumsum(terms[::-1], axis=0)[::-1])
            self.density.append(density * nodes.weights)

    def layer(self, t: int) -> Layer:
        parts = [(self.density[pulls] @ self.below[t - pulls].T).ravel() for pulls in range(t + 1)]
        return np.concatenate(parts), np.zeros((0, _size(t)))
