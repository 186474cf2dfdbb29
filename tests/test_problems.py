"""Priors, rewards, the paper's problems, reward tables and problem files, with what they refuse."""

import contextlib
import io
import json
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import polars
import pytest
from conftest import assert_z
from hypothesis import given, settings
from hypothesis import strategies as st

import gradband
from gradband import policies, priors, problems, rewards, rollout, tables
from gradband.errors import InputError
from gradband.problems import NAMED, Problem

MANY = 40_000


def keys(seed, count=MANY):
    return jax.random.split(jax.random.key(seed), count)


def drawn(prior, seed=0, count=MANY):
    """Means [count, K] of sampled instances."""
    return np.asarray(jax.vmap(prior.sample)(keys(seed, count)), np.float64)


def assert_moments(sample, mean, variance):
    """The sample has this mean and this variance, each within the error of its own estimate."""
    root = np.sqrt(len(sample))
    squares = (sample - mean) ** 2
    assert_z(sample.mean(0), sample.std(0) / root, mean)
    assert_z(squares.mean(0), squares.std(0) / root, variance, truth_se=1e-6)


# The paper's problems.


@pytest.mark.parametrize(
    ("name", "arms", "horizon", "law"),
    [
        ("two-point", 2, 200, rewards.Bernoulli()),
        ("uniform-2", 2, 200, rewards.Bernoulli()),
        ("bernoulli-10", 10, 1000, rewards.Bernoulli()),
        ("beta-10", 10, 1000, rewards.Beta(4.0)),
        ("distractors", 3, 200, rewards.Bernoulli()),
    ],
)
def test_named_problem_has_the_papers_size(name, arms, horizon, law):
    problem = problems.named(name)
    assert (problem.arms, problem.horizon, problem.name) == (arms, horizon, name)
    assert problem.prior.rewards == law
    assert problem.unit
    assert problem.noise == "shared"


def test_every_named_problem_is_checked_above():
    assert set(NAMED) == {"two-point", "uniform-2", "bernoulli-10", "beta-10", "distractors"}


@pytest.mark.parametrize("name", ["uniform-2", "bernoulli-10", "beta-10"])
def test_means_of_named_problem_are_uniform(name):
    about = problems.named(name).prior.describe()
    assert (about["kind"], about["a"], about["b"]) == ("beta", 1, 1)


def test_two_point_is_two_mirrored_instances():
    about = problems.named("two-point").prior.describe()
    assert about["means"] == [[0.6, 0.4], [0.4, 0.6]]
    assert about["weights"] == [0.5, 0.5]


@pytest.mark.parametrize("arms", [3, 4, 7])
def test_distractors_are_filled_up_with_middling_arms(arms):
    about = problems.named("distractors", arms=arms).prior.describe()
    rest = [0.7] * (arms - 3)
    assert about["means"] == [[0.6, 0.9, 0.7, *rest], [0.2, 0.7, 0.9, *rest]]
    assert about["weights"] == [0.5, 0.5]


def test_arms_and_horizon_of_a_named_problem_can_be_changed():
    problem = problems.load("beta-10", arms=4, horizon=30)
    assert (problem.arms, problem.horizon) == (4, 30)


# Samples of priors.


def test_finite_prior_respects_weights():
    weights = np.array([0.1, 0.0, 0.65, 0.25])
    sample = drawn(priors.Finite([[0.1], [0.2], [0.3], [0.4]], weights))[:, 0]
    shares = np.array([(sample == np.float32(mean)).mean() for mean in (0.1, 0.2, 0.3, 0.4)])
    assert shares.sum() == 1
    assert shares[1] == 0
    assert_z(shares, np.sqrt(weights * (1 - weights) / MANY) + 1e-12, weights)


def test_finite_prior_has_equal_weights_unless_given():
    sample = drawn(priors.Finite([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), seed=1)
    assert_moments(sample, np.full(2, 2 / 3), np.full(2, 2 / 9))


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (2.0, 5.0), (0.5, 0.3)])
def test_beta_prior_has_the_moments_of_beta(a, b):
    sample = drawn(priors.Beta(arms=3, a=a, b=b), seed=2)
    assert_moments(sample, np.full(3, a / (a + b)), np.full(3, a * b / (a + b) ** 2 / (a + b + 1)))
    assert (sample >= 0).all()
    assert (sample <= 1).all()


