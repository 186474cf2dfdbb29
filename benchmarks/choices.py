"""What a design choice is worth where XLA computes: the time of a gradient with it and without it.

`python choices.py WITHOUT` prints the best seconds of a SoftElim gradient on two-point, m = 1000. WITHOUT
is nothing, batching (`jax.vmap` in place of `batch_last`) or hashing (`jax.random.fold_in` in place of
`hash_words`). Each runs in a process of its own, since compiled code stays in memory.
"""

import sys
import time
from functools import partial

import jax
import jax.numpy as jnp

import gradband as gb
from gradband.core import prng
from gradband.engine import blocks, rollout
from gradband.gradient.estimator import compute, gradient_job
from gradband.policies import binding


def by_vmap(function, batch, batched):
    """`batch_last` by two `vmap`s over the last axes."""

    def mapped(*arguments):
        wide = [
            jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*leaf.shape[:-2], *batch)), argument)
            if flag
            else argument
            for argument, flag in zip(arguments, batched, strict=True)
        ]
        axes = tuple(-1 if flag else None for flag in batched)
        once = partial(jax.vmap, in_axes=axes, out_axes=-1)
        return once(once(function))(*wide)

    return mapped


def by_jax(key, counter, rounds=prng.FULL):
    """`hash_words` by JAX's own `fold_in`."""
    keys = prng.from_words(*key)
    fold = jax.random.fold_in
    for _ in range(keys.ndim):
        fold = jax.vmap(fold)
    return prng.words(fold(keys, counter[1]))


WITHOUT = sys.argv[1]
if WITHOUT == "batching":
    rollout.batch_last = by_vmap
if WITHOUT == "hashing":
    prng.hash_words = by_jax


problem = jax.device_put(gb.problems.named("two-point"))
policy = binding.check(gb.policies.SoftElim(), problem)
how, on = gb.Estimator(), blocks.workers(engine="xla")


def gradient():
    return compute(gradient_job(policy, problem, policy.init(None), prng.root(0), 0, 1000, how), on)


gradient()
times = []
for _ in range(100):
    began = time.perf_counter()
    gradient()
    times.append(time.perf_counter() - began)
print(min(times))
