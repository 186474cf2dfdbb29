"""Policies of every kind, for tests of what plays them."""

import dataclasses
import functools

import jax
import numpy as np

import gradband as gb
from gradband.policies import Seeing
from gradband.policies.linear_policy import LinearPolicy
from gradband.policies.policy_file import Learned

ARMS, HORIZON, DIMS = 4, 60, 3
TABLES = {
    "optimal-thresholds": gb.Problem(gb.priors.Beta(arms=2), horizon=HORIZON),
    "optimal-choices": gb.Problem(gb.priors.Beta(arms=2), horizon=HORIZON, afterwards=500),
    "optimal-graph": gb.Problem(gb.priors.Beta(arms=3), horizon=12),
    "optimal-grid": gb.problems.named("distractors", arms=4, horizon=HORIZON),
}
SAMPLED = ("ts", "hierarchical-ts", "ts-gaussian", "ts-beta", "discounted-ts")
"""JAX draws samples and has no probabilities"""
SIMULATED = ("irs-v-zero",)
"""a player's probabilities are shares of samples"""
NETWORKS = ("lstm", "index", "index-by-arm", "discounted-index", "lstm-gaussian", "index-gaussian")
DRAWN = (*NETWORKS, "dqn", "belief-index")
"""have first parameters that are drawn"""
CONTEXTUAL = [name for name, kind in gb.policies.POLICIES.items() if issubclass(kind, LinearPolicy)]
"""need contexts"""
BY_GROUP = "by-group"
"""needs contexts that say which group a visitor belongs to"""
KNOWN = gb.policies.POLICIES | gb.policies.TABLES
ALL = [name for name, kind in KNOWN.items() if not issubclass(kind, Seeing)]
"""play without contexts"""


def bound(name, arms, horizon, **settings):
    """The policy with these settings for a problem of this size."""
    policy = gb.policies.POLICIES[name](**settings)
    if isinstance(policy, Seeing):
        policy = dataclasses.replace(policy, dims=DIMS)
    return policy.bind(arms, horizon)


def features(t, arms=ARMS, name=""):
    """A round's features of each arm, or of the visitor for a policy with this name."""
    if name == BY_GROUP:
        return np.eye(DIMS, dtype=np.float32)[t % DIMS]
    return np.random.default_rng(t).normal(size=(arms, DIMS)).astype(np.float32)


@functools.partial(jax.jit, static_argnums=(0, 1))
def compiled(policy, method, *given):
    """What a method of a policy gives, by one program: outside of jit each operation would be one."""
    return getattr(policy, method)(*given)


def initial(policy, seed=0):
    """A policy's first parameters. Of most policies they are settings, with next to nothing to compile."""
    key = jax.random.key(seed)
    return compiled(policy, "init", key) if policy.name in DRAWN else policy.init(key)


def folded(policy, params):
    """Parameters as rollouts take them; of most policies they are the same, with nothing to compile."""
    alike = type(policy).folded is gb.policies.Policy.folded
    return policy.folded(params) if alike else compiled(policy, "folded", params)


def learned(name, arms=ARMS, horizon=HORIZON, **settings):
    """A policy with parameters as far from special as learned ones."""
    if name in TABLES:
        return gb.exact.optimum(TABLES[name]).policy
    policy = bound(name, arms, horizon, **settings)
    params = initial(policy, seed=1)
    rng = np.random.default_rng(2)
    if name in NETWORKS:
        params = {
            key: np.asarray(leaf) + 0.1 * rng.normal(size=leaf.shape).astype(np.float32)
            for key, leaf in params.items()
            if key != "forgetting"
        } | {key: leaf for key, leaf in params.items() if key == "forgetting"}
    if name in ("pretrained", "pretrained-beta"):
        params |= {"sharpness": 1.0}  # at 1000, float32 keeps three digits of probabilities
    if name == "discounted-kl-softelim":
        params = {"theta": 0.4, "a": 0.7, "b": 2.3, "forgetting": 0.03}
    if name in ("kl-softelim", "beta-softelim"):
        params = {"theta": 0.4, "a": 0.7, "b": 2.3}
    return Learned(policy, policy.as_params(params), {}, {})