def test_gaussian_prior_has_its_mean_and_sd():
    sample = drawn(priors.Gaussian(arms=2, mean=-1.5, sd=0.4), seed=3)
    assert_moments(sample, np.full(2, -1.5), np.full(2, 0.16))


@pytest.mark.parametrize("prior", [priors.Beta(arms=2), priors.Gaussian(arms=2)], ids=["beta", "gaussian"])
def test_arms_of_an_instance_are_independent(prior):
    sample = drawn(prior, seed=4)
    assert_z(np.corrcoef(sample.T)[0, 1], 1 / np.sqrt(MANY), 0)


def test_sampler_draws_from_its_function():
    prior = priors.Sampler(lambda key: jax.random.uniform(key, (2,)) ** 2, arms=2)
    assert_moments(drawn(prior, seed=5), np.full(2, 1 / 3), np.full(2, 1 / 5 - 1 / 9))


@pytest.mark.parametrize(
    ("function", "law", "word"),
    [
        (lambda key: jax.random.uniform(key, (3,)), rewards.Bernoulli(), "shape"),
        (lambda key: 2 + jax.random.uniform(key, (2,)), rewards.Bernoulli(), r"\[0, 1\]"),
        (lambda key: jnp.full(2, jnp.nan), rewards.Gaussian(), "finite"),
    ],
)
def test_sampler_of_a_wrong_function_is_refused(function, law, word):
    with pytest.raises(InputError, match=word):
        priors.Sampler(function, arms=2, rewards=law)


# Rewards.


@pytest.mark.parametrize("mean", [0.05, 0.5, 0.8])
@pytest.mark.parametrize(
    ("law", "variance"),
    [
        (rewards.Bernoulli(), lambda mu: mu * (1 - mu)),
        (rewards.Beta(), lambda mu: mu * (1 - mu) / 5),
        (rewards.Beta(0.5), lambda mu: mu * (1 - mu) / 1.5),
        (rewards.Gaussian(), lambda mu: 1.0),
        (rewards.Gaussian(0.3), lambda mu: 0.09),
    ],
    ids=["bernoulli", "beta", "beta-noisy", "gaussian", "gaussian-quiet"],
)
def test_reward_has_its_mean_and_variance(law, variance, mean):
    draw = jax.jit(jax.vmap(law.draw, (0, None)))
    sample = np.asarray(draw(keys(6), jnp.float32(mean)), np.float64)
    assert_moments(sample, np.float64(np.float32(mean)), variance(mean))


@pytest.mark.parametrize("law", [rewards.Bernoulli(), rewards.Beta()], ids=str)
def test_rewards_of_a_certain_arm_are_certain(law):
    for mean in (0.0, 1.0):
        assert (jax.vmap(law.draw, (0, None))(keys(7, 1000), jnp.float32(mean)) == mean).all()


def rewards_of_all_arms(problem, seed=8):
    """Rewards [MANY, K] of one instance, one round each."""
    instance = problem.prior.sample(jax.random.key(0))

    def one_round(key):
        return jnp.stack([problem.reward(key, instance, jnp.int32(i), 0) for i in range(problem.arms)])

    return np.asarray(jax.jit(jax.vmap(one_round))(keys(seed)), np.float64)


MEANS = [[0.2, 0.5, 0.9]]


def test_shared_noise_makes_bernoulli_rewards_monotone_in_the_mean():
    sample = rewards_of_all_arms(Problem(priors.Finite(MEANS), 1, noise="shared"))
    assert (np.diff(sample, axis=1) >= 0).all()
    assert_moments(sample, np.array(MEANS[0]), np.array([0.16, 0.25, 0.09]))


@pytest.mark.parametrize("law", [rewards.Bernoulli(), rewards.Beta(), rewards.Gaussian()], ids=str)
def test_independent_noise_does_not_correlate_arms(law):
    sample = rewards_of_all_arms(Problem(priors.Finite(MEANS, rewards=law), 1, noise="independent"))
    correlations = np.corrcoef(sample.T)[np.triu_indices(3, 1)]
    assert_z(correlations, 1 / np.sqrt(MANY), 0)
    assert_z(sample.mean(0), sample.std(0) / np.sqrt(MANY), MEANS[0])


