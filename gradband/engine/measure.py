"""Regrets and rewards of a policy, and how its tests end, block by block."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from gradband.engine import blocks
from gradband.engine.observation import FAULT, Regret, Round, Sum
from gradband.engine.rollout import Operands, RolloutSpec, play
from gradband.policies import Params, Policy
from gradband.problems import Problem

HISTORIES = 256  # instances of a block whose histories are kept


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


def endings_job(
    policy: Policy, problem: Problem, params: Params, key: Array, instances: int
) -> blocks.BlockJob:
    """How tests end on the key's instances: pulls [K], sums of rewards [K] and the recommended arm.

    The problem must have pulls afterwards: a policy recommends an arm only for those.
    """
    spec = RolloutSpec(policy.compiled(), blocks.block_size(problem.arms))
    return blocks.BlockJob(_end, (spec,), (problem, params, key), instances, spec.size, separable=True)


@partial(jax.jit, static_argnums=0)
def _end(
    spec: RolloutSpec, problem: Problem, params: Params, key: Array, block: Array
) -> tuple[Array, Array, Array]:
    """Pulls [K, B], sums of rewards [K, B] and recommended arms [B]; NaN where a round had a fault."""

    def observe(seen: tuple[Array, Array, Array], round: Round) -> Any:
        off, pulls, sums = seen
        own, earned = round.pulls, round.sums
        if own is None or earned is None:
            assert round.arm is not None
            own = jnp.where(jnp.arange(problem.arms)[:, None, None] == round.arm[None], 1.0, 0.0)
            earned = own * round.reward[None]
        off = off if round.off is None else jnp.maximum(off, round.off)
        return off, pulls + own, sums + earned

    def start(score: Array) -> tuple[Array, Array, Array]:
        zeros = jnp.zeros((problem.arms, *score.shape), score.dtype)
        return jnp.zeros_like(score), zeros, zeros

    (off, pulls, sums), _, last = play(spec, Operands(problem, params, key, block), observe, start)
    assert last is not None
    assert last.arm is not None
    arm = jnp.where(off < FAULT, last.arm.astype(off.dtype), jnp.nan)
    return pulls[:, 0], sums[:, 0], arm[0]


def history_job(
    policy: Policy, problem: Problem, params: Params, key: Array, instances: int
) -> blocks.BlockJob:
    """Arms [n, B] and rewards [n, B] of a policy that pulls one by one, regrets [B], means [K, B]."""
    spec = RolloutSpec(policy.compiled(), HISTORIES)
    return blocks.BlockJob(_record, (spec,), (problem, params, key), instances, spec.size)


@partial(jax.jit, static_argnums=0)
def _record(
    spec: RolloutSpec, problem: Problem, params: Params, key: Array, block: Array
) -> tuple[Array, Array, Array, Array]:
    def observe(seen: tuple[Regret, Array], round: Round) -> Any:
        assert round.means is not None
        return seen[0].add(round), round.means[:, 0]

    def start(score: Array) -> tuple[Regret, Array]:
        return Regret.zero(problem, jnp.zeros_like(score)), jnp.zeros((problem.arms, spec.size))

    def record(round: Round) -> tuple[Array, Array]:
        assert round.arm is not None
        return round.arm[0].astype(jnp.int16), round.reward[0].astype(jnp.int8)

    (regret, means), recorded, _ = play(spec, Operands(problem, params, key, block), observe, start, record)
    return recorded[0], recorded[1], regret.total[0], means
