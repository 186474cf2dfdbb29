"""Same seed, same bits: again, on other devices, in other chunks; and instances stay apart."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from gradband import policies, problems
from gradband.core import prng
from gradband.engine import blocks
from gradband.engine.measure import _play
from gradband.evaluation.evaluate import evaluate
from gradband.gradient import surrogate
from gradband.gradient.estimator import Estimator, estimate
from gradband.learning.ascent import Steps
from gradband.learning.learn import learn
from gradband.policies import Exp3, SoftElim, ThompsonSampling
from gradband.problems import Problem, priors

pytestmark = pytest.mark.brief

PROBLEM = problems.named("bernoulli-10", horizon=40)


def bits(array):
    return np.asarray(array).tobytes()


def regrets(**settings):
    table = evaluate([SoftElim(), ThompsonSampling()], PROBLEM, instances=1500, **settings)
    return {row.name: bits(row.regrets) for row in table.rows}


def test_evaluation_twice_and_on_any_devices():
    first = regrets(devices=1)
    assert first == regrets(devices=1)
    for devices in (2, 3, 4, 8):
        assert first == regrets(devices=devices)
    assert first != regrets(seed=1)


@pytest.mark.parametrize("policy", [SoftElim(), Exp3(theta=0.5)], ids=lambda p: p.name)
def test_gradient_on_any_devices(policy):
    first = estimate(policy, PROBLEM, instances=1000, devices=1)
    for devices in (1, 2, 3, 4, 8):
        again = estimate(policy, PROBLEM, instances=1000, devices=devices)
        assert bits(first.per_instance) == bits(again.per_instance)
        assert bits(first.mean) == bits(again.mean)


def test_learning_twice_and_on_any_devices():
    settings = {"iterations": 6, "instances": 500, "seed": 3}
    runs = [learn(SoftElim(), PROBLEM, devices=d, **settings) for d in (1, 1, 2, 4)]
    assert len({bits(run.params["theta"]) for run in runs}) == 1
    assert len({bits(run.history["regret"]) for run in runs}) == 1


def test_fewer_instances_are_the_first_of_more():
    """An instance does not know how many others there are, nor what happens to them."""
    few = estimate(SoftElim(), PROBLEM, instances=300).per_instance
    many = estimate(SoftElim(), PROBLEM, instances=900).per_instance
    assert bits(few) == bits(many[:, :300])


def test_instances_in_a_batch_do_not_influence_each_other():
    """Change one instance of a table: only its own results change."""
    rng = np.random.default_rng(0)
    table = rng.random((40, 3, 20)).astype(np.float32)
    other = table.copy()
    other[7] = 1 - other[7]

    def run(table):
        return evaluate([SoftElim()], Problem(priors.Table(table, held_out=0), 20), instances=40).rows[0]

    changed = run(table).regrets != run(other).regrets
    assert changed[7]
    assert changed.sum() == 1


def test_the_baseline_leaves_instances_and_rewards_as_they_were():
    """Without a policy's own randomness the realised regrets are the same for all baselines."""
    found = {
        name: estimate(SoftElim(), PROBLEM, instances=500, estimator=Estimator(name, rollouts=rollouts))
        for name, rollouts in (("none", 2), ("optimal", 2), ("self", 2))
    }
    assert len({bits(f.regrets) for f in found.values()}) == 1


def test_policies_are_paired():
    """The same policy under two names has the same regret on every instance."""
    table = evaluate({"one": SoftElim(), "two": SoftElim()}, PROBLEM, instances=500)
    difference = table.difference("one", "two")
    assert (difference.mean, difference.se) == (0, 0)