def test_shared_noise_shifts_gaussian_rewards_alike():
    sample = rewards_of_all_arms(Problem(priors.Finite(MEANS, rewards=rewards.Gaussian()), 1))
    np.testing.assert_allclose(sample - sample[:, :1], np.tile([0, 0.3, 0.7], (MANY, 1)), atol=1e-5)


# Reward tables.


@pytest.fixture
def table():
    return np.random.default_rng(0).random((10, 3, 6)).round(3)


def frame_of(table):
    """A table as rows (instance, arm, round, reward)."""
    instance, arm, t = (axis.ravel() for axis in np.indices(table.shape))
    return polars.DataFrame({"instance": instance, "arm": arm, "round": t, "reward": table.ravel()})


def table_problem(folder, file, horizon=4, **entries):
    return problems.parse({"horizon": horizon, "prior": {"kind": "table", "file": file, **entries}}, folder)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("arrange", [np.ascontiguousarray, np.asfortranarray])
def test_npz_is_read_back(tmp_path, table, save, arrange):
    save(tmp_path / "t.npz", rewards=arrange(table), other=np.zeros(3))
    np.testing.assert_array_equal(tables.read_table(tmp_path / "t.npz"), table)


@pytest.mark.parametrize("kind", ["float32", ">f8", "uint8", "bool"])
def test_npz_of_other_number_types_is_read_back(tmp_path, table, kind):
    table = (table * 2).astype(kind)
    np.savez(tmp_path / "t.npz", rewards=table)
    np.testing.assert_array_equal(table_problem(tmp_path, "t.npz").prior.table, table.astype("f4"))


def test_parquet_is_read_back_whatever_the_order_of_its_rows(tmp_path, table):
    frame_of(table).sample(fraction=1, shuffle=True, seed=0).write_parquet(tmp_path / "t.parquet")
    np.testing.assert_array_equal(tables.read_table(tmp_path / "t.parquet"), table)


def test_npz_and_parquet_make_the_same_problem(tmp_path, table):
    np.savez(tmp_path / "t.npz", rewards=table)
    frame_of(table).write_parquet(tmp_path / "t.parquet")
    one, other = (table_problem(tmp_path, f"t.{kind}") for kind in ("npz", "parquet"))
    np.testing.assert_array_equal(one.prior.table, other.prior.table)
    assert (
        (one.arms, one.horizon, one.noise) == (other.arms, other.horizon, other.noise) == (3, 4, "shared")
    )


def test_reward_of_a_table_is_its_entry(table):
    problem = Problem(priors.Table(table), horizon=6, noise="independent")
    for instance, arm, t in [(0, 0, 0), (7, 2, 5), (9, 1, 3)]:
        reward = problem.reward(jax.random.key(0), *(jnp.int32(i) for i in (instance, arm, t)))
        assert reward == np.float32(table[instance, arm, t])


@pytest.mark.parametrize(
    ("count", "held_out", "trained_on"), [(10, 0.2, 8), (10, 0.25, 8), (5, 0.01, 4), (2, 0.9, 1), (3, 0, 3)]
)
def test_the_last_instances_of_a_table_are_held_out(count, held_out, trained_on):
    table = np.arange(count, dtype=float)[:, None, None] * np.ones((1, 2, 4))
    prior = priors.Table(table, held_out)
    assert prior.trained_on == trained_on
    assert set(np.asarray(jax.vmap(prior.sample)(keys(0, 500))).tolist()) == set(range(trained_on))
    kept = np.asarray(prior.fresh().table)[:, 0, 0]
    assert kept.tolist() == (list(range(trained_on, count)) if held_out else list(range(count)))


def test_evaluation_sees_each_held_out_instance_once():
    """Rewards of instance i are i, so that they tell which instances were played."""
    table = np.arange(40.0)[:, None, None] * np.ones((1, 2, 5))
    found = gradband.evaluate(
        [policies.Uniform()], Problem(priors.Table(table), horizon=5), instances=10_000
    )
    np.testing.assert_array_equal(found["uniform"].rewards, 5 * np.arange(32.0, 40.0))
    np.testing.assert_array_equal(found["uniform"].regrets, np.zeros(8))


