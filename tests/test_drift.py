"""Means that move: the prior, regret against each round's best arm, and gradients of what forgets."""

import dataclasses
import itertools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z

import gradband as gb
from gradband.core.arrays import pick
from gradband.core.errors import InputError
from gradband.core.pytrees import pytree
from gradband.engine import engines
from gradband.problems.priors import drifting

pytestmark = pytest.mark.brief

ROUNDS, INSTANCES = 4, 60_000


@pytree("rows", "turn")
@dataclasses.dataclass(frozen=True, eq=False)
class Switching(gb.priors.Prior):
    """One of the rows, whose arms change places after `turn` pulls."""

    kind: ClassVar[str] = "switching"
    rows: tuple
    turn: int = 2
    arms: int = 2
    rewards: gb.rewards.Reward = gb.rewards.Bernoulli()

    def sample(self, key):
        chosen = jax.random.randint(key, (), 0, len(self.rows))
        return jnp.stack([pick(jnp.asarray(column), chosen) for column in zip(*self.rows, strict=True)])

    def means(self, instance, t=0):
        return jnp.where(t < self.turn, instance, instance[::-1])


ROWS = ((0.9, 0.2), (0.3, 0.5), (0.6, 0.6))
TINY = gb.Problem(Switching(ROWS), horizon=ROUNDS)
FORGETFUL = [
    gb.policies.DiscountedSoftElim(theta=0.3, forgetting=0.2),
    gb.policies.DiscountedKLSoftElim(theta=0.5, a=0.7, b=1.3, forgetting=0.4),
]


def enumerated(policy, problem, params=None):
    """Reward, regret and the reward's gradient, from all histories: the prior is read row by row."""
    with jax.enable_x64(True):
        bound = policy.bind(2, problem.horizon)
        given = bound.init(None) if params is None else params
        start = {name: jnp.asarray(leaf, jnp.float64) for name, leaf in given.items()}
        histories = np.array(list(itertools.product(range(4), repeat=problem.horizon)))
        pulled, gained = histories % 2, histories // 2
        rows = np.array(ROWS)
        paths = np.stack(
            [rows if t < problem.prior.turn else rows[:, ::-1] for t in range(problem.horizon)], 1
        )
        chance = np.ones((len(histories), len(rows)))
        for t in range(problem.horizon):
            mean = paths[:, t].T[pulled[:, t]]
            chance = chance * np.where(gained[:, t, None] == 1, mean, 1 - mean)

        def value(params):
            def log_p(arms, rewards):
                state, total = bound.begin(params, jnp.int32(0)), 0.0
                for t in range(problem.horizon):
                    total += bound.next_log_probs(params, state, t)[arms[t]]
                    state = bound.update(params, state, arms[t], rewards[t])
                return total

            p = jnp.exp(jax.vmap(log_p)(pulled, gained.astype(float)))
            return (p * chance.mean(1) * gained.sum(1)).sum()

        reward, gradient = jax.jit(jax.value_and_grad(value))(start)
        reward = float(reward)
    best = paths.max(2).mean(0).sum()
    return reward, best - reward, {name: np.asarray(leaf) for name, leaf in gradient.items()}


OFTEN = (FORGETFUL[0], "self")
PAIRS = [(policy, baseline) for policy in FORGETFUL for baseline in ("self", "optimal", "luck")]


@pytest.mark.parametrize(
    ("policy", "baseline"),
    [pytest.param(*pair, marks=[] if pair == OFTEN else pytest.mark.slow) for pair in PAIRS],
    ids=lambda each: getattr(each, "name", each),
)
def test_gradients_and_regrets_are_those_of_enumeration(policy, baseline):
    """Also with respect to the rate of forgetting, on which states depend."""
    _, regret, gradient = enumerated(policy, TINY)
    found = gb.estimate(policy, TINY, instances=INSTANCES, estimator=baseline, seed=1)
    names = sorted(gradient)
    assert_z(found.mean, found.se, [gradient[name] for name in names])
    assert abs(gradient["forgetting"]) > 3 * found.se[names.index("forgetting")]
    assert_z(found.regrets.mean(), found.regrets.std() / INSTANCES**0.5, regret)


@pytest.mark.slow
def test_the_gradient_of_a_network_that_forgets_is_that_of_enumeration():
    """In reverse mode, through all states."""
    policy = gb.policies.DiscountedIndexNetwork(hidden=2, forgetting=0.2).bind(2, ROUNDS)
    rng = np.random.default_rng(0)
    params = policy.init(jax.random.key(0))
    for name in sorted(set(params) - {"forgetting"}):
        params[name] = params[name] + 0.3 * rng.normal(size=params[name].shape).astype(np.float32)
    _, regret, gradient = enumerated(policy, TINY, params)
    found = gb.estimate(policy, TINY, params, instances=INSTANCES, estimator="luck", seed=1)
    wanted = np.concatenate([gradient[name].ravel() for name in sorted(gradient)])
    assert_z(found.mean, found.se + 1e-7, wanted)
    assert_z(found.regrets.mean(), found.regrets.std() / INSTANCES**0.5, regret)