def test_a_second_call_does_not_compile_again():
    def count():
        steps = [getattr(Steps, name)._cache_size() for name in ("_step", "_first_state")]
        return surrogate.differentiate._cache_size(), _play._cache_size(), *steps

    for theta in (1.0, 0.3):
        estimate(SoftElim(theta=theta), PROBLEM, instances=500)
        evaluate([SoftElim(theta=theta)], PROBLEM, instances=500)
        learn(SoftElim(theta=theta), PROBLEM, iterations=2, instances=500, seed=int(10 * theta))
        if theta == 1.0:
            counts = count()
    prior = priors.Beta(arms=10, a=2.0, b=3.0)
    estimate(SoftElim(), Problem(prior, 40), instances=500, seed=5)
    evaluate([SoftElim()], Problem(prior, 40), instances=500, seed=5)
    assert count() == counts


@pytest.mark.slow
def test_nothing_is_nan_under_scrutiny():
    with jax.debug_nans(True):
        for policy in policies.POLICIES.values():
            if policy.differentiable and policy.name != "uniform":
                estimate(policy(), problems.named("two-point", horizon=8), instances=64, devices=1)


def test_every_draw_has_bits_of_its_own(monkeypatch):
    """Rewards and actions of all rounds, rollouts and instances: as many words as draws."""
    seen = []
    original = prng.hash_words

    def recorded(key, counter, rounds=prng.FULL):
        found = original(key, counter, rounds)
        if rounds == prng.SHORT:
            jax.debug.callback(lambda *words: seen.extend(map(np.asarray, words)), *found)
        return found

    monkeypatch.setattr(prng, "hash_words", recorded)
    problem = problems.named("two-point", horizon=31)
    estimate(SoftElim(), problem, instances=64, devices=1, engine="xla")
    jax.effects_barrier()
    rounds = 31 + 2  # one before the first, and the last draws for a round that does not come
    drawn = np.concatenate([words.ravel() for words in seen])
    assert drawn.size == rounds * 2 * 4 * 512  # two words of keys for the rewards and for three rollouts
    # Of 135 168 random words of 32 bits, 2.1 pairs are equal by chance: more than 13 once in 10⁷ times.
    assert drawn.size - np.unique(drawn).size <= 13


@pytest.mark.parametrize("size", [100, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 2048))])
def test_evaluation_in_chunks_of_any_size(monkeypatch, size):
    """But for a single instance, which is compiled to other code, and which nobody can ask for."""
    usual = regrets(devices=1)
    monkeypatch.setattr(blocks, "block_size", lambda arms: size)
    assert regrets(devices=1) == usual


ON_DEVICES = """
import hashlib, sys, jax, gradband as gb
problem = gb.problems.named("two-point", horizon=20)
if sys.argv[1] == "exp3":
    found = gb.estimate(gb.policies.Exp3(theta=0.5), problem, instances=1500).per_instance
else:
    settings = {"iterations": 3, "instances": 300, "curriculum": []}
    learned = gb.learn(gb.policies.LSTM(hidden=8), problem, **settings)
    regrets = gb.evaluate(learned, problem, instances=1500).rows[0].regrets
    found = jax.flatten_util.ravel_pytree(learned.params)[0]
    print(hashlib.sha256(regrets.tobytes()).hexdigest())
print(jax.local_device_count(), hashlib.sha256(found.tobytes()).hexdigest())
"""


def on_devices(what, counts):
    """What is printed of some work on so many of JAX's own devices, each a thread of this machine."""
    seen = {}
    for count in counts:
        environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(count)}
        command = [sys.executable, "-c", ON_DEVICES, what]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        *digests, last = ran.stdout.splitlines()
        devices, digest = last.split()
        seen[int(devices)] = (*digests, digest)
    assert list(seen) == list(counts)
    return seen


def test_several_jax_devices_give_the_bits_of_one():
    """JAX's own devices, not only workers on one of them: each compiles the same program for itself."""
    assert len(set(on_devices("exp3", (1, 8)).values())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("what", ["exp3", "lstm"])
def test_any_number_of_jax_devices_gives_the_bits_of_one(what):
    assert len(set(on_devices(what, (1, 2, 3, 4, 8)).values())) == 1