def test_regret_on_a_table_is_against_the_best_arm_in_hindsight():
    table = np.broadcast_to(np.array([1.0, 0.0, 0.25])[:, None], (10, 3, 6))
    found = gradband.evaluate([policies.SoftElim()], Problem(priors.Table(table), horizon=3))["softelim"]
    np.testing.assert_allclose(found.regrets, [3 - 1.25] * 2)


def test_means_of_a_table_are_unknown(table):
    prior = priors.Table(table)
    assert not prior.knows_means
    with pytest.raises(InputError, match="unknown"):
        prior.means(0)


def test_thompson_sampling_plays_a_table_of_unit_rewards_only(table):
    inside, outside = (Problem(priors.Table(t), horizon=4) for t in (table, 2 * table))
    assert rollout.check(policies.ThompsonSampling(), inside).horizon == 4
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        rollout.check(policies.ThompsonSampling(), outside)


# Problem files.


def load(folder, text, **changes):
    path = folder / "mine.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return problems.load(str(path), **changes)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "horizon = 200\n[prior]\nkind = 'finite'\n"
            "means = [[0.6, 0.4], [0.4, 0.6]]\nweights = [0.3, 0.7]",
            Problem(priors.Finite([[0.6, 0.4], [0.4, 0.6]], [0.3, 0.7]), 200),
        ),
        (
            "horizon = 9\nname = 'mine'\n[prior]\nkind = 'finite'\nmeans = [[-1, 2.5]]\n"
            "[rewards]\nkind = 'gaussian'\nsd = 0.5",
            Problem(priors.Finite([[-1, 2.5]], rewards=rewards.Gaussian(0.5)), 9, name="mine"),
        ),
        (
            "horizon = 50\nnoise = 'independent'\n[prior]\nkind = 'beta'\narms = 4",
            Problem(priors.Beta(4), 50, noise="independent"),
        ),
        (
            "horizon = 50\n[prior]\nkind = 'beta'\narms = 4\na = 2\nb = 0.5\n"
            "[rewards]\nkind = 'beta'\nv = 3",
            Problem(priors.Beta(4, 2, 0.5, rewards=rewards.Beta(3)), 50),
        ),
        (
            "horizon = 7\n[prior]\nkind = 'gaussian'\narms = 3",
            Problem(priors.Gaussian(3), 7),
        ),
        (
            "horizon = 7\n[prior]\nkind = 'gaussian'\narms = 3\nmean = 1\nsd = 2.5\n"
            "[rewards]\nkind = 'gaussian'\nsd = 0.1",
            Problem(priors.Gaussian(3, 1, 2.5, rewards=rewards.Gaussian(0.1)), 7),
        ),
    ],
    ids=["finite", "finite-gaussian", "beta", "beta-beta", "gaussian", "gaussian-sd"],
)
def test_problem_file_equals_the_problem_in_python(tmp_path, text, problem):
    assert load(tmp_path, text).describe() == problem.describe()
    assert problems.parse(problem.describe()).describe() == problem.describe()


@pytest.mark.parametrize("file", ["t.npz", "sub/t.npz"])
def test_table_file_equals_the_table_in_python(tmp_path, table, file):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    np.savez(tmp_path / file, rewards=table)
    found = load(tmp_path, f"horizon = 6\n[prior]\nkind = 'table'\nfile = '{file}'\nheld_out = 0.3")
    assert found.describe() == Problem(priors.Table(table, 0.3, file), 6).describe()
    np.testing.assert_array_equal(found.prior.table, table.astype(np.float32))


BETA = "horizon = 5\n[prior]\nkind = 'beta'\narms = 3\n"


def test_arms_and_horizon_of_a_problem_file_can_be_changed(tmp_path):
    problem = load(tmp_path, BETA, arms=7, horizon=60)
    assert (problem.arms, problem.horizon) == (7, 60)


def test_description_is_json():
    for name in NAMED:
        assert json.loads(json.dumps(problems.named(name).describe())) == problems.named(name).describe()


# What is refused: each with a sentence that names the thing.


