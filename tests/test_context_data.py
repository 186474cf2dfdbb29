"""Rows of features with labels as problems, from every kind of table."""

import functools
import json

import duckdb
import jax
import jax.numpy as jnp
import numpy as np
import pandas
import polars
import pytest
from conftest import assert_z

import gradband as gb
from gradband.core import prng
from gradband.core.errors import InputError
from gradband.play.playable import Playable
from gradband.problems import classification
from gradband.problems.priors import Classification

pytestmark = pytest.mark.brief


def columns(count=60, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2)).round(3)
    kind = [["red", "green", "blue"][int(i)] for i in np.digitize(x[:, 0], [-0.5, 0.5])]
    return {"age": (40 + 10 * x[:, 0]).tolist(), "kind": sorted(kind), "size": x[:, 1].tolist()}


def test_every_table_makes_the_same_problem(tmp_path):
    given = columns()
    frame = polars.DataFrame(given)
    frame.write_csv(tmp_path / "rows.csv")
    frame.write_parquet(tmp_path / "rows.parquet")
    forms = {
        "polars": frame,
        "pandas": pandas.DataFrame(given),
        "arrow": frame.to_arrow(),
        "duckdb": duckdb.sql("select * from frame"),
        "dictionary": given,
        "csv": tmp_path / "rows.csv",
        "parquet": str(tmp_path / "rows.parquet"),
    }
    checksums = {form: classification(table, "kind").prior.checksum for form, table in forms.items()}
    assert len({*checksums.values()}) == 1, checksums
    x = np.stack([given["age"], given["size"]], axis=1)
    assert classification(x, given["kind"]).prior.checksum == checksums["csv"]
    assert classification(np.column_stack([x, frame["kind"].rank("dense")]), 2).arms == 3
    problem = classification(forms["csv"], "kind", features=["size"], intercept=False)
    assert (problem.name, problem.prior.dims, problem.horizon) == ("rows", 1, 48)


def test_a_file_beside_a_problem_file(tmp_path):
    polars.DataFrame(columns()).write_csv(tmp_path / "rows.csv")
    file = tmp_path / "problem.toml"
    text = 'horizon = 20\n[prior]\nkind = "classification"\nfile = "rows.csv"\nlabel = "kind"\n'
    file.write_text(text)
    problem = gb.problems.load(str(file))
    about = problem.prior.describe()
    assert about["features"] == ["age", "size"]
    again = gb.problems.parse(problem.describe(), tmp_path)
    assert again.prior.describe() == about
    for more, words in (
        ('checksum = "0"\n', "has changed"),
        ('features = ["age", "weight"]\n', "unknown column 'weight'"),
        ('features = ["age", "kind"]\n', "without the label"),
        ("features = 5\n", "must be a list of columns, not 5"),
        ("held_out = 2\n", "held_out"),
        ('intercept = "yes"\n', "intercept"),
        ('[rewards]\nkind = "gaussian"\n', "remove \\[rewards\\]"),
    ):
        file.write_text(text + more)
        with pytest.raises(InputError, match=words):
            gb.problems.load(str(file))
    file.write_text(text.replace("rows.csv", "../rows.csv"))
    with pytest.raises(InputError, match="must be in the problem file's folder"):
        gb.problems.load(str(file))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"age": [None, *range(59)]}, "1 row has no number in 'age' \\(1\\)"),
        ({"age": [float("nan"), *range(59)]}, "1 row has no number in 'age' \\(1\\)"),
        ({"age": [*range(58), float("inf"), float("-inf")]}, "2 rows have no finite number in 'age'"),
        ({"age": ["old"] * 60}, "text must be columns of 0 and 1.*1, 2, 3, 4, 5, …"),
        ({"age": [7] * 60}, "'age' is the same in all training rows"),
        ({"age": [1, 2]}, "columns must be equally long"),
        ({"kind": ["red"] * 60}, "from 2 to 200 classes, but there are 1 in 60 rows"),
        ({"kind": [None] + ["red", "blue"] * 29 + ["red"]}, "1 row has no class in 'kind' \\(1\\)"),
    ],
)
def test_wrong_tables_are_refused(changes, words):
    with pytest.raises(InputError, match=words):
        classification(columns() | changes, "kind")


def test_wrong_arguments_are_refused():
    x = np.random.default_rng(0).normal(size=(300, 2))
    for given, words in (
        ((x, np.arange(300)), "but there are 300 in 300 rows"),
        ((x, [0, 1]), "labels must be one per row"),
        ((x, 5), "label must be a column from 0 to 1"),
        ((x[:, :0], [0] * 300), "features must be an array"),
        ((columns(), "colour"), "unknown column 'colour'"),
        ((columns(), None), "label must be the name of a column"),
        (((x, np.arange(300)),), "rows with labels must be an array .* with the labels as the next"),
    ):
        with pytest.raises(InputError, match=words) as told:
            classification(*given)
        assert "\n" not in str(told.value)
    with pytest.raises(InputError, match="no gaps"):
        Classification(x, np.arange(300) % 2 * 2)
    with pytest.raises(InputError, match="one per row, not 3"):
        Classification(x, [0, 1, 0])


