"""One formula: the same probabilities in NumPy as in JAX, for every policy."""

import jax
import numpy as np
import pytest
from conftest import assert_z
from every_policy import ALL, ARMS, CONTEXTUAL, SAMPLED, SIMULATED, bound, features, initial
from scipy import integrate, stats

import gradband as gb
from gradband.core import prng
from gradband.core.arrays import flatten
from gradband.play.player import Player
from gradband.policies import best_arm
from gradband.policies.best_arm import best_probabilities
from gradband.policies.beta_tail import upper_logit

pytestmark = pytest.mark.brief


@pytest.mark.parametrize("name", ALL)
def test_specs_are_what_init_returns(files, name):
    """Shapes are known without JAX, and they are those of the parameters."""
    given = gb.load(files(name))
    specs = given.policy.specs()
    assert {key: leaf.shape for key, leaf in given.params.items()} == {k: s.shape for k, s in specs.items()}
    if name in gb.policies.POLICIES:
        found = jax.eval_shape(given.policy.init, jax.random.key(0))
        assert {key: leaf.shape for key, leaf in found.items()} == {k: s.shape for k, s in specs.items()}
    arrays = given.policy.as_arrays(given.params)
    assert all(
        leaf.dtype == (np.float64 if leaf.dtype.kind == "f" else leaf.dtype) for leaf in arrays.values()
    )


@pytest.mark.parametrize("name", ALL)
def test_states_in_numpy_are_new_and_in_double_precision(files, name):
    player = Player(files(name), seed=0)
    before = player.memory.state
    kept = {key: np.array(leaf) for key, leaf in flatten(before).items()}
    player.update(player.select(), 1)
    for key, leaf in flatten(before).items():
        np.testing.assert_array_equal(leaf, kept[key])
    first = gb.load(files(name)).policy.begin(player.playable.params, jax.numpy.int32(0))
    assert list(flatten(first)) == list(flatten(player.memory.state))
    for leaf in flatten(player.memory.state).values():
        assert leaf.dtype in (np.float64, np.int32)


OTHERS = [
    ("bayes-ucb", {"a": 0.1, "b": 0.1}),
    ("bayes-ucb", {"a": 2.0, "b": 30.0}),
    ("kl-ucb", {"c": 3.0}),
    ("ucb-v", {"c": 0.5, "zeta": 1.2, "zeta_0": 1.0}),
    ("split", {"share": 0.1}),
    ("platform-ts", {"rule": "statsig", "period": 5}),
    ("gittins", {"a": 0.5, "b": 3.0}),
    ("index", {"hidden": 5, "a": 0.3, "b": 20.0}),
    ("lstm", {"hidden": 7, "bias_scale": 1.0}),
    ("pretrained", {"a": 0.3, "b": 20.0}),
    ("dqn", {"hidden": 9}),
]
"""settings other than the usual"""


@pytest.mark.parametrize(
    ("name", "settings"),
    [*((name, {}) for name in ALL if name not in (*SAMPLED, *SIMULATED)), *OTHERS],
    ids=str,
)
@pytest.mark.parametrize(
    ("rewards", "wide", "tolerance"),
    [
        ("between", False, 1e-6),
        ("binary", True, 1e-9),
        pytest.param("binary", False, 1e-6, marks=pytest.mark.slow),
        pytest.param("between", True, 1e-9, marks=pytest.mark.slow),
    ],
)
def test_probabilities_are_those_of_the_jax_policy(files, name, settings, rewards, wide, tolerance):
    """To 1e-6, which is about what float32 keeps; and to 1e-9 where JAX computes in float64 too.

    Information-directed sampling divides by differences of regrets: float32 loses another two digits.
    """
    if "ids" in name and not wide:
        tolerance = 1e-4
    path = files(name, **settings)
    given = gb.load(path)
    policy, binary = given.policy, given.policy.binary
    real = np.float64 if wide else np.float32
    params = {
        key: np.asarray(leaf, real if leaf.dtype.kind == "f" else leaf.dtype)
        for key, leaf in given.params.items()
    }

    @jax.jit
    def along(params, latent, arms, heard):
        own = policy.folded(params)

        def step(state, at):
            return policy.update(own, state, *at), policy.next_probabilities(own, state)

        state, probabilities = jax.lax.scan(step, policy.begin(own, latent), (arms, heard))
        return probabilities, policy.recommend(own, state)

    rng = np.random.default_rng(3)
    for seed in range(3):
        player, events, found, arms, heard = Player(path, seed), [], [], [], []
        player.record = events.append
        means = rng.random(policy.arms)
        latent = player.state()["memory"].get("length", 1.0) - 1
        for _ in range(policy.horizon):
            p = player.probabilities()
            found.append(p)
            arm = player.select()
            assert arm.propensity == p[arm]
            reward = float(rng.random() < means[arm])
            if rewards == "between":
                reward = float(np.float32(rng.random() * means[arm]))
            player.update(arm, reward)
            arms.append(arm)
            heard.append(events[-1]["heard"])
            assert heard[-1] == reward or (binary and heard[-1] in (0, 1))
        with jax.enable_x64(wide):
            told, best = along(params, np.int32(latent), np.array(arms, np.int32), np.array(heard, real))
        np.testing.assert_allclose(found, np.asarray(told), rtol=0, atol=tolerance)
        assert told.dtype == real
        assert player.recommend() == int(best)