def finite(means="[[0.1, 0.2]]", more="", rewards="bernoulli"):
    head = f"horizon = 5\n[prior]\nkind = 'finite'\nmeans = {means}\n{more}\n"
    return f"{head}[rewards]\nkind = '{rewards}'\n"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("horizon = ", "valid TOML"),
        ("horizon = 5\nhorizon = 6", "valid TOML"),
        (b"\xff\xfe", "valid TOML"),
        ("x = " + "[" * 5000, "valid TOML"),
        ("horizon = " + "1" * 5000, "valid TOML"),
        ("", "'horizon' is missing"),
        ("horizon = 5", "'prior' is missing"),
        ("horizon = 5\n[prior]\nkind = 'beta'", "'prior.arms' is missing"),
        ("horizon = 5\n[prior]\nkind = 'finite'", "'prior.means' is missing"),
        ("horizon = 5\n[prior]\nkind = 'table'", "'prior.file' is missing"),
        ("horizon = 5\n[prior]\narms = 2", "prior.kind"),
        ("horizont = 5\n[prior]\nkind = 'beta'\narms = 2", "'horizont'.*mean 'horizon'"),
        ("horizon = 5\n[prior]\nkind = 'beta'\nmarms = 2", "'prior.marms'.*mean 'prior.arms'"),
        ("horizon = 5\n[prior]\nkind = 'bta'\narms = 2", "'bta'.*mean 'beta'"),
        (finite(rewards="bernouli"), "'bernouli'.*mean 'bernoulli'"),
        (f"{BETA}[rewards]\nkind = 'beta'\nw = 1", "'rewards.w'.*rewards.v"),
        (f"{BETA}[rewards]\nkind = []", "rewards.kind"),
        (f"{BETA}[rewards]\nv = 1", "rewards.kind"),
        (f"{BETA}\n[rewards]\nkind = 'beta'\nv = 'x'", "v of beta rewards"),
        ("horizon = 5\nprior = 3", "prior must be a table"),
        ("rewards = 3\n" + BETA, "rewards must be a table"),
        ("name = 3\n" + BETA, "name"),
        ("noise = 'shard'\n" + BETA, "'shard'.*mean 'shared'"),
        ("noise = ['shared']\n" + BETA, "noise"),
        (finite(more="weights = [0.5]"), "sum to 1"),
        (finite("[[0.1], [0.2]]", "weights = [1.5, -0.5]"), "negative"),
        (finite(more="weights = [0.5, 0.5]"), "weights must be 1, one an instance"),
        (finite(more="weights = 1"), "weights"),
        (finite(more="weights = ['1']"), "weights"),
        (finite("[[0.1, 0.2], [0.3]]"), "means.*equal length"),
        (finite("[0.1, 0.2]"), "means.*axes"),
        (finite("[]"), "means.*axes"),
        (finite("[[]]"), "means.*empty"),
        (finite("'x'"), "means must be numbers"),
        (finite("[['0.1', '0.2']]"), "means must be numbers"),
        (finite("[[true, false]]"), "means must be numbers"),
        (finite("[[2020-01-01]]"), "means must be numbers"),
        (finite("[[0.1, 1.5]]"), r"means of bernoulli rewards must lie in \[0, 1\], not 1.5"),
        (finite("[[0.1, -0.5]]", rewards="beta"), r"means of beta rewards must lie in \[0, 1\]"),
        (finite("[[0.1, nan]]"), r"means must be finite, but entry \[0, 1\]"),
        (finite("[[inf, 0.1]]", rewards="gaussian"), r"means must be finite, but entry \[0, 0\]"),
        (finite("[[1e300, 0.1]]", rewards="gaussian"), "means"),
        (finite(f"[[{10**400}, 0.1]]", rewards="gaussian"), "means"),
        (BETA + f"a = {10**400}", "a of the beta prior"),
        (BETA + "a = 0", "a of the beta prior"),
        (BETA + "b = -1.0", "b of the beta prior"),
        (BETA + "b = nan", "b of the beta prior"),
        (BETA + "a = 'x'", "a of the beta prior"),
        (BETA + "a = true", "a of the beta prior"),
        (BETA + "[rewards]\nkind = 'beta'\nv = 0", "v of beta rewards"),
        (BETA + "[rewards]\nkind = 'gaussian'\nsd = 0", "sd of gaussian rewards"),
        (BETA.replace("beta", "gaussian") + "sd = 0", "sd of the gaussian prior"),
        (BETA.replace("beta", "gaussian") + "sd = -1", "sd of the gaussian prior"),
        (BETA.replace("beta", "gaussian") + "mean = inf", "mean of the gaussian prior"),
        (BETA.replace("beta", "gaussian") + "[rewards]\nkind = 'bernoulli'", "use gaussian rewards"),
        *((BETA.replace("= 3", f"= {arms}"), "arms") for arms in ("0", "-1", "true", "2.0", "'2'")),
        *((BETA.replace("= 5", f"= {n}"), "horizon") for n in ("0", "-3", "true", "2.5", "5.0", "'5'")),
    ],
)
def test_bad_problem_file_is_refused(tmp_path, text, word):
    with pytest.raises(InputError, match=word) as caught:
        load(tmp_path, text)
    assert "mine.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("two-pint", "'two-pint': did you mean 'two-point'"),
        ("zzz", "unknown problem 'zzz': Known: two-point.*FILE.toml"),
        ("", "unknown problem"),
        ("missing.toml", "missing.toml: No such file"),
        ("folder.toml", "folder.toml: Is a directory"),
        ("nul\0.toml", "null byte"),
    ],
)
def test_unknown_problem_is_refused(tmp_path, monkeypatch, source, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match=word):
        problems.load(source)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: problems.named("bernouli-10"), "mean 'bernoulli-10'"),
        (lambda: problems.named("two-point", arms=3), "2 arms"),
        (lambda: problems.named("distractors", arms=2), "at least 3 arms"),
        (lambda: problems.named("beta-10", arms=0), "arms"),
        (lambda: problems.named("beta-10", horizon=0), "horizon"),
        (lambda: priors.Beta(True), "arms"),
        (lambda: Problem(priors.Beta(2), 5, noise="none"), "noise"),
        (lambda: Problem(priors.Beta(2), True), "horizon"),
        (lambda: Problem(priors.Beta(2), np.inf), "horizon"),
        (lambda: problems.parse({"horizon": 5, "prior": {"kind": "table", "file": "t.npz"}}), "file"),
        (lambda: problems.parse(None), "problem"),
    ],
)
def test_bad_problem_in_python_is_refused(make, word):
    with pytest.raises(InputError, match=word):
        make()


