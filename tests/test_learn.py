"""GradBand: it reaches the paper's regrets, stops when it must, and goes on where it was."""

import dataclasses
import itertools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gradband import problems
from gradband.core import prng
from gradband.core.errors import InputError
from gradband.core.statistics import Mean
from gradband.evaluation.evaluate import evaluate
from gradband.gradient import estimator
from gradband.gradient.estimator import Estimator
from gradband.learning.ascent import PLAIN
from gradband.learning.learn import learn
from gradband.learning.recipes import annealed
from gradband.learning.units import reward_scale
from gradband.policies import Boltzmann, Counting, EpsilonGreedy, Exp3, KLSoftElim, SoftElim
from gradband.policies.policy_file import load
from gradband.problems import Problem, priors, rewards

SMALL = problems.named("two-point", horizon=20)
QUICK = {"iterations": 6, "instances": 256}


def theta(learned):
    return float(learned.params["theta"])


def test_softelim_on_two_point():
    """The paper has 4.75; the best θ is near .3."""
    problem = problems.named("two-point")
    learned = learn(SoftElim(), problem, seed=20)
    assert 0.2 < theta(learned) < 0.42
    assert evaluate([learned], problem, seed=20).rows[0].regret.mean < 4.75 + 5 * 0.07
    assert learned.history["regret"].shape == (100,)
    assert 0.1 < learned.history["params"][0, 0] < 1.0  # the best of a survey
    assert not learned.stopped


@pytest.mark.parametrize(
    ("policy", "low", "high"),
    [(Exp3(), 0.15, 0.4), (EpsilonGreedy(), 0.02, 0.25), (Boltzmann(), 0.01, 0.2)],
)
def test_other_policies_end_near_their_best(policy, low, high):
    problem = problems.named("two-point")
    learned = learn(policy, problem, iterations=60, instances=500)
    table = evaluate({"learned": learned, "before": policy}, problem, instances=5000)
    better = table.difference("before", "learned")
    assert better.mean > 5 * better.se
    assert low < theta(learned) < high


@pytest.mark.parametrize("how", [Estimator("optimal"), Estimator("leave-one-out", 4, "expected")], ids=str)
def test_other_baselines_learn_too(how):
    learned = learn(SoftElim(), problems.named("two-point"), estimator=how, iterations=40, instances=500)
    assert 0.2 < theta(learned) < 0.45


@pytest.mark.parametrize("how", [{"scale": "linear"}, {"optimizer": PLAIN}, {"recipe": "algorithm-1"}])
def test_algorithm_1_as_the_paper_prints_it(how):
    """From θ = 1, with a constant step, to the last iterate; on the problem where it is stable."""
    steps = []
    learned = learn(SoftElim(), problems.named("two-point"), seed=1, progress=steps.append, **how)
    assert 0.15 < theta(learned) < 0.5
    assert learned.history["params"][0, 0] == 1.0
    assert theta(learned) == float(steps[-1].params["theta"])
    assert learned.about["training"]["recipe"] == "algorithm-1"
    assert "choice" not in learned.about


HEADLINES = Problem(
    priors.Hierarchical(4, a=2.4, b=143.0, strength=1400.0), horizon=3000, pulls_per_round=100
)


def test_learning_ends_as_well_as_a_grid_where_gradients_are_rare_and_large():
    """As fitted to headlines: a gradient's standard error is a hundred times what θ changes."""
    learned = {f"seed {seed}": learn(SoftElim(), HEADLINES, seed=seed) for seed in (2,)}
    grid = {f"{t:.3g}": SoftElim(theta=t) for t in np.logspace(-3, -1, 5).tolist()}
    table = evaluate(learned | grid | {"before": SoftElim()}, HEADLINES, instances=8000, seed=5)
    best = min(grid, key=lambda name: table[name].regret.mean)
    for name in learned:
        excess = table.difference(name, best)
        assert excess.mean < 0.01 * table[best].regret.mean + 2 * excess.se
        assert excess.mean < 0.03 * table[best].regret.mean
        assert table.difference("before", name).mean > 0


