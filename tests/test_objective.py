"""Learning for the tail of regret: its gradient against enumeration, and what it learns."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z

import gradband as gb
from gradband.core.errors import InputError
from gradband.gradient.estimator import Estimator
from gradband.gradient.objective import Objective, parse_objective
from gradband.learning import recipes

pytestmark = pytest.mark.brief

MEANS, WEIGHTS = np.array([[0.9, 0.2], [0.3, 0.5], [0.1, 0.2]]), np.array([0.2, 0.5, 0.3])
SMALL = gb.Problem(gb.priors.Finite(MEANS.tolist(), WEIGHTS.tolist()), 5)
MANY = 60_000


def enumerated(policy, problem, threshold, share):
    """E(R − τ)⁺ / α and its gradient by all arms and rewards of all instances, and all R with their P."""
    policy = policy.bind(2, problem.horizon)
    games = list(itertools.product(range(2), range(2), repeat=problem.horizon))
    arms, gained = np.array(games)[:, ::2], np.array(games, float)[:, 1::2]

    def log_p(params, pulled, rewards):
        def step(carry, at):
            (state, total), (t, arm, reward) = carry, at
            total = total + policy.next_log_probs(params, state, t)[arm]
            return (policy.update(params, state, arm, reward), total), None

        first = policy.begin(params, 0), jnp.zeros(())
        return jax.lax.scan(step, first, (jnp.arange(problem.horizon), pulled, rewards))[0][1]

    chances, regrets = [], []
    for means, weight in zip(MEANS, WEIGHTS, strict=True):
        rates = means[arms]
        chances.append(weight * np.where(gained == 1, rates, 1 - rates).prod(1))
        regrets.append((means.max() - rates).sum(1))
    chances, regrets = np.array(chances), np.array(regrets)
    weights = (chances * np.maximum(regrets - threshold, 0) / share).sum(0)

    def loss(params):
        played = jnp.exp(jax.vmap(lambda a, y: log_p(params, a, y))(arms, gained))
        return (played * weights).sum(), played

    both = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (value, played), gradient = both(policy.init(None))
    return value, gradient, (chances * np.asarray(played)).ravel(), regrets.ravel()


@pytest.mark.parametrize("baseline", ["none", "self", "leave-one-out"])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_gradient_of_a_tail_is_that_of_enumeration(baseline, share):
    policy, tau = gb.policies.SoftElim(theta=0.4), 0.5
    exact = float(enumerated(policy, SMALL, tau, share)[1]["theta"])
    how = Estimator(baseline, objective=f"cvar:{share}")
    found = gb.estimate(policy, SMALL, instances=MANY, estimator=how, seed=3, threshold=tau)
    assert_z(found.mean[0], found.se[0], -exact)
    assert abs(exact) > 5 * found.se[0]  # a gradient of 0 would fail


def test_the_gradient_in_reverse_mode_is_that_of_enumeration():
    """Three weights of a network that has more than eight, at random."""
    policy, tau = gb.policies.IndexNetwork(hidden=2), 0.5
    bound = policy.bind(2, 5)
    params = {
        n: 0.3 * jnp.asarray(np.random.default_rng(0).normal(size=s.shape), jnp.float32)
        for n, s in bound.specs().items()
    }

    class Fixed(type(bound)):
        def init(self, key):
            return params

    exact = enumerated(Fixed(hidden=2), SMALL, tau, 0.3)[1]
    how = Estimator("leave-one-out", objective="cvar:0.3")
    found = gb.estimate(policy, SMALL, params, instances=MANY, estimator=how, seed=4, threshold=tau)
    flat = jax.flatten_util.ravel_pytree(exact)[0]
    assert_z(found.mean, found.se, -np.asarray(flat))


def test_the_usual_threshold_is_the_quantile():
    """At τ = the quantile, τ + E(R − τ)⁺ / α is the mean of the worst share, as evaluated."""
    policy = gb.policies.SoftElim(theta=0.4)
    _, _, chances, regrets = enumerated(policy, SMALL, 0.0, 0.1)
    order = np.argsort(-regrets)
    tail = np.minimum(np.cumsum(chances[order]), 0.1)
    exact = (np.diff(tail, prepend=0) * regrets[order]).sum() / 0.1
    row = gb.evaluate(policy, SMALL, instances=20_000, seed=1).rows[0]
    assert_z(row.cvar(0.1).mean, row.cvar(0.1).se, exact)
    how = Estimator("self", objective="cvar:0.1")
    given = gb.estimate(policy, SMALL, instances=2000, estimator=how, threshold=row.quantile(0.9).value)
    usual = gb.estimate(policy, SMALL, instances=2000, estimator=how)
    assert usual.by_rollout.shape == (2, 2000)
    assert usual.mean == pytest.approx(given.mean, rel=0.2)


def test_learning_lowers_the_tail():
    """From a start that explores far too much, by gradients alone: no survey, no choice."""
    plain = recipes.Recipe("plain", iterations=15, instances=500, optimizer=recipes.GRADBAND.optimizer)
    tail = recipes.Recipe("tail", 15, 500, objective="cvar:0.2", optimizer=recipes.GRADBAND.optimizer)
    problem = gb.problems.named("two-point", horizon=50)
    start = gb.policies.SoftElim(theta=8.0)
    found = gb.learn(start, problem, recipe=tail)
    assert found.about["training"]["objective"] == "cvar:0.2"
    assert "objective" not in gb.learn(start, problem, recipe=plain, iterations=1).about["training"]
    table = gb.evaluate({"before": start, "after": found}, problem, instances=4000)
    saved = table.difference_in_tail("before", "after", 0.2)
    assert saved.mean > 5 * saved.se


def test_a_checkpoint_keeps_the_threshold(tmp_path):
    problem, file = gb.problems.named("two-point", horizon=20), tmp_path / "checkpoint.safetensors"
    how = {"estimator": Estimator("self", objective="cvar:0.2"), "iterations": 6, "instances": 64}
    whole = gb.learn("softelim", problem, **how)

    def stop(step):
        if step.iteration == 4:
            raise KeyboardInterrupt

    kept = {"checkpoint": file, "checkpoint_every": 2}
    with pytest.raises(KeyboardInterrupt):
        gb.learn("softelim", problem, **how, **kept, progress=stop)
    again = gb.learn("softelim", problem, **how, **kept, resume=True)
    assert (again.history["params"] == whole.history["params"]).all()


def test_objectives_are_parsed():
    assert parse_objective("mean") == Objective()
    assert str(parse_objective("cvar:0.10")) == "cvar:0.1"
    for wrong in ("cvar", "cvar:0", "cvar:1", "cvar:x", "cvar:nan", "mean:1", "median", 3):
        with pytest.raises(InputError, match="the objective must be mean, or cvar"):
            parse_objective(wrong)
    with pytest.raises(InputError, match="none, self, leave-one-out"):
        Estimator("luck", objective="cvar:0.1")
    with pytest.raises(InputError, match="threshold is for the objective cvar"):
        gb.estimate("softelim", SMALL, threshold=1.0)
