"""Bayes reward and its gradient on two Bernoulli arms, for policies whose state is counts.

After T₀ + T₁ = t pulls, a history matters only through (T₀, s₀, s₁), where s_i counts the ones. The
remaining rounds are worth

    V_t = Σ_i p_i [m_i + m_i V_{t+1}(one more one of i) + (1 − m_i) V_{t+1}(one more zero of i)],

where p are the policy's probabilities and m the posterior means, and ∇V_t follows by the product rule:
n⁴/24 states in all, and no sampling error. A layer has a rectangle [T₀ + 1, T₁ + 1] of values by (s₀, s₁)
for each T₀.
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
from gradband.exact.quadrature import Nodes, best_mean, check_prior
from gradband.gradient.estimator import FEW
from gradband.policies import Counting, Counts, Params, Policy, ThompsonSampling, binding
from gradband.policies.given import Given, unpack
from gradband.problems import Problem, as_problem, priors

EVALUATION = "exact evaluation"
LONGEST = 400  # rounds, a billion states
CHUNK = 1 << 14  # states whose probabilities are computed at a time


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
    policy, params = unpack(policy, problem, params)
    bound, prior, n = check(policy, problem), check_prior(problem, EVALUATION), problem.horizon
    with jax.enable_x64(True):
        start = bound.init(jax.random.key(0)) if params is None else bound.as_params(params)
        learned = _learned(bound, start)
        layer = probabilities(bound, start, n, learned)
        values = np.zeros((1 + learned, _size(n)))
        values[0] = _ending(bound, start, problem)
        for t in range(n - 1, -1, -1):
            values = _backwards(prior, t, layer(t), values)
            if progress:
                progress(1 - (t / n) ** 4)
        gradient = ravel_pytree(start)[1](jnp.asarray(values[1:, 0])) if learned else {}
        gradient = {name: np.asarray(leaf) for name, leaf in by_path(gradient).items()}
    reward = float(values[0, 0])
    return Exact(reward, problem.pulls * best_mean(prior) - reward, gradient)


def check(policy: Policy, problem: Problem) -> Counting:
    """The bound policy, or an error that says why its reward can't be computed exactly."""
    bound = binding.check(policy, problem)
    if not isinstance(bound, Counting):
        raise InputError(
            f"{bound.name} can't be evaluated exactly: its state must be the arms' counts, as for "
            "softelim, epsilon-greedy, boltzmann, ts or ucb1"
        )
    problem.unguarded(EVALUATION)
    if bound.forgets:
        raise InputError(
            f"{bound.name} can't be evaluated exactly: it forgets, so counts are not its state"
        )
    if problem.arms != 2:
        raise InputError(f"{EVALUATION} needs 2 arms, not {problem.arms}")
    check_prior(problem, EVALUATION)
    if problem.horizon > LONGEST:
        states = f"n⁴/24 states, too many for {problem.horizon} rounds"
        raise InputError(f"{EVALUATION} goes through {states}: at most {LONGEST} is feasible")
    return bound


def probabilities(
    policy: Counting, params: Params, horizon: int, learned: int = 0
) -> Callable[[int], np.ndarray]:
    """Probabilities of arm 0 in all states before round t, as a function of t, and their derivatives.

    They are [1 + P, N], with rectangles by (s₀, s₁) for each T₀ in turn, in double precision if JAX is.
    """
    if isinstance(policy, ThompsonSampling):
        return _Thompson(policy, horizon).layer
    return partial(_by_state, partial(_chunk, policy.compiled(), learned, params))


def _learned(policy: Policy, params: Params) -> int:
    """How many parameters to differentiate by: all of a policy with a density, if they are few."""
    count = sum(leaf.size for leaf in jax.tree.leaves(params)) if policy.differentiable else 0
    return count if count <= FEW else 0


def _starts(t: int) -> np.ndarray:
    """The start of the rectangle of each T₀ = 0 … t in layer t, and the end of the last one."""
    pulls = np.arange(t + 1)
    return np.concatenate([[0], np.cumsum((pulls + 1) * (t - pulls + 1))])


def _size(t: int) -> int:
    return int(_starts(t)[-1])


