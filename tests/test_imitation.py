"""Warm starts: the gradient of agreement, and what imitation learns."""

from functools import partial

import jax
import numpy as np
import pytest
from every_policy import compiled

import gradband as gb
from gradband.core import prng
from gradband.core.errors import InputError
from gradband.engine import blocks
from gradband.gradient import imitation
from gradband.learning import recipes
from gradband.policies import LSTM, SoftElim, ThompsonSampling

pytestmark = pytest.mark.brief

PROBLEM = gb.problems.named("two-point", horizon=20)
STEPS = partial(recipes.clipped_adam, rate=0.01)


def agreement_gradient(theta, reference, instances=4000):
    policy = SoftElim(theta=theta).bind(2, 20)
    params = policy.init(jax.random.key(0))
    job = imitation.agreement_job(policy, PROBLEM, params, prng.root(1), 0, instances, reference)
    return imitation.compute(job, blocks.workers(devices=1))


def test_a_policy_agrees_best_with_itself():
    """Σ_i p_i ∇log p_i = 0 in every round, so no sampling error is left; and it points to the reference."""
    own = SoftElim(theta=0.3).bind(2, 20)
    reference = (own, own.init(jax.random.key(0)))
    assert abs(agreement_gradient(0.3, reference).mean[0]) < 1e-5
    assert agreement_gradient(0.2, reference).mean[0] > 1e-3
    assert agreement_gradient(0.5, reference).mean[0] < -1e-3


def test_a_network_agrees_best_with_itself():
    """Networks play with parameters that are folded once per rollout, as references too."""
    own = LSTM(hidden=4, head=1.0).bind(2, 20)
    params, others = (compiled(own, "init", jax.random.key(seed)) for seed in (0, 1))

    def gradient(reference):
        job = imitation.agreement_job(own, PROBLEM, params, prng.root(1), 0, 256, (own, reference))
        return np.abs(imitation.compute(job, blocks.workers(devices=1)).mean).max()

    assert gradient(params) < 1e-5
    assert gradient(others) > 1e-3


def test_a_last_block_that_is_not_full_counts_as_what_it_holds():
    other = SoftElim(theta=0.1).bind(2, 20)
    reference = (other, other.init(jax.random.key(0)))
    full, more = (agreement_gradient(0.8, reference, count).mean[0] for count in (128, 130))
    assert more == pytest.approx(full, rel=0.05), "two more of the same kind change little"


def test_agreement_has_the_slope_that_enumeration_gives():
    """Against all histories of 3 rounds, weighted by the learner: E Σ_t Σ_i q(i) d log p(i) / dθ / n."""
    horizon, theta = 3, 0.8
    problem = gb.problems.named("two-point", horizon=horizon)
    policy, other = SoftElim(theta=theta).bind(2, horizon), SoftElim(theta=0.1).bind(2, horizon)
    total, slope_of = 0.0, jax.jit(jax.jacfwd(policy.log_probs))
    for mean in ((0.6, 0.4), (0.4, 0.6)):
        for first, second in np.ndindex(2, 2):  # rewards of the opening pulls
            weight = 0.5 * np.prod([m if y else 1 - m for m, y in zip(mean, (first, second), strict=True)])
            state = policy.after(
                gb.policies.Counts(jax.numpy.ones(2), jax.numpy.array([first, second], float))
            )
            wanted = np.exp(compiled(other, "log_probs", {"theta": 0.1}, state))
            slope = slope_of({"theta": theta}, state)["theta"]
            total += weight * float(wanted @ slope) / horizon
    params = policy.init(jax.random.key(0))
    reference = (other, other.init(jax.random.key(0)))
    job = imitation.agreement_job(policy, problem, params, prng.root(1), 0, 20_000, reference)
    found = imitation.compute(job, blocks.workers())
    assert abs(found.mean[0] - total) < 5 * found.se[0]


def test_learning_goes_on_from_imitation():
    """Half the run imitates: agreement alone brings θ close to the reference's."""
    learned = gb.learn(
        SoftElim(theta=2.0), PROBLEM, imitate=SoftElim(theta=0.3), iterations=60, instances=500
    )
    assert learned.history["regret"].shape == (120,)
    assert float(learned.history["params"][60, 0]) == pytest.approx(0.3, rel=0.1)
    assert learned.about["training"]["imitate"] == "softelim"


@pytest.mark.parametrize(
    "reference",
    [pytest.param(ThompsonSampling(), marks=pytest.mark.slow), gb.exact.optimum(PROBLEM).policy],
)
def test_a_network_imitates_any_policy(reference):
    network = LSTM(hidden=8)
    learned = gb.learn(network, PROBLEM, imitate=reference, iterations=60, instances=128, seed=3)
    table = gb.evaluate({"before": network, "after": learned}, PROBLEM, instances=4000)
    gain = table.difference("before", "after")
    assert gain.mean > 5 * gain.se


def test_a_reference_must_play_the_problem():
    other = gb.exact.optimum(gb.problems.named("two-point", horizon=10)).policy
    with pytest.raises(InputError, match="10 rounds"):
        gb.learn(LSTM(), PROBLEM, imitate=other)


@pytest.mark.slow
def test_a_warm_start_survives_an_interruption(tmp_path):
    """Its stages are of different lengths."""
    warm = recipes.Recipe("warm", iterations=4, instances=40, optimizer=STEPS)
    mine = recipes.Recipe(
        "mine", imitating=warm, tuning=recipes.Recipe("then", iterations=2, instances=60, optimizer=STEPS)
    )
    settings = {"recipe": mine, "imitate": gb.policies.Gittins(), "seed": 3}
    problem = gb.problems.named("two-point", horizon=10)
    whole = gb.learn(LSTM(hidden=4), problem, **settings)
    assert whole.about["training"]["stages"] == [4, 2]
    assert whole.about["training"]["stage_instances"] == [40, 60]
    file = tmp_path / "checkpoint.safetensors"

    def interrupt(step):
        if step.iteration in (3, 5):
            raise KeyboardInterrupt

    kept = {"checkpoint": file, "checkpoint_every": 1}
    for resume in (False, True):
        with pytest.raises(KeyboardInterrupt):
            gb.learn(LSTM(hidden=4), problem, **settings, **kept, resume=resume, progress=interrupt)
    again = gb.learn(LSTM(hidden=4), problem, **settings, **kept, resume=True)
    assert np.array_equal(again.history["regret"], whole.history["regret"])
    assert all(np.array_equal(again.params[name], whole.params[name]) for name in whole.params)
