"""A few tests played out: how a policy shares pulls among the arms of a test, from its start to its end."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband.core import prng
from gradband.engine.observation import Round
from gradband.engine.rollout import Operands, RolloutSpec, play
from gradband.policies import given
from gradband.policies.given import Given
from gradband.problems import Problem, priors
from gradband.problems.priors.past_contexts import PastContexts

COLUMNS = 60  # at most, over the rounds
QUANTILES = (0.1, 0.5, 0.9)  # of the regret, for a good, a typical and a bad run
MOST_CELLS, MOST_TESTS = 2_000_000, 200  # rounds times arms that are recorded, and tests


@dataclasses.dataclass(frozen=True)
class PlayedOut:
    """One simulated test. The arms are in the order of their means, the best first."""

    means: np.ndarray
    """of the arms [K]"""
    pulls: np.ndarray
    """after how many pulls a column ends [C]"""
    shares: np.ndarray
    """of the arms in each column [C, K]"""
    total: np.ndarray
    """each arm's share of all pulls [K]"""

    @property
    def regret(self) -> float:
        """What was lost per pull against the best arm."""
        return float((self.total * (self.means[0] - self.means)).sum())

    @property
    def ahead(self) -> float:
        """What was gained per pull over an equal split."""
        return float((self.total * self.means).sum() - self.means.mean())

    def as_dict(self) -> dict[str, Any]:
        return {name: value.tolist() for name, value in vars(self).items()}


def means_of(drawn: priors.Drawn | PastContexts) -> np.ndarray:
    """Means [N, K] of instances, for all visitors of a test together if these have features."""
    if isinstance(drawn, PastContexts):
        return drawn.all_means()
    return np.asarray(jax.vmap(drawn.means)(jnp.asarray(drawn.instances)), np.float64)


def play_out(
    policy: Given, problem: Problem, instances: np.ndarray | PastContexts, seed: int = 0
) -> tuple[PlayedOut, ...]:
    """Plays a test on each of N instances: means [N, K], arms as rewards describe them, or with features.

    Shares are the policy's probabilities, or its choices if it has none, averaged over the rounds of a
    column.
    """
    if isinstance(instances, PastContexts):
        drawn: priors.Drawn | PastContexts = instances
    else:
        drawn = priors.Drawn(instances, 0, problem.prior.rewards)
    means = means_of(drawn)
    fixed = problem.replace(prior=drawn.fresh(), afterwards=0)
    bound, params = given.bind(policy, fixed, seed)
    spec = RolloutSpec(bound.compiled(), len(means))
    key = prng.stream(prng.root(seed), "evaluation")
    shares, pulled = (
        np.asarray(x)[:, :, 0] for x in _play(spec, Operands(fixed, params, key, np.int32(0)))
    )
    edges = np.linspace(0, fixed.rounds, min(COLUMNS, fixed.rounds) + 1).round().astype(int)
    width = np.diff(edges)[:, None, None]
    columns = np.add.reduceat(shares, edges[:-1], axis=0) / width  # [C, K, N]
    total = pulled.sum(0) / problem.horizon
    found = []
    for place, row in enumerate(means):
        order = np.argsort(-row)
        found.append(
            PlayedOut(
                row[order],
                edges[1:] * problem.pulls_at_once,
                columns[:, order, place],
                total[order, place],
            )
        )
    return tuple(found)


def examples(
    policy: Given, problem: Problem, instances: np.ndarray | PastContexts, seed: int = 0
) -> tuple[PlayedOut, ...]:
    """A good, a typical and a bad run by regret, of tests on the first of N instances."""
    count = min(
        len(instances), MOST_TESTS, max(len(QUANTILES), MOST_CELLS // (problem.rounds * problem.arms))
    )
    few = instances.first(count) if isinstance(instances, PastContexts) else instances[:count]
    ranked = sorted(play_out(policy, problem, few, seed), key=lambda run: run.regret)
    return tuple(ranked[round(quantile * (count - 1))] for quantile in QUANTILES)


@partial(jax.jit, static_argnums=0)
def _play(spec: RolloutSpec, operands: Operands) -> tuple[Array, Array]:
    """Shares and pulls [n, K, 1, N] of all rounds."""
    batch = operands.problem.pulls_at_once

    def record(round: Round) -> tuple[Array, Array]:
        pulls = round.pulls
        if pulls is None:
            assert round.arm is not None
            pulls = (jnp.arange(operands.problem.arms)[:, None, None] == round.arm[None]).astype(float)
        shares = pulls / batch if round.log_probs is None else jnp.exp(round.log_probs)
        return shares, pulls

    _, recorded, _ = play(spec, operands, lambda seen, round: seen, lambda score: score, record)
    shares, pulls = recorded
    return shares, pulls