def test_arms_of_a_finite_problem_file_are_fixed(tmp_path):
    with pytest.raises(InputError, match="arms of a finite prior is fixed"):
        load(tmp_path, finite(), arms=3)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"file": "../t.npz"}, "must lie in the problem file's folder"),
        ({"file": "sub/../../t.npz"}, "must lie in the problem file's folder"),
        ({"file": "/etc/t.npz"}, "must lie in the problem file's folder"),
        ({"file": "link.npz"}, "must lie in the problem file's folder"),
        ({"file": "missing.npz"}, "no file missing.npz"),
        ({"file": "loop.npz"}, "loop.npz"),
        ({"file": "a" * 5000 + ".npz"}, "prior.file|no file"),
        ({"file": "nul\0.npz"}, "prior.file|no file"),
        ({"file": ""}, "prior.file"),
        ({"file": 3}, "prior.file"),
        ({"file": "t.csv"}, "npz or .parquet"),
        ({"file": "t.npz", "held_out": 1}, "held_out"),
        ({"file": "t.npz", "held_out": -0.1}, "held_out"),
        ({"file": "t.npz", "held_out": "x"}, "held_out"),
        ({"file": "t.npz", "horizon": 7}, "table has 6 rounds, the horizon is 7"),
        ({"file": "one.npz"}, "held_out to 0"),
        ({"file": "nan.npz"}, r"reward table must be finite, but entry \[1, 2, 3\]"),
        ({"file": "huge.npz"}, "reward table"),
        ({"file": "flat.npz"}, "reward table must have 3 axes"),
        ({"file": "empty.npz"}, "reward table.*empty"),
    ],
)
def test_bad_table_is_refused(tmp_path, table, change, word):
    folder = tmp_path / "problem"
    (folder / "sub").mkdir(parents=True)
    for path in (folder / "t.npz", tmp_path / "t.npz"):
        np.savez(path, rewards=table)
    (folder / "t.csv").write_text("1")
    (folder / "link.npz").symlink_to(tmp_path / "t.npz")
    (folder / "loop.npz").symlink_to("loop.npz")
    np.savez(folder / "one.npz", rewards=table[:1])
    np.savez(folder / "flat.npz", rewards=table[0])
    np.savez(folder / "empty.npz", rewards=table[:0])
    for name, value in (("nan", np.nan), ("huge", 1e300)):
        table[1, 2, 3] = value
        np.savez(folder / f"{name}.npz", rewards=table)
    with pytest.raises(InputError, match=word):
        table_problem(folder, **change)


