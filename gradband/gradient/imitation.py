"""Imitation: the gradient of agreement with a reference policy, for a warm start before GradBand.

The learner plays, and in each round the reference says what it would do after the same history:
q_t(i). Agreement is Σ_t Σ_i q_t(i) log p_t(i), minus the cross-entropy, averaged over rounds. It is
measured along the learner's own rollouts, so that the learner sees what follows from its own mistakes;
what the learner would gain by ending up elsewhere is not part of the gradient.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from gradband.engine import blocks, diagnosis, rollout
from gradband.gradient.estimator import Estimate, from_blocks
from gradband.policies import Params, Policy
from gradband.problems import Problem


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
    size = blocks.kept_block_size(1, problem.horizon)
    settings = policy.compiled(), reference[0].compiled(), size
    operands = problem, params, reference[1], key, np.uint32(iteration), np.int32(instances)
    return blocks.BlockJob(_differentiate, settings, operands, instances, size)


def compute(job: blocks.BlockJob, on: blocks.Workers) -> Estimate:
    """The estimate from the blocks of an `agreement_job`."""
    policy, *_ = job.settings
    problem, params, _, key, iteration, _ = job.operands
    found = from_blocks(blocks.map_blocks(job, on), job.instances, job.size)
    fault = diagnosis.fault(policy, problem, params, key, found.regrets, iteration=iteration)
    return dataclasses.replace(found, fault=fault)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _differentiate(
    policy: Policy,
    reference: Policy,
    size: int,
    problem: Problem,
    params: Params,
    their_params: Params,
    key: Array,
    iteration: Array,
    instances: Array,
    block: Array,
) -> tuple[Array, Array]:
    """The gradient [P] of a block's summed agreement, and its instances' regrets [B]."""
    flat, unravel = ravel_pytree(params)
    key = jax.random.fold_in(key, iteration)

    def observe(seen: tuple[Array, rollout.Regret], round: rollout.Round) -> Any:
        agreement, regret = seen
        assert round.log_probs is not None
        assert round.reference is not None
        wanted = round.reference > 0  # where the reference never goes, −inf may stand
        agreed = jnp.where(wanted, round.reference * jnp.where(wanted, round.log_probs, 0), 0)
        return agreement + agreed.sum(0) / problem.horizon, regret.add(round)

    def start(score: Array) -> tuple[Array, rollout.Regret]:
        zeros = jnp.zeros_like(score)
        return zeros, rollout.Regret.zero(problem, zeros)

    def total(flat: Array) -> tuple[Array, Array]:
        (agreement, regret), _, last = rollout.play(
            policy,
            problem,
            unravel(flat),
            key,
            block,
            size,
            1,
            observe,
            start,
            kept=True,
            reference=(reference, their_params),
        )
        regret = regret if last is None else regret.add(last)
        counted = block * size + jnp.arange(size) < instances
        return jnp.where(counted, agreement[0], 0).sum(), regret.total[0]

    return jax.grad(total, has_aux=True)(flat)
