"""Recipes: the paper's own, the usual ones, and what takes precedence."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradband as gb
from gradband.core import tensor_file
from gradband.core.errors import InputError
from gradband.core.pytrees import flattened
from gradband.gradient.estimator import Estimate
from gradband.learning import recipe_file, recipes
from gradband.policies import DQN, LSTM, SoftElim

pytestmark = pytest.mark.brief

SMALL = gb.problems.named("two-point", horizon=30)


def test_the_papers_recipe_is_appendix_f():
    plan = recipes.RECIPES["paper"]
    assert (plan.iterations, plan.instances, plan.curriculum(200)) == (1000, 500, (20,))
    assert (plan.estimator.baseline, plan.estimator.returns) == ("self", "realised")
    assert plan.temperature is not None
    assert plan.temperature(200, 1000) == pytest.approx(1 / (1 - math.exp(-1)))
    for name in ("paper", "paper-yogi"):
        optimizer = recipes.RECIPES[name].optimizer_for(1000, 200)
        weight, sizes = {"w": jnp.zeros(())}, []
        state = optimizer.init(weight)
        for _ in range(300):
            change, state = optimizer.update({"w": jnp.ones(())}, state, weight)
            sizes.append(abs(float(change["w"])))
        late = np.array(sizes[-100:])  # Yogi needs a while until its steps have their size
        np.testing.assert_allclose(late[1:] / late[:-1], 0.999, rtol=0.01)
    policy = plan.begin(LSTM())
    assert (policy.forget, policy.head, policy.bias_scale) == (0.0, 1.0, 1.0)
    assert plan.entropy is None


def test_a_network_is_learned_at_rising_horizons(monkeypatch):
    """A tenth of the horizon, three tenths, all of it; what is computed there does not matter here."""

    def flat(todo, on):
        regrets, gradient = np.zeros(todo.instances), flattened(todo.operands[0].params)
        return Estimate(0 * gradient, gradient, gradient, None, regrets)

    monkeypatch.setattr("gradband.gradient.estimator.compute", flat)
    learned = gb.learn(LSTM(hidden=4), SMALL, iterations=2, instances=8)
    assert learned.history["horizon"].tolist() == [3, 3, 9, 9, 30, 30]
    assert learned.about["training"]["curriculum"] == [3, 9]


def test_the_worth_of_entropy_fades_from_iteration_to_iteration():
    worth = [recipes.RECIPES["network"].entropy(i, 100, 50) for i in range(1, 101)]
    assert worth[0] == pytest.approx(1 / 50)
    assert (np.diff(worth) < 0).all()
    assert 0 <= worth[-1] < 1e-3 / 50

    def late(iteration, iterations, horizon):
        return 1000.0 if iteration == iterations else 0.0

    mine = recipes.Recipe("mine", entropy=late, optimizer=lambda iterations, horizon: optax.sgd(0.0))
    norms = gb.learn(SoftElim(), SMALL, recipe=mine, iterations=3, instances=64).history["norm"]
    assert norms[2] > 100 * max(norms[:2]) > 0


def test_steps_of_the_network_recipe_rise_to_their_size_and_fall():
    optimizer, weight = recipes.RECIPES["network"].optimizer_for(100, 20), {"w": jnp.zeros(())}
    state, steps = optimizer.init(weight), []
    for _ in range(100):
        change, state = optimizer.update({"w": jnp.ones(())}, state, weight)
        steps.append(float(change["w"]))
    assert (np.argmax(np.abs(steps)), max(np.abs(steps))) == (10, pytest.approx(0.005, rel=1e-3))
    assert abs(steps[-1]) < 0.03 * 0.005


def test_what_is_given_comes_before_the_recipe():
    learned = gb.learn(LSTM(hidden=4), SMALL, recipe="paper", iterations=2, instances=30, curriculum=[5])
    training = learned.about["training"]
    assert (training["recipe"], training["iterations"], training["instances"]) == ("paper", 2, 30)
    assert (training["baseline"], training["temperature"]) == ("self", "annealed")
    assert learned.history["horizon"].tolist() == [5, 5, 30, 30]
    assert learned.policy.head == 1.0


def test_a_recipe_of_your_own():
    mine = recipes.Recipe("mine", iterations=3, instances=50)
    learned = gb.learn(SoftElim(), SMALL, recipe=mine)
    assert learned.history["regret"].shape == (3,)
    assert learned.about["training"]["recipe"] == "mine"


def test_where_means_are_unknown_networks_do_without_a_critic():
    table = gb.priors.Table(np.random.default_rng(0).random((20, 2, 30)).round())
    learned = gb.learn(LSTM(hidden=4), gb.Problem(table, 30), iterations=1, instances=8, curriculum=[])
    assert learned.about["training"]["baseline"] == "leave-one-out"


@pytest.mark.slow
def test_a_curriculum_has_only_horizons_that_can_be_played():
    """Whole batches, and a round for each arm of a policy that pulls all of them first."""
    network = recipes.NETWORK
    assert network.horizons(SoftElim(), gb.Problem(gb.priors.Beta(2), 200)) == (20, 60)
    assert network.horizons(SoftElim(), gb.Problem(gb.priors.Beta(10), 50)) == (10, 15)
    assert network.horizons(LSTM(), gb.Problem(gb.priors.Beta(10), 50)) == (5, 15)
    assert network.horizons(SoftElim(), gb.Problem(gb.priors.Beta(2), 700, pulls_per_round=100)) == (
        100,
        300,
    )
    assert network.horizons(SoftElim(), gb.Problem(gb.priors.Beta(2), 300, pulls_per_round=100)) == (100,)
    assert network.horizons(SoftElim(), gb.Problem(gb.priors.Beta(9), 9)) == ()
    ten = gb.Problem(gb.priors.Beta(10), 30)
    learned = gb.learn(SoftElim(), ten, recipe="network", iterations=1, instances=16)
    assert learned.history["horizon"].tolist() == [10, 30]


def test_a_network_ends_no_worse_than_it_began():
    """Steps that ruin it: where it began, as KL-SoftElim, is kept."""
    learned = gb.learn(
        gb.policies.IndexNetwork(hidden=4),
        SMALL,
        iterations=3,
        instances=32,
        curriculum=[],
        optimizer=optax.sgd(1e6),
    )
    choice = learned.about["choice"]
    assert choice["chosen"] == "start"
    assert choice["regrets"]["start"] < choice["regrets"]["last"]


def test_unknown_recipes_are_refused():
    with pytest.raises(InputError, match="recipe"):
        gb.learn(SoftElim(), SMALL, recipe="magic")
    with pytest.raises(InputError, match="recipe does not apply to dqn"):
        gb.learn(DQN(), SMALL, recipe="paper")


@pytest.mark.slow
def test_a_critic_survives_an_interruption(tmp_path):
    settings = {"iterations": 6, "instances": 64, "curriculum": [10], "seed": 2}
    whole = gb.learn(LSTM(hidden=4), SMALL, **settings)
    file = tmp_path / "checkpoint.safetensors"

    def interrupt(step):
        if step.iteration in (4, 9):
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            gb.learn(
                LSTM(hidden=4),
                SMALL,
                checkpoint=file,
                checkpoint_every=1,
                resume=True,
                progress=interrupt,
                **settings,
            )
    again = gb.learn(LSTM(hidden=4), SMALL, checkpoint=file, resume=True, **settings)
    for name, leaf in whole.params.items():
        assert np.asarray(leaf).tobytes() == np.asarray(again.params[name]).tobytes()


@pytest.mark.parametrize("change", ["gone", "another horizon", "not finite"])
def test_a_damaged_critic_in_a_checkpoint_is_refused(tmp_path, change):
    file = tmp_path / "checkpoint.safetensors"
    settings = {"estimator": "critic", "iterations": 2, "instances": 20, "checkpoint": file}
    gb.learn(SoftElim(), SMALL, **settings)
    arrays, about = tensor_file.load(file, "checkpoint")
    critic = arrays.pop("critic")
    if change == "another horizon":
        arrays["critic"] = critic[:-1]
    if change == "not finite":
        arrays["critic"] = critic * np.nan
    tensor_file.save(file, "checkpoint", arrays, about)
    with pytest.raises(InputError, match="critic"):
        gb.learn(SoftElim(), SMALL, resume=True, **settings)


# Recipe files.


def written(folder, text):
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recipe_file_has_every_field_of_a_recipe():
    fields = {field.name for field in dataclasses.fields(recipes.Recipe)}
    assert fields | {"base"} == set(recipe_file.KEYS)
    read = {"estimator", "settings", *recipe_file._READERS}
    assert fields - set(recipe_file.STAGES) == read


EVERYTHING = """
name = "all of it"
base = "network"
iterations = 7
instances = 30
most = 100_000
scale = "linear"
temperature = "annealed"
entropy = "none"
curriculum = [5, 10]
survey = true
choose = false
refine = false
certify = 5.0
estimator = { baseline = "leave-one-out", rollouts = 3, returns = "expected" }
settings = { forget = 0.5 }