@pytest.mark.brief
def test_learning_never_ends_worse_than_it_began():
    """Steps in the wrong direction: the start is kept, or what is near it."""
    learned = learn(SoftElim(), SMALL, params={"theta": 0.5}, optimizer=optax.sgd(-1.0), **QUICK)
    seen = learned.history["params"][:, 0]
    assert seen[0] == np.float32(0.5)
    assert seen[-1] > 1
    choice = learned.about["choice"]
    assert choice["chosen"] in ("start", "near start")
    assert choice["regrets"][choice["chosen"]] == min(choice["regrets"].values())
    assert 0.05 < theta(learned) < 0.8


def test_several_parameters_are_surveyed_together():
    """KL-SoftElim with a strong prior is within .2 of the optimum 2.48; ascent alone ends at 3.9."""
    problem = problems.named("two-point")
    learned = learn(KLSoftElim(), problem, iterations=20, instances=500)
    assert evaluate(learned, problem, instances=5000).rows[0].regret.mean < 3.2


@dataclasses.dataclass(frozen=True)
class Wide(rewards.Reward):
    """Uniform on μ ± 300, with a standard deviation of 300/√3."""

    kind: ClassVar[str] = "wide"
    unit: ClassVar[bool] = False

    def draw(self, key, mean):
        return mean + 300 * (2 * prng.uniform(key) - 1)


def normal(sd):
    return Problem(priors.Gaussian(3, sd=sd, rewards=rewards.Gaussian(sd)), 50)


@pytest.mark.brief
def test_the_scale_of_rewards():
    key = prng.root(0)
    assert reward_scale(SMALL, key) == 0.5
    assert reward_scale(normal(100.0), key) == 100
    wide = Problem(priors.Gaussian(2, sd=1e4, rewards=Wide()), 10)
    assert reward_scale(wide, key) == pytest.approx(300 / 3**0.5, rel=0.05)
    table = 7 * np.random.default_rng(0).normal(size=(50, 2, 20)) + 1000
    assert reward_scale(Problem(priors.Table(table), 20), key) == pytest.approx(7, rel=0.1)
    still = Problem(priors.Table(np.arange(40.0).reshape(20, 2, 1)), 1)
    assert reward_scale(still, key) > 1


@pytest.mark.brief
def test_learning_does_not_depend_on_the_scale_of_rewards():
    """In units of the rewards' standard deviation, the same start, the same θ and the same regret."""
    found = {sd: learn(SoftElim(), normal(sd), **QUICK) for sd in (1.0, 1000.0)}
    assert [learned.policy.theta for learned in found.values()] == pytest.approx([4, 4e6])
    rows = {sd: evaluate(found[sd], normal(sd), instances=4000).rows[0].regrets / sd for sd in found}
    assert theta(found[1000.0]) / 1e6 == pytest.approx(theta(found[1.0]), rel=0.1)
    difference = Mean.of(rows[1000.0] - rows[1.0])
    assert abs(difference.mean) < 5 * difference.se + 1e-3 * rows[1.0].mean()


@pytest.mark.brief
def test_a_theta_that_is_given_is_taken_as_it_is():
    for how in ({"params": {"theta": 1.0}}, {}):
        policy = SoftElim() if how else SoftElim(theta=0.7)
        learned = learn(policy, normal(100.0), **how, **QUICK)
        assert learned.history["params"][0, 0] == np.float32(1.0 if how else 0.7)


def test_any_optax_optimiser_with_a_schedule():
    schedule = optax.exponential_decay(0.1, 1, 0.99)
    learned = learn(SoftElim(), SMALL, optimizer=optax.adam(schedule), **QUICK)
    steps = np.abs(np.diff(np.log10(learned.history["params"][:, 0])))
    assert steps[0] == pytest.approx(0.1, rel=1e-3)  # Adam's first step is its learning rate
    assert theta(learned) != 1.0