def by_quadrature(a, b):
    """P(arm i is best) as SciPy integrates it."""
    arms = range(len(a))
    return [
        integrate.quad(
            lambda q, i=i: np.prod(
                [stats.beta.cdf(stats.beta.ppf(q, a[i], b[i]), a[j], b[j]) for j in arms if j != i]
            ),
            0,
            1,
            epsabs=1e-9,
            limit=500,
        )[0]
        for i in arms
    ]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1, 1, 1], [1, 1, 1]),
        pytest.param([1, 30, 4], [1, 2, 90], marks=pytest.mark.slow),
        ([151, 160, 140, 1], [9851, 9840, 9900, 1]),
        pytest.param([0.2, 0.5, 3], [0.3, 7, 3.5], marks=pytest.mark.slow),
        ([1e5 + 1, 1e5 + 200.5, 1], [9e5, 9e5, 10]),
    ],
)
def test_chances_of_being_best_are_scipys(a, b):
    p = best_probabilities(np.array(a, float), np.array(b, float))
    np.testing.assert_allclose(p, by_quadrature(a, b), rtol=0, atol=1e-7)


def test_chances_of_being_best_in_closed_form():
    """Beta(a, 1) variables are U^(1/a): i is the greatest with probability a_i / Σ a, tiny a included."""
    a = np.array([0.001, 0.02, 1.0, 5.0, 400.0])
    np.testing.assert_allclose(best_probabilities(a, np.ones(5)), a / a.sum(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", SAMPLED)
def test_samplers_pull_arms_as_often_as_their_probabilities_say(files, name):
    given = gb.load(files(name))
    player, rng = Player(files(name), seed=0), np.random.default_rng(0)
    for _ in range(40):
        arm = player.select()
        player.update(arm, float(rng.random() < (0.1, 0.3, 0.5, 0.35)[arm]))
    state = jax.tree.map(jax.numpy.asarray, player.memory.state)
    keys = jax.jit(jax.vmap(lambda i: jax.random.fold_in(prng.root(0), i)))(jax.numpy.arange(40_000))
    arms = jax.jit(jax.vmap(lambda key: given.policy.act(key, given.params, state)))(keys)
    shares = np.bincount(np.asarray(arms), minlength=ARMS) / 40_000
    p = player.probabilities()
    assert_z(shares, np.sqrt(p * (1 - p) / 40_000), p)


@pytest.mark.parametrize("tail", [0.3, 0.01, 1e-5])
def test_quantiles_of_bayes_ucb_are_scipys(tail):
    for a, b in [(1, 1), (3, 8), (0.3, 0.6), (900, 30), (2, 5000), (1, 1e5)]:
        x = 1 / (1 + np.exp(-upper_logit(tail, a, b)))
        assert x == pytest.approx(stats.beta.isf(tail, a, b), rel=1e-9)


@pytest.mark.parametrize("a", [1e-6, 1e-3, 0.01, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("b", [1e-6, 1e-3, 0.01, 1.0, 1e6, 1e12])
def test_extreme_beliefs_have_probabilities(a, b):
    p = best_probabilities(np.array([a, a, 1.0]), np.array([b, b, 1.0]))
    assert p.sum() == pytest.approx(1)
    assert p[0] == pytest.approx(p[1], abs=1e-9)
    for tail in (0.5, 1e-6):
        assert np.isfinite(upper_logit(tail, a, b))


def test_many_arms_are_taken_a_few_at_a_time():
    """Independent of how many numbers are computed at once, and right for equal arms."""
    p = best_probabilities(np.full(60, 3.0), np.full(60, 50.0))
    np.testing.assert_allclose(p, 1 / 60, atol=1e-10)
    a, b = np.linspace(1, 9, 7), np.linspace(20, 3, 7)
    whole = best_probabilities(a, b)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_arm, "AT_ONCE", 7 * 10 * 3)
        np.testing.assert_allclose(best_probabilities(a, b), whole, atol=1e-13)


WITH_CONTEXTS = [
    (name, model, link)
    for name in CONTEXTUAL
    for model, link in (("linear", "identity"), ("linear", "logistic"), ("by-arm", "identity"))
    if (name, link) != ("lin-kg", "logistic")
]


def histories(policy, params, wide, rounds=40, sampled=False):
    """What the policy sees in each round, in NumPy, and in JAX with its probabilities unless it samples."""
    real = np.float64 if wide else np.float32
    xs, rng = np.stack([features(t) for t in range(rounds)]), np.random.default_rng(3)
    played = [(np.int32(rng.integers(ARMS)), float(rng.random() < 0.4)) for _ in range(rounds)]

    @jax.jit
    def along(params, xs, arms, rewards):
        def step(state, at):
            x, arm, reward = at
            seen = policy.see(params, state, x)
            told = None if sampled else policy.probabilities(params, seen)
            return policy.update(params, seen, arm, reward), (seen, told)

        return jax.lax.scan(step, policy.begin(params, jax.numpy.int32(0)), (xs, arms, rewards))[1]

    plain, state = [], policy.begin({}, np.int32(0))
    for x, (arm, reward) in zip(xs, played, strict=True):
        plain.append(policy.see({}, state, x.astype(float)))
        state = policy.update({}, plain[-1], arm, reward)
    arms, rewards = map(np.array, zip(*played, strict=True))
    with jax.enable_x64(wide):
        ours, told = along(params, xs.astype(real), arms, rewards.astype(real))
    return plain, jax.device_get(ours), jax.device_get(told)


@pytest.mark.parametrize(("name", "model", "link"), WITH_CONTEXTS)
def test_with_contexts_probabilities_are_those_of_the_jax_policy(name, model, link):
    """In double precision, as which arm is the best of a sample can depend on the last digit."""
    policy, sampled = (
        bound(name, ARMS, 60, model=model, link=link),
        name == "lin-ts",
    )  # which samples in JAX
    with jax.enable_x64(True):
        params = {key: np.asarray(leaf) for key, leaf in initial(policy).items()}
    arrays = policy.as_arrays(params)
    plain, ours, told = histories(policy, params, wide=True, sampled=sampled)
    for t, state in enumerate(plain):
        for one, two in zip(jax.tree.leaves(state), jax.tree.leaves(ours), strict=True):
            assert two.dtype in (np.float64, np.int32)
            np.testing.assert_allclose(one, two[t], rtol=0, atol=1e-9)
        p = policy.probabilities(arrays, state)
        assert p.shape == (ARMS,)
        assert p.sum() == pytest.approx(1)
        if not sampled:
            np.testing.assert_allclose(p, told[t], rtol=0, atol=1e-9)


@pytest.mark.parametrize("model", ["linear", "by-arm"])
def test_with_contexts_samples_pull_arms_as_often_as_their_probabilities_say(model):
    """|z| < 5, beside an error of 10⁻³ of the probabilities."""
    policy, count = bound("lin-ts", ARMS, 60, model=model), 200_000
    plain, ours, _ = histories(policy, {}, wide=False, rounds=6, sampled=True)
    last = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf[-1]), ours)
    keys = jax.jit(jax.vmap(lambda i: jax.random.fold_in(prng.root(0), i)))(jax.numpy.arange(count))
    arms = jax.jit(jax.vmap(lambda key: policy.act(key, {}, last)))(keys)
    shares, p = np.bincount(np.asarray(arms), minlength=ARMS) / count, policy.probabilities({}, plain[-1])
    assert p.min() > 0.01
    assert_z(shares, np.sqrt(p * (1 - p) / count + 2e-4**2), p)