def test_table_problem_takes_no_rewards(tmp_path, table):
    np.savez(tmp_path / "t.npz", rewards=table)
    with pytest.raises(InputError, match="own rewards"):
        load(
            tmp_path,
            "horizon = 6\n[prior]\nkind = 'table'\nfile = 't.npz'\n[rewards]\nkind = 'bernoulli'",
        )


def header(shape, kind="<f8", version=b"\x01\x00"):
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text


NPZ = {
    "no array": ({"other.npy": header((1, 1, 1)) + bytes(8)}, "'rewards'"),
    "claims more": (
        {"rewards.npy": header((10**6, 10**6, 10**3)) + bytes(8)},
        "does not hold what it claims",
    ),
    "claims less": ({"rewards.npy": header((1, 1, 1)) + bytes(16)}, "does not hold what it claims"),
    "negative": ({"rewards.npy": header((-1, -1, 1)) + bytes(8)}, "npz"),
    "pickled": ({"rewards.npy": header((1, 1, 1), "|O") + b"cos\nsystem\n"}, "must be numbers, not object"),
    "text": ({"rewards.npy": header((1, 1, 1), "<U2") + bytes(8)}, "must be numbers"),
    "complex": ({"rewards.npy": header((1, 1, 1), "<c16") + bytes(16)}, "must be numbers"),
    "no magic": ({"rewards.npy": b"hello"}, "not a readable .npz"),
    "version 9": (
        {"rewards.npy": header((1, 1, 1), version=b"\x09\x00") + bytes(8)},
        "not a readable .npz",
    ),
    "bad header": ({"rewards.npy": b"\x93NUMPY\x01\x00\x06\x00{'x':("}, "not a readable .npz"),
    "empty": ({"rewards.npy": b""}, "not a readable .npz"),
}


@pytest.mark.parametrize("case", NPZ)
def test_bad_npz_is_refused(tmp_path, case):
    members, word = NPZ[case]
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(InputError, match=word):
        table_problem(tmp_path, "t.npz")


def test_object_array_of_numpy_is_refused(tmp_path):
    np.savez(tmp_path / "t.npz", rewards=np.array([[["x", {}]]], object))
    with pytest.raises(InputError, match="must be numbers, not object"):
        table_problem(tmp_path, "t.npz")


def test_npz_that_is_no_zip_is_refused(tmp_path):
    (tmp_path / "t.npz").write_bytes(b"hello")
    with pytest.raises(InputError, match="not a readable .npz"):
        table_problem(tmp_path, "t.npz")


def test_npz_with_damaged_compression_is_refused(tmp_path, table):
    path = tmp_path / "t.npz"
    np.savez_compressed(path, rewards=table)
    data = bytearray(path.read_bytes())
    data[60:120] = b"\xff" * 60
    path.write_bytes(data)
    with pytest.raises(InputError, match="not a readable .npz"):
        table_problem(tmp_path, "t.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_truncated_npz_is_refused(tmp_path, table, save):
    path = tmp_path / "t.npz"
    save(path, rewards=table)
    whole = path.read_bytes()
    for length in np.linspace(0, len(whole) - 1, 25, dtype=int):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="t.npz"):
            table_problem(tmp_path, "t.npz")


