"""Imitation: the gradient of agreement with a reference policy, for a warm start before GradBand.

The learner plays, and in each round the reference says what it would do after the same history:
q_t(i). Agreement is Σ_t Σ_i q_t(i) log p_t(i), minus the cross-entropy, averaged over rounds. It is
measured along the learner's own rollouts, so that the learner sees what follows from its own mistakes;
what the learner would gain by ending up elsewhere is not part of the gradient.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from gradband.engine import blocks, diagnosis, rollout
from gradband.engine.observation import Regret, Round
from gradband.gradient.estimator import Estimate, from_blocks
from gradband.policies import Params, Policy
from gradband.problems import Problem


class Operands(NamedTuple):
    """What the gradient of agreement is computed with."""

    problem: Problem
    params: Params
    reference: Params
    key: Array
    """of all iterations"""
    iteration: np.uint32
    instances: np.int32
    """those of all blocks"""


def agreement_job(
    policy: Policy,
    problem: Problem,
    params: Params,
    key: Array,
    iteration: int,
    instances: int,
    reference: tuple[Policy, Params],
) -> blocks.BlockJob:
    """The gradient of agreement for bound policies, on the instances of this iteration."""
    size = blocks.kept_block_size(1, problem.horizon, instances)
    spec = rollout.RolloutSpec(policy.compiled(), size, kept=True, reference=reference[0].compiled())
    given = Operands(problem, params, reference[1], key, np.uint32(iteration), np.int32(instances))
    return blocks.BlockJob(_differentiate, (spec,), (given,), instances, size)


def compute(job: blocks.BlockJob, on: blocks.Workers) -> Estimate:
    """The estimate from the blocks of an `agreement_job`."""
    spec, given = job.settings[0], job.operands[0]
    found = from_blocks(blocks.map_blocks(job, on), job.instances, job.size)
    played = spec.policy, given.problem, given.params, given.key
    fault = diagnosis.fault(*played, found.regrets, iteration=given.iteration)
    return dataclasses.replace(found, fault=fault)


@partial(jax.jit, static_argnums=0)
def _differentiate(spec: rollout.RolloutSpec, given: Operands, block: Array) -> tuple[Array, Array]:
    """The gradient [P] of a block's summed agreement, and its instances' regrets [B]."""
    flat, unravel = ravel_pytree(given.params)
    key = jax.random.fold_in(given.key, given.iteration)

    def observe(seen: tuple[Array, Regret], round: Round) -> Any:
        agreement, regret = seen
        return agreement + _agreement(round) / given.problem.horizon, regret.add(round)

    def start(score: Array) -> tuple[Array, Regret]:
        zeros = jnp.zeros_like(score)
        return zeros, Regret.zero(given.problem, zeros)

    def total(flat: Array) -> tuple[Array, Array]:
        params, theirs = unravel(flat), given.reference
        operands = rollout.Operands(given.problem, params, key, block, reference=theirs)
        (agreement, regret), _, last = rollout.play(spec, operands, observe, start)
        regret = regret if last is None else regret.add(last)
        counted = block * spec.size + jnp.arange(spec.size) < given.instances
        return jnp.where(counted, agreement[0], 0).sum(), regret.total[0]

    return jax.grad(total, has_aux=True)(flat)


def _agreement(round: Round) -> Array:
    """Σ_i q(i) log p(i) [R, B]."""
    assert round.log_probs is not None
    assert round.reference is not None
    wanted = round.reference > 0  # where the reference never goes, −inf may stand
    return jnp.where(wanted, round.reference * jnp.where(wanted, round.log_probs, 0), 0).sum(0)
