"""`batch_last` gives what two nested `vmap`s give, for policies and for all kinds of operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_policy import bound, compiled, features

from gradband.core import prng
from gradband.core.arrays import one_hot, pick
from gradband.core.vmap_last import batch_last
from gradband.policies import POLICIES

pytestmark = pytest.mark.brief

K, R, B = 4, 2, 7


def by_vmap(function, *arguments):
    over_runs = jax.vmap(function, in_axes=(None, -1, -1, None), out_axes=-1)
    return jax.vmap(over_runs, in_axes=(None, -1, -1, -1), out_axes=-1)(*arguments)


def agree(function):
    keys = jax.random.split(jax.random.key(5), (R, B))
    values = jax.random.uniform(jax.random.key(6), (K, R, B), minval=0.1, maxval=5)
    shared = jax.random.uniform(jax.random.key(7), (K, 1, B))
    theta = jnp.float32(0.7)
    ours = jax.jit(batch_last(function, (R, B), (False, True, True, True)))(theta, values, keys, shared)
    theirs = jax.jit(by_vmap, static_argnums=0)(function, theta, values, keys, shared[:, 0])
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert mine.shape == other.shape
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, rtol=1e-6)


FUNCTIONS = {
    "softmax": lambda th, x, k, m: jax.nn.log_softmax(-x / th),
    "custom derivative": lambda th, x, k, m: jax.nn.softmax(x * m),
    "broadcast": lambda th, x, k, m: (x.max() - x) ** 2 * m + jnp.arange(K),
    "select": lambda th, x, k, m: jnp.where(x.sum() > 9, x, m),
    "clip": lambda th, x, k, m: jnp.clip(x, 1, 2) + jnp.clip(m, th),
    "outer": lambda th, x, k, m: x[:, None] * m[None, :],
    "transpose": lambda th, x, k, m: jnp.outer(x, m).T,
    "matrix": lambda th, x, k, m: jnp.arange(12.0).reshape(3, K) @ x,
    "slices": lambda th, x, k, m: (x[1:3], x[::2], x[-1], x[::-1]),
    "gather": lambda th, x, k, m: x[jnp.argmax(m)],
    "slice at one place": lambda th, x, k, m: jax.lax.dynamic_slice_in_dim(x, (2 * th).astype(int), 2),
    "scatter": lambda th, x, k, m: x.at[jnp.argmin(m)].add(1.0),
    "concatenate": lambda th, x, k, m: jnp.concatenate([x, m, jnp.ones(2)]),
    "stack": lambda th, x, k, m: jnp.stack([x, m, jnp.zeros(K)], axis=1),
    "sort": lambda th, x, k, m: jnp.sort(x),
    "cumulate": lambda th, x, k, m: (jnp.cumsum(x), jnp.cumprod(m)),
    "while": lambda th, x, k, m: jax.lax.while_loop(lambda c: c.sum() < 50, lambda c: c * 1.5, x),
    "scan": lambda th, x, k, m: jax.lax.scan(lambda c, v: (c + v, c * m.sum()), th, x),
    "cond": lambda th, x, k, m: jax.lax.cond(x[0] > 2, lambda v: v + 1, lambda v: v * 2, m),
    "keys": lambda th, x, k, m: jax.random.normal(jax.random.fold_in(k, 3), (K,)),
    "split": lambda th, x, k, m: jax.vmap(jax.random.uniform)(jax.random.split(k, K)),
    "beta": lambda th, x, k, m: prng.beta(k, x, m + 0.5),
    "other keys": lambda th, x, k, m: jax.random.key_data(
        jax.random.wrap_key_data((100 * x).astype(jnp.uint32), impl="rbg")
    ),
    "words": lambda th, x, k, m: prng.words(k),
    "selection": lambda th, x, k, m: (pick(x, jnp.argmax(m)), one_hot(jnp.argmin(x), K)),
    "constants": lambda th, x, k, m: {"a": jnp.arange(3), "b": th, "c": 2.0},
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_like_vmap(name):
    agree(FUNCTIONS[name])


QUICK = ("softelim", "exp3", "kl-softelim", "lstm", "index", "split", "sliding-window-ucb", "lin-ts")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in POLICIES]
)
def test_policies_like_vmap(name):
    policy = bound(name, K, 40)
    params = compiled(policy, "folded", compiled(policy, "init", jax.random.key(0)))

    def few_rounds(theta, values, key, shared):
        state = policy.begin(params, jnp.int32(policy.latents - 1))
        seen = []
        for t in range(6):
            arm = jnp.int32(t) % K
            state = policy.see(params, state, shared[0] * features(t, K))
            if policy.differentiable:
                seen.append(policy.log_probs(params, state))
            else:
                arm = policy.act(jax.random.fold_in(key, t), params, state)
            state = policy.update(params, state, arm, (values[t % K] > 2).astype(float))
        return state, seen

    agree(few_rounds)


def test_derivatives_pass_through():
    def value(theta):
        inner = batch_last(lambda th, v: jax.nn.log_softmax(-v / th), (R, B), (False, True))
        return inner(theta, x).sum()

    x = jnp.arange(1.0, 1 + K * R * B).reshape(K, R, B) / 10
    direct = jax.jit(jax.grad(lambda th: jax.nn.log_softmax(-x / th, axis=0).sum()))(0.7)
    backward, forward = jax.jit(jax.grad(value)), jax.jit(lambda th: jax.jvp(value, (th,), (1.0,))[1])
    np.testing.assert_allclose(backward(0.7), direct, rtol=1e-5)
    np.testing.assert_allclose(forward(0.7), direct, rtol=1e-5)