def test_too_large_npz_is_refused(tmp_path, table, monkeypatch):
    np.savez(tmp_path / "t.npz", rewards=table)
    monkeypatch.setattr(tables, "TABLE_LIMIT", 100)
    with pytest.raises(InputError, match="more than"):
        table_problem(tmp_path, "t.npz")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda f: f.drop("round"), "columns instance, arm, round, reward"),
        (lambda f: f[:-1], "10 × 3 × 6 rows, not 179"),
        (lambda f: polars.concat([f[:-1], f[:1]]), "10 × 3 × 6 rows"),
        (lambda f: f[:0], "reward table.*empty"),
        (lambda f: f.with_columns(reward=polars.lit("x")), "columns"),
        (lambda f: f.with_columns(reward=polars.lit(None, polars.Float64)), "reward table must be finite"),
        (lambda f: f.with_columns(reward=polars.lit(float("nan"))), "reward table must be finite"),
    ],
    ids=["no column", "row missing", "row twice", "no rows", "text", "null", "nan"],
)
def test_bad_parquet_is_refused(tmp_path, table, change, word):
    change(frame_of(table)).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=word):
        table_problem(tmp_path, "t.parquet")


def test_file_that_is_no_parquet_is_refused(tmp_path):
    for data in (b"", b"hello", b"PAR1" * 3):
        (tmp_path / "t.parquet").write_bytes(data)
        with pytest.raises(InputError, match="must be a Parquet file"):
            table_problem(tmp_path, "t.parquet")


# Arbitrary input: a problem or an InputError, nothing else.

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.integers(),
    st.sampled_from([10**400, 2**63, 1e39, 1e-320]),
    st.floats(),
    st.floats(0, 1),
    st.text(max_size=5),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
SIZES = st.one_of(st.integers(1, 9), VALUES)


def entries(required, **optional):
    """Dictionaries with the right keys, some of them left out, and sometimes one that is wrong."""
    odd = st.dictionaries(st.text(max_size=4), VALUES, max_size=1)
    usual = st.fixed_dictionaries(required, optional=optional)
    return st.builds(
        lambda known, unknown: unknown | known, usual, st.one_of(st.just({}), st.just({}), odd)
    )


MATRIX = st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=2), min_size=1, max_size=3)
PRIORS = st.one_of(
    entries({"kind": st.just("finite"), "means": st.one_of(MATRIX, VALUES)}, weights=VALUES),
    entries({"kind": st.just("beta"), "arms": SIZES}, a=SCALARS, b=SCALARS),
    entries({"kind": st.just("gaussian"), "arms": SIZES}, mean=SCALARS, sd=SCALARS),
    entries({"kind": st.just("table"), "file": st.one_of(st.just("t.npz"), VALUES)}, held_out=SCALARS),
    entries({"kind": VALUES}),
    VALUES,
)
REWARDS = st.one_of(
    entries({"kind": st.just("bernoulli")}),
    entries({"kind": st.just("beta")}, v=SCALARS),
    entries({"kind": st.just("gaussian")}, sd=SCALARS),
    entries({"kind": VALUES}),
    VALUES,
)
NOISES = st.one_of(st.sampled_from(problems.NOISES), VALUES)
FILES = entries({"horizon": SIZES, "prior": PRIORS}, name=SCALARS, noise=NOISES, rewards=REWARDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("problem")
    np.savez(path / "t.npz", rewards=np.full((5, 2, 8), 0.5))
    return path


@settings(max_examples=600, deadline=None, database=None, derandomize=True)
@given(st.one_of(FILES, FILES, FILES, st.dictionaries(st.text(max_size=4), VALUES, max_size=4)))
def test_anything_is_a_problem_or_bad_input(folder, given):
    try:
        problem = problems.parse(given, folder)
    except InputError:
        return
    assert isinstance(problem, Problem)
    about = problem.describe()
    if problem.prior.kind == "table":
        del about["rewards"]
    assert problems.parse(about, folder).describe() == problem.describe()


def npz_bytes(save):
    file = io.BytesIO()
    save(file, rewards=np.random.default_rng(0).random((5, 2, 8)))
    return file.getvalue()


NPZ_FILES = [npz_bytes(save) for save in (np.savez, np.savez_compressed)]


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(st.data())
def test_any_damage_to_an_npz_gives_a_table_or_bad_input(folder, data):
    whole = data.draw(st.sampled_from(NPZ_FILES))
    damaged = bytearray(
        whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole
    )
    for _ in range(data.draw(st.integers(0, 3)) if damaged else 0):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = folder / "damaged.npz"
    path.write_bytes(damaged)
    with contextlib.suppress(InputError):
        priors.Table(tables.read_table(path))