[optimizer]
name = "adam"
learning_rate = 0.01
cosine = true
warm = 0.1
fall = 0.4
clip = 1.0

[imitating]
iterations = 3
optimizer = "sgd"

[tuning]
instances = 20
estimator = "none"
"""


def test_a_recipe_file_says_everything(tmp_path):
    found = recipes.choose(LSTM().bind(2, 30), written(tmp_path, EVERYTHING))
    assert (found.name, found.iterations, found.instances, found.most) == ("all of it", 7, 30, 100_000)
    assert (found.scale, found.temperature, found.entropy) == ("linear", recipes.annealed, None)
    assert (found.curriculum(30), found.survey, found.choose, found.refine) == ((5, 10), True, False, False)
    assert found.certify == 5.0
    assert found.estimator == gb.Estimator("leave-one-out", 3, "expected")
    assert found.settings == {"forget": 0.5}
    usual = recipes.NETWORK
    assert found.imitating.iterations == 3
    assert found.imitating.instances == usual.imitating.instances
    assert (found.tuning.instances, found.tuning.estimator.baseline) == (20, "none")
    assert found.tuning.estimator.returns == "expected"
    assert found.tuning.optimizer == usual.tuning.optimizer
    theirs, ours = usual.optimizer_for(50, 40), found.optimizer_for(50, 40)
    assert ours is found.optimizer_for(50, 40)
    for optimizer in (theirs, ours):
        assert len(optimizer.init({"w": jnp.zeros(())})) == 2  # it is clipped first


def test_what_a_recipe_file_leaves_out_is_as_usual(tmp_path):
    path = written(tmp_path, "iterations = 3\n")
    found = recipes.choose(SoftElim().bind(2, 30), path)
    assert found == dataclasses.replace(recipes.GRADBAND, name="mine", iterations=3)
    learned = gb.learn(SoftElim(), SMALL, recipe=path, instances=50)
    assert learned.history["regret"].shape == (3,)
    plain = recipes.choose(SoftElim().bind(2, 30), written(tmp_path, 'optimizer = "paper"'))
    assert plain.optimizer is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("iteration = 3", "mine.toml: unknown key 'iteration': did you mean 'iterations'"),
        ("[tuning]\nsurvey = true", "unknown key 'tuning.survey'.* Known: tuning.iterations"),
        ("iterations = 0", "iterations must be a whole number of at least 1"),
        ("iterations = true", "iterations must be"),
        ("imitating = 3", "imitating must be a table"),
        ("base = 'papr'", "unknown base 'papr': did you mean 'paper'"),
        ("base = ['paper']", "unknown base"),
        ("name = 3", "name must be a string"),
        ("survey = 1", "survey must be true or false"),
        ("scale = 'lin'", "unknown scale 'lin': did you mean 'linear'"),
        ("temperature = 'hot'", "unknown temperature 'hot': known: none, annealed|did you mean"),
        ("curriculum = 5", "curriculum must be a list of horizons"),
        ("curriculum = [5, 'x']", "curriculum must be a whole number"),
        ("estimator = 'slef'", "unknown baseline 'slef': did you mean 'self'"),
        ("estimator = { baseline = ['self'] }", "baseline"),
        ("estimator = { baseline = 'self', rollouts = 3 }", "self takes 2 rollouts, not 3"),
        ("estimator = { returns = 'real' }", "unknown returns 'real': did you mean 'realised'"),
        ("estimator = { returns = [] }", "returns must be a string"),
        ("settings = { thta = 1 }", "unknown key 'settings.thta': did you mean 'settings.theta'"),
        ("settings = { theta = 'x' }", "settings.theta must be a finite number"),
        ("optimizer = 'adm'", "unknown optimizer 'adm': did you mean 'adam'"),
        ("optimizer = { name = 'adam', rate = 1 }", "unknown key 'optimizer.rate'"),
        ("optimizer = { learning_rate = -1 }", "learning_rate must be"),
        ("optimizer = { learning_rate = nan }", "learning_rate must be"),
        ("optimizer = { decay = 2 }", "decay must be"),
        ("optimizer = { decay = 0.5, cosine = true }", "decay or cosine, not both"),
        ("optimizer = { warm = 0.5 }", "need cosine"),
        ("optimizer = { clip = 0 }", "clip must be"),
        ("optimizer = { name = 'paper', decay = 0.9 }", "'paper' has no settings"),
        ("x = ", "is not valid TOML"),
        ("x = " + "[" * 5000, "is not valid TOML"),
    ],
)
def test_mistakes_in_a_recipe_file_are_named(tmp_path, text, word):
    with pytest.raises(InputError, match=word):
        gb.learn(SoftElim(), SMALL, recipe=written(tmp_path, text))