def test_temperature_and_curriculum():
    assert annealed(1, 100) == pytest.approx(1 / (1 - np.exp(-0.05)))
    assert annealed(100, 100) == pytest.approx(1, abs=0.01)
    learned = learn(SoftElim(), SMALL, temperature=annealed, curriculum=[5, 10], **QUICK)
    np.testing.assert_array_equal(learned.history["horizon"], [5] * 6 + [10] * 6 + [20] * 6)
    plain = learn(SoftElim(), SMALL, curriculum=[5, 10], **QUICK)
    assert not np.array_equal(plain.history["regret"], learned.history["regret"])
    # A temperature of 1 is none, but for rounding.
    asked = set()

    def flat(i, count):
        asked.add((i, count))
        return 1.0

    one = learn(SoftElim(), SMALL, temperature=flat, curriculum=[5, 10], **QUICK)
    assert theta(one) == pytest.approx(theta(plain), rel=1e-4)
    assert asked == {(i, 6) for i in range(1, 7)}


@pytest.mark.parametrize(("rate", "bound"), [(1e4, Exp3.least), (-1e4, Exp3.most)])
def test_bounds_hold(rate, bound):
    """Giant steps up the gradient, which wants less exploration, or down: θ ends at its bound."""
    seen = []
    learn(
        Exp3(theta=0.5),
        problems.named("two-point"),
        optimizer=optax.sgd(rate),
        progress=lambda step: seen.append(float(step.params["theta"])),
        **QUICK,
    )
    assert all(np.float32(Exp3.least) <= theta <= Exp3.most for theta in seen)
    assert np.float32(bound) in seen


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coin(Counting):
    """Pulls either of two arms, at random."""

    name: ClassVar[str] = "coin"
    opens: ClassVar[bool] = False

    def init(self, key):
        return {"w": jnp.zeros(2)}

    def log_probs(self, params, state):
        return jax.nn.log_softmax(params["w"])


@pytest.mark.brief
def test_no_instance_is_seen_again(monkeypatch):
    """Nor is one in the evaluation. In a single round, a regret that is not 0 tells the instance."""
    problem = Problem(priors.Beta(2), 1)
    latest, seen = [], []

    def recorded(*given, **settings):
        latest[:] = [estimated(*given, **settings)]
        return latest[0]

    estimated = estimator.compute
    monkeypatch.setattr("gradband.gradient.estimator.compute", recorded)
    settings = {"estimator": "optimal", "optimizer": optax.sgd(0.01), "iterations": 5, "instances": 400}
    learned = learn(
        Coin(), problem, progress=lambda step: seen.append(latest[0].regrets), seed=8, **settings
    )
    seen += [evaluate(other, problem, instances=400, seed=8).rows[0].regrets for other in (learned, Coin())]
    batches = [np.unique(regrets[regrets > 0].round(6)) for regrets in seen]
    assert all(batch.size > 150 for batch in batches)
    *training, one, other = batches
    for early, late in itertools.combinations([*training, one], 2):
        assert np.isin(early, late).mean() < 0.01, "but for gaps that are the same by chance"
    assert np.isin(one, other).mean() > 0.4, "policies are compared on the same instances"


def test_progress_is_told_every_step():
    steps = []
    learned = learn(SoftElim(), SMALL, progress=steps.append, **QUICK)
    assert [s.iteration for s in steps] == [1, 2, 3, 4, 5, 6]
    assert [s.iterations for s in steps] == [6] * 6
    np.testing.assert_allclose([s.regret for s in steps], learned.history["regret"], rtol=1e-6)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fragile(Counting):
    """A policy whose derivative breaks once its parameter has left its start."""

    name: ClassVar[str] = "fragile"

    def init(self, key):
        return {"w": jnp.zeros(2)}

    def log_probs(self, params, state):
        w = params["w"]
        safe = jnp.where(jnp.abs(w).sum() > 0, jnp.nan, 1.0)
        return jax.nn.log_softmax(w * safe)


def test_a_gradient_that_is_not_finite_stops_with_the_last_good_parameters():
    learned = learn(Fragile(), SMALL, **QUICK)
    assert "sum to nan, not to 1, in round 1 of instance 0, in iteration 2" in learned.stopped
    assert np.isfinite(learned.params["w"]).all()
    assert len(learned.history["regret"]) == 2
    assert np.isfinite(evaluate(learned, SMALL, instances=100).rows[0].regret.mean)