def test_what_is_given_as_a_policys_state_is_differentiated():
    """Without the tangents of the counts, the gradient by the rate would be 0."""
    found = gb.estimate(FORGETFUL[1], TINY, instances=INSTANCES, seed=1)
    assert found.per_instance is not None
    assert found.per_instance[2].any()  # of a, b, forgetting and theta


def path_of(prior, horizon, seed=0, count=4000):
    """Logits [N, t, K] of the means of many instances, after 0, …, n pulls."""
    prior = gb.Problem(prior, horizon).prior
    times = jnp.arange(0, horizon + 1, max(1, horizon // 16))

    def of(key):
        instance = prior.sample(key)
        return jax.vmap(lambda t: prior.means(instance, t))(times)

    means = np.asarray(jax.jit(jax.vmap(of))(jax.random.split(jax.random.key(seed), count)), np.float64)
    return np.asarray(times), np.log(means / (1 - means))


@pytest.mark.parametrize("horizon", [pytest.param(64, marks=pytest.mark.slow), 1600])
def test_a_walk_has_the_deviation_that_it_says(horizon):
    """At the knots it is a random walk; also if the horizon has fewer pulls than there are knots."""
    times, logits = path_of(gb.priors.Drifting(gb.priors.Beta(2, a=4, b=4), walk=0.8), horizon)
    moved = logits - logits[:, :1]
    for place in (4, 16):
        variance = 0.8**2 * times[place] / 1000
        assert_z((moved[:, place] ** 2).mean(), variance * np.sqrt(2 / 8000), variance)
        assert_z(moved[:, place].mean(), np.sqrt(variance / 8000), 0)
    increments = moved[:, 8] - moved[:, 4], moved[:, 12] - moved[:, 8]
    correlation = np.corrcoef(*(part.ravel() for part in increments))[0, 1]
    assert_z(correlation, 1 / np.sqrt(8000), 0)
    across = np.corrcoef(moved[:, 16, 0], moved[:, 16, 1])[0, 1]
    assert_z(across, 1 / np.sqrt(4000), 0)


def test_a_cycle_comes_back_and_is_a_sine():
    prior = gb.Problem(gb.priors.Drifting(gb.priors.Beta(3), cycle=0.7, period=100.0), 400).prior
    instance = jax.jit(prior.sample)(jax.random.key(3))
    times = jnp.array([0, 25, 60, 100, 325])
    means = np.asarray(jax.jit(jax.vmap(lambda t: prior.means(instance, t)))(times), np.float64)
    logits = np.log(means / (1 - means))
    knots, phase = (np.asarray(part, np.float64) for part in instance)
    turns = phase + np.array([[0], [25], [60], [100], [325]]) / 100
    np.testing.assert_allclose(logits, knots[0] + 0.7 * np.sin(2 * np.pi * turns), rtol=0, atol=2e-5)
    np.testing.assert_allclose(logits[0], logits[3], atol=2e-5)


def test_the_sine_of_lanes_is_numpys():
    x = np.linspace(-3, 3, 4001)
    np.testing.assert_allclose(jax.jit(drifting.wave)(x), np.sin(2 * np.pi * x), rtol=0, atol=1e-6)


MOVING = gb.Problem(
    gb.priors.Drifting(gb.priors.Beta(3), walk=4.0, cycle=1.0, period=50.0), horizon=60, name="moving"
)


def test_regret_is_against_the_best_arm_of_each_round():
    """Of an equal split it is the mean of best less mean, summed over the rounds of the same paths."""
    row = gb.evaluate("uniform", MOVING, instances=4000, seed=2).rows[0]
    prior = MOVING.prior

    def gaps(key):
        instance = prior.sample(key)
        means = jax.vmap(lambda t: prior.means(instance, t))(jnp.arange(60))
        return (means.max(1) - means.mean(1)).sum()

    drawn = np.asarray(jax.jit(jax.vmap(gaps))(jax.random.split(jax.random.key(9), 4000)))
    assert_z(row.regret.mean, row.regret.se, drawn.mean(), drawn.std() / 4000**0.5)


def test_paths_are_the_same_for_all_policies():
    """Rewards and regrets of two policies add up to the same: that of the best arms."""
    rows = gb.evaluate(["uniform", "ucb1"], MOVING, instances=4000, seed=2).rows
    np.testing.assert_allclose(
        rows[0].regrets + rows[0].rewards, rows[1].regrets + rows[1].rewards, rtol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["discounted-softelim", "discounted-kl-softelim", "sliding-window-ucb"])
def test_engines_agree(name):
    lanes, xla = (gb.evaluate(name, MOVING, instances=300, engine=e).rows[0] for e in engines.ENGINES)
    assert (np.abs(lanes.regrets - xla.regrets) > 1e-3).mean() < 0.02


def test_in_batches_means_are_those_of_a_batchs_first_pull():
    """Rounds begin at 0, 40 and 80: a policy of one arm is paid twice before the turn, once after it."""
    problem = gb.Problem(Switching(((0.9, 0.2),), turn=60), horizon=120, pulls_per_round=40)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class First(gb.policies.Uniform):
        name: ClassVar[str] = "first"

        def log_probs(self, params, state):
            return jnp.array([0.0, -jnp.inf]) + 0 * state.pulls

    row = gb.evaluate(First(), problem, instances=64).rows[0]
    np.testing.assert_allclose(row.regrets, 40 * 0.7, rtol=1e-5)
    np.testing.assert_allclose(row.rewards, 80 * 0.9 + 40 * 0.2, rtol=1e-5)


def test_after_the_last_round_means_stay():
    """The recommended arm is paid as at the end, and so is the best."""
    problem = gb.Problem(Switching(((0.9, 0.2),), turn=3), horizon=3, afterwards=10)
    row = gb.evaluate(gb.policies.Greedy(), problem, instances=500).rows[0]
    # Arms have changed places by then: whoever recommends arm 0 loses .7 ten times.
    within = gb.evaluate(gb.policies.Greedy(), problem.replace(afterwards=0), instances=500).rows[0]
    lost = np.unique((row.regrets - within.regrets).round(3))
    assert set(lost.tolist()) == {0.0, 7.0}


def test_problem_files_have_a_start(tmp_path):
    file = tmp_path / "drifting.toml"
    text = 'horizon = 500\n[prior]\nkind = "drifting"\nwalk = 0.5\n'
    file.write_text(text + '[prior.start]\nkind = "beta"\narms = 4\nb = 9\n')
    problem = gb.problems.load(str(file))
    described = problem.describe()["prior"]
    assert described["start"] == {"kind": "beta", "arms": 4, "a": 1.0, "b": 9.0}
    assert (described["walk"], described["cycle"]) == (0.5, 0.0)
    assert gb.problems.parse(problem.describe()).describe() == problem.describe()
    assert gb.problems.load(str(file), arms=7).arms == 7
    assert problem.replace(horizon=640).prior.spacing == 10
    for start, words in (
        ('kind = "gaussian"\narms = 3', "means in"),
        ('kind = "beta"\narms = 3\nwalk = 1', "prior.start.walk"),
        ('kind = "beta"', "prior.start.arms"),
        ('kind = "drifting"\nstart = {kind = "beta", arms = 2}', "stay the same"),
    ):
        file.write_text(f"{text}[prior.start]\n{start}\n")
        with pytest.raises(InputError, match=words):
            gb.problems.load(str(file))
    with pytest.raises(InputError, match="walk of the drifting prior"):
        gb.priors.Drifting(gb.priors.Beta(2), walk=-1)


def test_what_needs_means_that_stay_refuses():
    two = gb.Problem(gb.priors.Drifting(gb.priors.Beta(2), walk=1.0), horizon=20)
    for exact in (gb.exact.optimum, lambda p: gb.exact.by_counts("softelim", p)):
        with pytest.raises(InputError, match="drifting"):
            exact(two)
    with pytest.raises(InputError, match="drifting"):
        gb.exact.by_enumeration("softelim", two.replace(horizon=4))
    with pytest.raises(InputError, match="a plan needs means that stay the same"):
        gb.plan(two)
    with pytest.raises(InputError, match="stay the same"):
        gb.priors.Drawn.of(two.prior, 10, jax.random.key(0))
    with pytest.raises(InputError, match="stay the same"):
        gb.priors.Scaled(two.prior, 0.5)


def test_moving_means_that_are_not_allowed_are_named_with_their_round():
    """The library's own priors are not checked by draws, and one that counts as such is wrong here."""

    @pytree("rows", "turn")
    @dataclasses.dataclass(frozen=True, eq=False)
    class Growing(Switching):
        __module__ = "gradband.problems.priors.growing"

        def means(self, instance, t=0):
            return jnp.where(t < 7, instance, 2 * instance)

    problem = gb.Problem(Growing(((0.9, 0.2),)), horizon=12)
    with pytest.raises(InputError, match=r"the mean 1.8, not one in \[0, 1\] .*in round 8"):
        gb.evaluate("uniform", problem, instances=50, engine="xla")


def test_draws_of_moving_means_are_checked():
    @pytree("rows", "turn")
    @dataclasses.dataclass(frozen=True, eq=False)
    class Wrong(Switching):
        def reward(self, key, instance, arm, t):
            return self.rewards.draw(key, pick(instance, arm))

    with pytest.raises(InputError, match="do not have the means that Wrong declares"):
        gb.Problem(Wrong(((0.9, 0.2),)), horizon=40)