def _backwards(prior: Any, t: int, layer: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Values and below them their derivatives [1 + P, N] before round t from those before the next."""
    here, ahead = _starts(t), _starts(t + 1)
    before = np.empty((len(after), here[-1]))
    for pulls in range(t + 1):
        rows, columns, part = pulls + 1, t - pulls + 1, slice(here[pulls], here[pulls + 1])
        m0, m1 = _means(prior, pulls, t - pulls)
        p, *changes = layer[:, part].reshape(-1, rows, columns)
        change = np.stack([np.zeros((rows, columns)), *changes])
        one = after[:, ahead[pulls + 1] : ahead[pulls + 2]].reshape(-1, rows + 1, columns)
        other = after[:, ahead[pulls] : ahead[pulls + 1]].reshape(-1, rows, columns + 1)
        first = m0 * one[:, 1:] + (1 - m0) * one[:, :-1]
        second = m1 * other[..., 1:] + (1 - m1) * other[..., :-1]
        first[0], second[0] = first[0] + m0, second[0] + m1
        found = change * (first[0] - second[0]) + p * first + (1 - p) * second
        before[:, part] = found.reshape(len(after), -1)
    return before


def _ending(policy: Counting, params: Params, problem: Problem) -> np.ndarray:
    """The values of the states [N] after the last round: the pulls of the recommended arm."""
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
    total = np.maximum(weight.sum(0), 1e-300)  # 0 for states that no instance allows
    return (weight * means[:, 0]).sum(0) / total, (weight * means[:, 1]).sum(0) / total


def _log_likelihood(mean: np.ndarray, ones: np.ndarray, pulls: int) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        of_ones, of_zeros = ones * np.log(mean), (pulls - ones) * np.log1p(-mean)
    return np.where(ones > 0, of_ones, 0) + np.where(ones < pulls, of_zeros, 0)


def _by_state(function: Callable[[np.ndarray], Array], t: int) -> np.ndarray:
    """The values of a function of states [4, C] for all states of layer t, chunk by chunk."""
    sides = [(pulls + 1, t - pulls + 1) for pulls in range(t + 1)]
    count = _size(t)
    states = np.zeros((4, -(-count // CHUNK) * CHUNK))  # T₀, T₁, s₀, s₁
    states[0, :count] = np.repeat(np.arange(t + 1), [a * b for a, b in sides])
    states[1, :count] = t - states[0, :count]
    states[2, :count] = np.concatenate([np.repeat(np.arange(a), b) for a, b in sides])
    states[3, :count] = np.concatenate([np.tile(np.arange(b), a) for a, b in sides])

    def in_double(block: int) -> Array:
        with jax.enable_x64(True):  # it is set per thread
            return function(states[:, block * CHUNK : (block + 1) * CHUNK])

    on = blocks.workers()._replace(memory=None)
    results = blocks.map_blocks(blocks.BlockJob(in_double, (), (), count, CHUNK), on)
    return np.concatenate(results, axis=-1)[..., :count]


@partial(jax.jit, static_argnums=0)
def _recommended(policy: Counting, params: Params, states: Array) -> Array:
    """The recommended arms [C] in states [4, C]."""
    return _each(policy, policy.recommend, params, states)


def _each(policy: Counting, function: Callable[..., Array], params: Params, states: Array) -> Array:
    """The values [C] of a function of parameters and a policy's state, in states [4, C]."""

    def one(params: Params, pulls: Array, sums: Array) -> Array:
        return function(params, policy.after(Counts(pulls, sums)))

    batched = batch_last(one, (1, states.shape[1]), (False, True, True))
    return batched(params, states[:2, None], states[2:, None])[0]


@partial(jax.jit, static_argnums=(0, 1))
def _chunk(policy: Counting, learned: int, params: Params, states: Array) -> Array:
    """Probabilities of arm 0 in states [4, C], and below them their derivatives [1 + P, C]."""

    def of(params: Params) -> Array:
        return _each(policy, lambda *given: policy.next_probabilities(*given)[0], params, states)

    if not learned:
        return of(params)[None]
    flat, unravel = ravel_pytree(params)
    directions = jnp.eye(learned, dtype=flat.dtype)
    results = [jax.jvp(lambda flat: of(unravel(flat)), (flat,), (way,)) for way in directions]
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

    def layer(self, t: int) -> np.ndarray:
        parts = [(self.density[pulls] @ self.below[t - pulls].T).ravel() for pulls in range(t + 1)]
        return np.concatenate(parts)[None]