def test_where_there_is_nothing_to_learn_it_says_so():
    """With as many rounds as arms SoftElim has no choice."""
    learned = learn(SoftElim(), problems.named("two-point", horizon=2), **QUICK)
    assert "nothing to learn" in learned.stopped
    assert theta(learned) == 1.0


def test_a_setting_that_no_file_can_keep_is_refused_at_once():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Unkept(Fragile):
        activation: object = len

    with pytest.raises(InputError, match="cannot be kept in a file"):
        learn(Unkept(), SMALL, **QUICK)


def test_interrupted_and_resumed_is_the_same_to_the_bit(tmp_path):
    settings = {
        "iterations": 12,
        "instances": 256,
        "seed": 4,
        "optimizer": optax.adam(0.05),
        "curriculum": [10],
    }
    whole = learn(SoftElim(), SMALL, **settings)
    file = tmp_path / "checkpoint.safetensors"
    for stop_at in (3, 15):

        def interrupt(step, stop_at=stop_at):
            if step.iteration == stop_at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            learn(
                SoftElim(),
                SMALL,
                checkpoint=file,
                checkpoint_every=2,
                resume=True,
                progress=interrupt,
                **settings,
            )
    again = learn(SoftElim(), SMALL, checkpoint=file, resume=True, **settings)
    assert again.about["choice"] == whole.about["choice"]
    assert np.asarray(again.params["theta"]).tobytes() == np.asarray(whole.params["theta"]).tobytes()
    for name in whole.history:
        assert again.history[name].tobytes() == whole.history[name].tobytes()
    done = learn(SoftElim(), SMALL, checkpoint=file, resume=True, **settings)
    assert theta(done) == theta(whole)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    file = tmp_path / "checkpoint.safetensors"
    learn(SoftElim(), SMALL, checkpoint=file, **QUICK)
    for changed in ({"seed": 1}, {"instances": 128}, {"params": {"theta": 0.5}}, {"curriculum": [10]}):
        with pytest.raises(InputError, match="other settings"):
            learn(SoftElim(), SMALL, checkpoint=file, resume=True, **(QUICK | changed))
    given = {"optimizer": ("adam, .1", optax.adam(0.1))}
    with pytest.raises(InputError, match="training.optimizer was"):
        learn(SoftElim(), SMALL, checkpoint=file, resume=True, **given, **QUICK)
    with pytest.raises(InputError, match="checkpoint"):
        learn(SoftElim(), SMALL, resume=True, **QUICK)


def test_saved_and_loaded(tmp_path):
    learned = learn(SoftElim(), SMALL, **QUICK)
    learned.save(tmp_path / "p.safetensors")
    again = load(tmp_path / "p.safetensors")
    assert theta(again) == theta(learned)
    assert again.policy == learned.policy
    one, other = (evaluate([x], SMALL, instances=500).rows[0].regrets for x in (learned, again))
    np.testing.assert_array_equal(one, other)


def test_bad_settings_are_refused_before_anything_is_compiled(monkeypatch):
    def never(*_args, **_settings):
        raise AssertionError("compiled")

    monkeypatch.setattr("gradband.gradient.estimator.compute", never)
    for settings, match in (
        ({"iterations": 0}, "iterations"),
        ({"instances": 0}, "instances"),
        ({"instances": 2.5}, "instances"),
        ({"seed": -1}, "seed"),
        ({"scale": "lin"}, "did you mean 'linear'"),
        ({"curriculum": [1]}, "at least 2, not 1"),
        ({"params": {"theta": -1.0}}, "theta"),
        ({"params": {"eta": 1.0}}, "eta"),
        ({"params": {"theta": [1.0, 2.0]}}, "shape"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"devices": 0}, "devices"),
        ({"estimator": 3}, "an estimator must be"),
    ):
        with pytest.raises(InputError, match=match):
            learn(SoftElim(), SMALL, **settings)
