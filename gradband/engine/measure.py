"""Regrets and rewards of a policy, block by block."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from gradband.engine import blocks, rollout
from gradband.policies import Params, Policy
from gradband.problems import Problem


def regret_job(
    policy: Policy, problem: Problem, params: Params, key: Array, instances: int
) -> blocks.BlockJob:
    """The regrets and rewards of a bound policy on the key's instances, for checked input."""
    size = blocks.block_size(problem.arms)
    return blocks.BlockJob(_play, (policy.compiled(), size), (problem, params, key), instances, size)


@partial(jax.jit, static_argnums=(0, 1))
def _play(
    policy: Policy, size: int, problem: Problem, params: Params, key: Array, block: Array
) -> tuple[Array, Array]:
    """Regrets and rewards [B] of a block's instances, each played once."""

    def observe(seen: tuple[rollout.Regret, rollout.Sum], round: rollout.Round) -> Any:
        regret, reward = seen
        return regret.add(round), reward.add(round.reward if round.mean is None else round.mean)

    def start(score: Array) -> tuple[rollout.Regret, rollout.Sum]:
        zeros = jnp.zeros_like(score)
        return rollout.Regret.zero(problem, zeros), rollout.Sum.zero(zeros)

    seen, _, last = rollout.play(policy, problem, params, key, block, size, 1, observe, start)
    regret, reward = seen if last is None else observe(seen, last)
    return regret.total[0], reward.value[0]