@functools.cache
def compiled(prior):
    """Features and means of an instance's rounds."""

    def one(instance, t):
        visit = prior.visit(prng.root(9), instance, t)
        return visit.features, prior.means(visit)

    return jax.jit(jax.vmap(one, (None, 0)))


def played(prior, rounds, seed=0):
    """Features and best arms of the rounds of an instance."""
    instance = prior.sample(prng.fold_in(prng.root(seed), jnp.uint32(1)))

    features, means = compiled(prior)(instance, np.arange(rounds, dtype=np.uint32))
    assert (np.asarray(means).sum(1) == 1).all()
    return np.asarray(features), np.asarray(means).argmax(1)


def test_an_instance_is_an_order_and_a_relabelling():
    prior = classification(columns(), "kind").prior
    assert len(prior.table) == 48
    np.testing.assert_allclose(prior.table[:, 0], 1)
    np.testing.assert_allclose(prior.table[:, 1:].mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(prior.table[:, 1:].std(0), 1, atol=1e-6)
    relabelled = set()
    for seed in range(20):
        features, arms = played(prior, 96, seed)
        for half in (features[:48], features[48:]):
            assert sorted(map(tuple, half)) == sorted(map(tuple, prior.table))
        assert not (features[:48] == features[48:]).all()
        target = {tuple(row): label for row, label in zip(prior.table, prior.targets, strict=True)}
        found = {(target[tuple(row)], int(arm)) for row, arm in zip(features, arms, strict=True)}
        assert len(found) == 3
        relabelled.add(tuple(arm for _, arm in sorted(found)))
    assert len(relabelled) == 6


def test_rows_for_tests_are_never_trained_on():
    prior = classification(columns(), "kind", held_out=0.25).prior
    training, testing = ({tuple(row) for row in each.table} for each in (prior, prior.fresh()))
    assert (len(training), len(testing)) == (45, 15)
    assert not training & testing
    assert {*prior.fresh().targets} == {0, 1, 2}  # although the file is sorted by class
    assert prior.fresh().fresh() is prior.fresh() or len(prior.fresh().fresh().table) == 15
    everything = classification(columns(), "kind", held_out=0).prior
    assert len(everything.fresh().table) == 60


def test_new_values_become_features_as_those_of_the_rows_did():
    given, rng = columns(), np.random.default_rng(0)
    for intercept in (True, False):
        problem = classification(given, "kind", intercept=intercept)
        shown = {tuple(row) for each in (problem.prior, problem.prior.fresh()) for row in each.table}
        policy = gb.policies.CoSoftElim(dims=problem.prior.dims).bind(problem.arms, problem.horizon)
        about = {"problem": json.loads(json.dumps(problem.describe()))}
        player = gb.Player(Playable(policy, {"a": np.array(1.0)}, about), seed=0)
        for i, row in enumerate(rng.integers(60, size=5)):
            values = {name: given[name][row] for name in ("size", "age")}
            found = problem.features.encode(values)
            assert tuple(np.float32(found)) in shown
            player.update(player.select(f"{i}", context=values).id, i % 2)
            np.testing.assert_array_equal(player.probabilities(values), player.probabilities(found))
    assert jax.device_put(problem).replace(horizon=9).features is None  # compiled code has no names
    assert gb.Problem(Classification(np.eye(4), [0, 1, 0, 1], held_out=0), 9).features is None
    with pytest.raises(InputError, match="features need values of age, size, not of age"):
        player.select(context={"age": 40})
    with pytest.raises(InputError, match="age must be a finite number"):
        player.select(context={"age": "old", "size": 1})


def test_policies_play_and_learn_it():
    problem = classification(columns(200), "kind", horizon=40)
    rows = gb.evaluate(["lin-softelim:model=by-arm", "uniform"], problem, instances=400).rows
    uniform = next(row for row in rows if row.name == "uniform").regret
    assert_z(uniform.mean, uniform.se, 40 * 2 / 3)
    learned = gb.learn("lin-softelim:model=by-arm", problem, iterations=2, instances=64)
    assert gb.evaluate(learned, problem, instances=100).rows[0].regret.mean < uniform.mean
    with pytest.raises(InputError, match="by-arm"):
        gb.evaluate("lin-softelim", problem)
