"""Policies in tests whose results come from elsewhere: from past experiments, or from given rates."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradband.core.errors import InputError
from gradband.policies import Policy
from gradband.policies.given import WithParams

Results = Callable[[np.ndarray], np.ndarray]
"""how many of the pulls [N, K] in a round succeeded"""


def play(entry: Any, batches: np.ndarray, arms: int, results: Results, seed: int) -> np.ndarray:
    """Pulls [N, K] of a policy in N tests whose results come from elsewhere.

    `batches` [R, N] are the pulls of each test in each round, 0 where it is over. A policy without
    probabilities needs equal batches.
    """
    given = isinstance(entry, WithParams)
    found: Policy = entry.policy if given else entry
    horizons = batches.sum(0)
    policy = found.bind(arms, int(horizons.max()))
    params = policy.folded(policy.as_params(entry.params) if given else policy.init(jax.random.key(seed)))
    size, rng = int(batches.max()), np.random.default_rng(seed)
    if not policy.differentiable and (batches != size).any():
        raise InputError(f"{policy.name} has no probabilities, so all its tests must have equal batches")
    state = jax.vmap(lambda _: policy.begin(params, jnp.int32(0)))(jnp.arange(len(horizons)))
    update = jax.jit(jax.vmap(functools.partial(policy.update_many, params)))
    choose = jax.jit(jax.vmap(functools.partial(_chances, policy, params, size)))
    lengths, total = jnp.asarray(horizons, jnp.float32), np.zeros((len(horizons), arms))
    for t, batch in enumerate(batches):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), t), len(batch))
        pulls = np.asarray(choose(keys, state, lengths), np.float64)
        if policy.differentiable:
            pulls = rng.multinomial(batch, pulls / pulls.sum(1, keepdims=True)).astype(float)
        sums = results(pulls.astype(np.int64))
        state = update(state, jnp.asarray(pulls, jnp.float32), jnp.asarray(sums, jnp.float32))
        total += pulls
    return total


def _chances(policy: Any, params: Any, size: int, key: Any, state: Any, horizon: Any) -> Any:
    """Probabilities [K] of a policy with a density, or the pulls in a batch of one without."""
    if policy.differentiable:
        return jnp.exp(dataclasses.replace(policy, horizon=horizon).log_probs(params, state))
    return policy.allocate(key, params, state, size)


class Urns:
    """Pulls of past experiments that are left, drawn without replacement."""

    def __init__(self, pulls: np.ndarray, wins: np.ndarray, seed: int) -> None:
        self.wins, self.losses = wins.copy(), pulls - wins
        self.total = np.zeros(len(pulls))
        self.rng = np.random.default_rng(seed)

    def __call__(self, pulls: np.ndarray) -> np.ndarray:
        sums = self.rng.hypergeometric(self.wins, self.losses, pulls)
        self.wins -= sums
        self.losses -= pulls - sums
        self.total += sums.sum(1)
        return sums


def from_rates(rates: np.ndarray, seed: int) -> Results:
    """Results of arms with these means [N, K]."""
    rng = np.random.default_rng(seed)
    return lambda pulls: rng.binomial(pulls, rates)
