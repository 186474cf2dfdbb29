"""Problems with contexts: where features and means come from, by name, from files and from functions."""

import functools
import json
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z

import gradband as gb
from gradband import problems
from gradband.core import files, prng
from gradband.core.errors import InputError
from gradband.policies import LinSoftElim, policy_file, references
from gradband.problems import priors
from gradband.problems.contextual_problems import CONTEXTUAL
from gradband.solvers import wheel

pytestmark = pytest.mark.brief


@functools.cache
def compiled(prior):
    """Features and means of round t of instances with these numbers."""

    def one(number, t):
        key = jax.random.fold_in(prng.root(0), number)
        visit = prior.visit(prng.fold_in(key, 7), prior.sample(key), t)
        return visit.features, prior.means(visit)

    return jax.jit(jax.vmap(one, (0, None)))


def rounds(prior, instances=4000, t=0):
    """The features and means of round t of many instances."""
    found = compiled(prior)(np.arange(instances), np.uint32(t))
    return tuple(np.asarray(x, np.float64) for x in found)


def assert_moments(drawn, mean, variance):
    """Draws [m, ...] have this mean and this variance."""
    root = np.sqrt(len(drawn))
    assert_z(drawn.mean(0), drawn.std(0) / root, mean)
    squares = (drawn - mean) ** 2
    assert_z(squares.mean(0), squares.std(0) / root, variance)


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_a_named_problem_survives_a_file(name, tmp_path):
    problem = problems.named(name)
    file = tmp_path / "same.toml"
    file.write_text(files.toml(problem.describe()))
    same = problems.load(str(file))
    assert json.dumps(same.describe()) == json.dumps(problem.describe())
    for one, other in zip(rounds(problem.prior, 5), rounds(same.prior, 5), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_papers_fixed_arms_are_those_of_numpy():
    table = np.random.RandomState(1234).normal(size=(10, 2)) / np.sqrt(2)
    np.testing.assert_array_equal(problems.named("dpt-linear").prior.table, table)
    assert problems.named("dpt-linear", arms=4).arms == 4
    for name in ("signs", "wheel"):
        with pytest.raises(InputError, match=f"the problem {name} has"):
            problems.named(name, arms=3)


@pytest.mark.parametrize(
    ("name", "spread", "variance"),
    [
        ("signs", 1.0, 3.0),
        ("rvr-linear", 1 / 15, 5 * 10 / 15),
        ("lin-5", 1 / 3, 5 * (1 / 12 + 1 / 4) / 3),
    ],
)
def test_features_and_means_have_their_moments(name, spread, variance):
    features, means = rounds(problems.named(name).prior)
    assert_moments(features, 0, spread)
    assert_moments(means, 0, variance)
    if name == "signs":
        np.testing.assert_array_equal(features[:, 0], -features[:, 1])


@pytest.mark.parametrize("kind", [priors.Linear, priors.LinearByArm])
def test_coordinates_may_differ(kind):
    prior = kind(2, 3, mean=[0, 1, -2], within=[1, 0.5, 2])
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = jax.jit(jax.vmap(prior.sample))(keys)
    theta = np.asarray(drawn.theta if kind is priors.Linear else drawn, np.float64)
    assert_moments(theta, np.array([0, 1, -2.0]), np.array([1, 0.25, 4]))
    again = problems.parse(gb.Problem(prior, 10).describe()).prior
    assert again.describe() == prior.describe()


@pytest.mark.parametrize("kind", [priors.Linear, priors.LinearByArm])
def test_features_may_come_from_a_pool(kind):
    pool = [[0.0, 1], [2, 3], [4, 5]]
    features, _ = rounds(kind(2, 2, pool=pool), 3000)
    first = features.reshape(3000, -1, 2)[:, 0]
    which = first[:, 0].astype(int) // 2
    np.testing.assert_array_equal(first, np.array(pool)[which])
    assert_z(np.bincount(which) / 3000, np.sqrt(2 / 9 / 3000), 1 / 3)
    with pytest.raises(InputError, match="rows of 2 numbers"):
        kind(2, 2, pool=[[1.0]])


def test_arms_may_share_a_level():
    prior = priors.LinearByArm(2, 2, mean=1, within=[1, 0.5], between=[2, 0.25])
    theta = np.asarray(
        jax.jit(jax.vmap(prior.sample))(jax.random.split(jax.random.key(0), 4000)), np.float64
    )
    assert_moments(theta, 1, np.array([5, 0.3125]))
    products = (theta[:, 0] - 1) * (theta[:, 1] - 1)
    assert_z(products.mean(0), products.std(0) / np.sqrt(4000), np.array([4, 0.0625]))
    again = problems.parse(gb.Problem(prior, 10).describe()).prior
    assert again.describe() == prior.describe()
    policy = references.with_prior("lin-ts", gb.Problem(prior, 10))
    np.testing.assert_allclose(policy.within, np.sqrt([5, 0.3125]))


def test_visitors_of_linear_by_arm():
    prior = priors.LinearByArm(3, 2, intercept=True, rewards=gb.rewards.Bernoulli())
    features, means = rounds(prior, 100)
    assert features.shape == (100, 2)
    assert (features[:, 0] == 1).all()
    assert means.shape == (100, 3)
    assert ((means > 0) & (means < 1)).all()
    sample = jax.jit(jax.vmap(lambda i: prior.sample(jax.random.fold_in(prng.root(0), i))))
    thetas = sample(np.arange(100))
    linear = (np.asarray(thetas) * features[:, None]).sum(-1)
    np.testing.assert_allclose(means, 1 / (1 + np.exp(-linear)), rtol=1e-5)


def test_groups_take_turns():
    prior = priors.Groups(arms=2, groups=3, a=2, b=5)
    for t in range(7):
        features, means = rounds(prior, 2000, t)
        np.testing.assert_array_equal(features, np.eye(3)[[t % 3] * 2000])
        assert_moments(means, 2 / 7, 10 / 49 / 8)
    first, second, fourth = (rounds(prior, 2000, t)[1] for t in (0, 1, 3))
    assert not np.allclose(first, second)
    np.testing.assert_array_equal(first, fourth)


@pytest.mark.parametrize("delta", [0.5, 0.95])
def test_the_wheel_pays_where_it_should(delta):
    features, means = rounds(priors.Wheel(delta, features="raw"), 20_000)
    x, y = features.T
    outside = np.hypot(x, y) > delta
    quarter = np.select([(x > 0) & (y > 0), (x <= 0) & (y > 0), (x <= 0) & (y <= 0)], [1, 2, 3], 4)
    wanted = np.tile([1.2, 1, 1, 1, 1], (20_000, 1))
    wanted[outside, quarter[outside]] = 50
    off = np.abs(means - wanted).max(1) > 1e-5
    assert off.sum() <= 2  # points on an edge, whose radius is rounded
    assert_z(outside.mean(), np.sqrt(delta**2 * (1 - delta**2) / 20_000), 1 - delta**2)
    assert_moments(features, 0, 0.25)


def test_ramps_of_the_wheel():
    prior = priors.Wheel(bins=8)
    features, means = rounds(prior, 500)
    assert features.shape == (500, 5, 10)
    np.testing.assert_array_equal(features[:, :, 0], np.tile([1, 0, 0, 0, 0], (500, 1)))
    np.testing.assert_array_equal(features[:, :, 1], np.tile([0, 1, 1, 1, 1], (500, 1)))
    own = features[:, :, 2:]
    assert ((own.sum(2) > 0).sum(1) == 1).all()
    assert (np.diff(own.max(1), axis=1) <= 0).all()
    radius = (own.max(1) * np.diff(prior.edges)).sum(1)
    assert_moments(radius**2, 0.5, 1 / 12)
    pays = means.max(1) > 2
    assert (means.argmax(1)[pays] == own.sum(2).argmax(1)[pays]).all()
    assert_z(pays.mean(), np.sqrt(2 / 9 / 500), 2 / 3)


def test_rewards_of_the_wheel():
    prior = priors.Wheel(0.5)
    visit = jax.jit(lambda keys: prior.visit(keys[0], prior.sample(keys[1]), jnp.uint32(0)))(
        [jax.random.key(3), jax.random.key(0)]
    )
    visit = visit._replace(instance=visit.instance._replace(radius=jnp.float32(0.9)))
    keys = jax.random.split(jax.random.key(1), 4000)
    draw = jax.jit(jax.vmap(lambda key, arm: prior.reward(key, visit, arm, jnp.uint32(0)), (0, None)))
    for arm, (mean, sd) in enumerate([(1.2, 0.05)] + [(1, 0.05)] * 4):
        if arm == int(visit.instance.quarter) + 1:
            mean, sd = 50, 0.01
        assert_moments(np.asarray(draw(keys, np.int32(arm)), np.float64), mean, sd**2)


def test_linear_beliefs_explore_the_wheel():
    """Nearly as well as the policy that knows all there is to know of δ."""
    problem = gb.Problem(priors.Wheel(0.95), 400)
    assert references.with_prior("lin-greedy", problem).mean == priors.Wheel().belief()["mean"]
    policies = {"greedy": "lin-greedy", "softelim": LinSoftElim(**problem.prior.belief(), a=0.001)}
    exact = wheel.regrets_at(0.95, 400)
    for row in gb.evaluate(policies, problem, instances=500).rows:
        assert 0.9 * exact.greedy < row.regret.mean < 2 * exact.greedy < 0.01 * exact.uniform, row
    with pytest.raises(InputError, match="can't use a wheel prior"):
        references.with_prior("lin-greedy", gb.Problem(priors.Wheel(features="raw"), 400))


@pytest.mark.parametrize("count", [2, 3, 5, 6])
def test_orders_are_permutations_each_as_likely(count):
    keys = jax.random.split(prng.root(1), 20_000)
    places = jnp.arange(count, dtype=jnp.uint32)
    found = jax.jit(jax.vmap(lambda key: jax.vmap(lambda i: prng.permuted(key, i, count))(places)))(keys)
    found = np.asarray(found)
    assert (np.sort(found, axis=1) == np.arange(count)).all()
    orders, counts = np.unique(found, axis=0, return_counts=True)
    wanted = 20_000 / (cells := np.prod(np.arange(1, count + 1)))
    squares = ((counts - wanted) ** 2 / wanted).sum() + (cells - len(orders)) * wanted
    assert_z(squares, np.sqrt(2 * max(cells - 1, 1)), cells - 1)


def walk(key, theta, t):
    return jax.random.normal(key, (3, 2))


def own(**changes):
    given = {
        "sample": lambda key: {"theta": jax.random.normal(key, (2,))},
        "context": walk,
        "means": lambda instance, x: jax.nn.sigmoid((x * instance["theta"][None]).sum(1)),
        "arms": 3,
        "dims": 2,
    }
    return priors.Contextual(**given | changes)


def test_functions_of_ones_own():
    prior = own()
    assert not prior.shares_context
    features, means = rounds(prior)
    assert_moments(features, 0, 1)
    rows = gb.evaluate(
        ["lin-softelim:link=logistic,within=1", "uniform"], gb.Problem(prior, 30), instances=500
    )
    best = means.max(1) - means.mean(1)
    uniform = next(row for row in rows.rows if row.name == "uniform").regret
    assert_z(uniform.mean, uniform.se, 30 * best.mean(), 30 * best.std() / np.sqrt(len(best)))
    assert rows.rows[0].name != "uniform"
    assert own().describe() == prior.describe()
    assert own(context=lambda key, theta, t: 2 * walk(key, theta, t)).describe() != prior.describe()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"context": lambda key, theta, t: jnp.ones(3)}, r"context must return \[2\] or \[3, 2\]"),
        ({"means": lambda instance, x: jnp.ones(2)}, "means must return 3 means"),
        ({"means": lambda instance, x: 2 + x[:, 0]}, r"must lie in \[0, 1\]"),
        ({"means": lambda instance, x: jnp.full(3, 0.5)}, "the same in every context"),
        ({"context": lambda key, theta, t: jnp.full((3, 2), jnp.nan)}, "finite numbers"),
        ({"dims": 0}, "dims must be a whole number"),
    ],
)
def test_wrong_functions_are_named(changes, words):
    with pytest.raises(InputError, match=words):
        own(**changes)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: priors.Linear(2, 2, mean=[1.0]), "mean of the linear prior must have 2 numbers"),
        (
            lambda: priors.LinearByArm(2, 2, within=[1, 0]),
            "within of the linear-by-arm prior must be above 0",
        ),
        (lambda: priors.LinearByArm(2, 2, features="opposite"), "unknown features of the linear-by-arm"),
        (lambda: priors.LinearByArm(2, 2, intercept=1), "intercept of the linear-by-arm prior"),
        (lambda: priors.Groups(2, 0), "groups must be a whole number"),
        (lambda: priors.Groups(2, 2, rewards=gb.rewards.Gaussian()), "rewards in"),
        (lambda: priors.Wheel(1.5), "delta of the wheel"),
        (lambda: priors.Wheel(bins=0), "bins of the wheel"),
        (lambda: priors.Wheel(features="round"), "features of the wheel"),
        (lambda: priors.Wheel(features="raw").belief(), "not linear"),
        (lambda: priors.Linear(2, 2, table=[[1, 2], [3]]), "table of the linear prior must be numbers in"),
        (lambda: priors.Linear(2, 2, pool=[[1, 2], [3]]), "pool of the linear prior must be numbers in"),
        (lambda: priors.Linear(2, 2, own=0.0), "own of the linear prior must be above 0"),
        (
            lambda: gb.Problem(priors.Linear(2, 2), 9, delay={"kind": "geometric", "mean": 3}),
            "a delay does",
        ),
        (lambda: gb.Problem(priors.Linear(2, 2), 9, pulls_per_round=2), "not a multiple of"),
        (lambda: gb.Problem(priors.Linear(2, 2), 9, afterwards=2), "afterwards does not work"),
        (lambda: LinSoftElim(mean=(1.0, 2.0), dims=3).bind(2, 9), "3 of them"),
        (lambda: LinSoftElim(within=(1.0, -2.0), dims=2).bind(2, 9), "above 0"),
    ],
)
def test_wrong_settings_are_named(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_a_policy_file_keeps_a_number_per_coordinate(tmp_path):
    policy = LinSoftElim(mean=(0.0, 1.0), within=(1.0, 2.0), dims=2).bind(3, 10)
    learned = policy_file.Learned(policy, policy.init(prng.root(0)), {}, {"stopped": ""})
    learned.save(tmp_path / "policy.safetensors")
    assert gb.load(tmp_path / "policy.safetensors").policy == policy


def test_one_number_and_the_same_for_each_coordinate_agree():
    problem = gb.Problem(priors.Linear(4, 3), 20)
    policies = LinSoftElim(mean=0.25, within=0.5), LinSoftElim(mean=(0.25,) * 3, within=(0.5,) * 3)
    first, second = (gb.evaluate(policy, problem, instances=64).rows[0].regret for policy in policies)
    assert (first.mean, first.se) == (second.mean, second.se)


def bits(*arrays):
    return (
        f"{zlib.crc32(b''.join(np.ascontiguousarray(array, np.float64).tobytes() for array in arrays)):08x}"
    )


def test_problems_without_contexts_keep_their_bits():
    """Checksums of what the version before contexts made."""
    rows = gb.evaluate(["softelim", "exp3"], "two-point", instances=300, seed=3).rows
    assert bits(*([row.regret.mean, row.regret.se, row.reward.mean] for row in rows)) == "e5d165c9"
    learned = gb.learn("softelim", "two-point", iterations=3, instances=64, seed=2)
    assert bits(learned.params["theta"], learned.history["regret"]) == "6dd18d45"
