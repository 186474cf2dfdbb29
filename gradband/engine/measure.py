"""Regrets and rewards of a policy, block by block."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from gradband.engine import blocks
from gradband.engine.observation import Regret, Round, Sum
from gradband.engine.rollout import Operands, RolloutSpec, play
from gradband.policies import Params, Policy
from gradband.problems import Problem


def regret_job(
    policy: Policy, problem: Problem, params: Params, key: Array, instances: int
) -> blocks.BlockJob:
    """The regrets and rewards of a bound policy on the key's instances, for checked input."""
    spec = RolloutSpec(policy.compiled(), blocks.block_size(problem.arms))
    return blocks.BlockJob(_play, (spec,), (problem, params, key), instances, spec.size, separable=True)


@partial(jax.jit, static_argnums=0)
def _play(
    spec: RolloutSpec, problem: Problem, params: Params, key: Array, block: Array
) -> tuple[Array, Array]:
    """Regrets and rewards [B] of a block's instances, each played once."""

    def observe(seen: tuple[Regret, Sum], round: Round) -> Any:
        regret, reward = seen
        return regret.add(round), reward.add(round.reward if round.mean is None else round.mean)

    def start(score: Array) -> tuple[Regret, Sum]:
        zeros = jnp.zeros_like(score)
        return Regret.zero(problem, zeros), Sum.zero(zeros)

    seen, _, last = play(spec, Operands(problem, params, key, block), observe, start)
    regret, reward = seen if last is None else observe(seen, last)
    return regret.total[0], reward.value[0]
