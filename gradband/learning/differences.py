"""The gradient of regret by differences between moved parameters, on common instances.

Theorem 2 needs a policy that draws arms at random. One that is almost deterministic has gradients with much
variance, and one that is made more random for learning is learned for that. The difference of two regrets
on the same instances has little noise whatever the policy, and rollouts take a fraction of the time of
gradients. So a few numbers are moved up and down along as many random directions, at right angles to each
other. It is the gradient of the regret smoothed over such moves.
"""

import math
from functools import partial
from typing import Any

import jax
import numpy as np

from gradband.core import prng
from gradband.core.errors import InputError
from gradband.core.pytrees import flattened
from gradband.core.statistics import mean_and_spread
from gradband.engine import blocks, diagnosis, measure
from gradband.gradient.estimator import FORWARD, Controls, Estimate
from gradband.learning.ascent import PLAIN, Steps
from gradband.learning.recipes import Recipe
from gradband.learning.stages import Stage
from gradband.policies import Params, Policy
from gradband.problems import Problem


def ascent(
    problem: Problem, policy: Policy, recipe: Recipe, size: tuple[int, int], on: blocks.Workers, scale: str
) -> Stage:
    """Ascent by differences at the policy's horizon; `size` is iterations and instances."""
    count = sum(math.prod(leaf.shape) for leaf in policy.shapes().values())
    if count > FORWARD:
        raise InputError(
            f"reach is for at most {FORWARD} parameters, each of which takes two rollouts, but "
            f"{policy.name} has {count:,}"
        )
    task, steps = jax.device_put(problem.replace(horizon=policy.horizon)), Steps(policy, PLAIN, scale)
    known: dict[Any, Any] = {}

    def job(params: Params, key: Any, iteration: int, controls: Controls) -> blocks.BlockJob:
        own = prng.fold_in(key, iteration)
        return measure.regret_job(policy, task, params, own, size[1])._replace(known=known)

    assert recipe.reach is not None
    return Stage(policy, recipe, *size, job, partial(compute, on=on, steps=steps, reach=recipe.reach))


def compute(job: blocks.BlockJob, on: blocks.Workers, steps: Steps, reach: float) -> Estimate:
    """The gradient at a `regret_job`'s parameters; `reach` is on the scale of the steps."""
    problem, params, key = job.operands
    slopes = flattened(steps.slopes(params)).astype(np.float64)
    ways = directions(key, slopes.size)
    far = reach * np.sqrt(slopes.size)
    each, regrets = np.zeros((slopes.size, job.instances)), np.zeros(job.instances)

    def played(way: np.ndarray) -> tuple[np.ndarray, str]:
        moved = steps.moved(params, way)
        pieces = blocks.map_blocks(job._replace(operands=(problem, moved, key)), on)
        found = blocks.join([regret for regret, _ in pieces], job.instances)
        return found, diagnosis.fault(job.settings[0].policy, problem, moved, key, found)

    for way in ways:
        (above, one), (below, other) = played(far * way), played(-far * way)
        regrets += (above + below) / (2 * len(ways))
        if one or other:
            return Estimate(0 * slopes, 0 * slopes, 0 * slopes, None, regrets, fault=one or other)
        each += (way / slopes)[:, None] * ((below - above) / (2 * far))
    mean, spread = mean_and_spread(each)
    return Estimate(mean, spread / np.sqrt(job.instances), spread, each, regrets)


def directions(key: Any, count: int) -> np.ndarray:
    """Random directions at right angles to each other [count, count], from a key."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    turned, upper = np.linalg.qr(rng.normal(size=(count, count)))
    return turned.T * np.sign(np.diag(upper))[:, None]
