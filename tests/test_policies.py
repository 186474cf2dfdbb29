"""One protocol suite for every policy that is listed, and the paper's closed forms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_policy import BY_GROUP, CONTEXTUAL, compiled, features, folded, initial
from every_policy import bound as bound_to

from gradband import policies, problems
from gradband.core.errors import InputError
from gradband.evaluation.evaluate import evaluate
from gradband.policies import POLICIES, Counts, Exp3, ExploreThenCommit, SoftElim
from gradband.problems import priors

pytestmark = pytest.mark.brief

K, N = 3, 60
DIFFERENTIABLE = [name for name, policy in POLICIES.items() if policy.differentiable]
COUNTING = [name for name in DIFFERENTIABLE if issubclass(POLICIES[name], policies.Counting)]


def bound(name, arms=K, horizon=N, **settings):
    return bound_to(name, arms, horizon, **settings)


@functools.partial(jax.jit, static_argnums=0)
def one_round(policy, params, state, x, arm, reward):
    """A round's state and log-probabilities, if there are any, and the state after it, by one program."""
    seen = policy.see(params, state, x)
    log_probs = policy.log_probs(params, seen) if policy.differentiable else None
    return seen, log_probs, policy.update(params, seen, arm, reward)


def begun(policy, params):
    """The first state."""
    if policy.name in (*CONTEXTUAL, BY_GROUP):
        return compiled(policy, "begin", params, jnp.int32(0))
    return policy.begin(params, jnp.int32(0))


def rounds(policy, params, history):
    """What `one_round` gives after (arm, reward) pairs; the last is of a round that was not played."""
    params, found = folded(policy, params), []
    state = begun(policy, params)
    for t, (arm, reward) in enumerate([*history, (0, 0.0)]):
        given = features(t, K, policy.name), np.int32(arm), np.asarray(reward, jnp.zeros(()).dtype)
        found.append((state, *one_round(policy, params, state, *given)))
        state = found[-1][-1]
    return found


def after(policy, params, history):
    """The state after (arm, reward) pairs."""
    return rounds(policy, params, history)[-1][0]


@pytest.fixture
def history():
    rng = np.random.default_rng(0)
    opening = [(arm, float(rng.random() < 0.5)) for arm in range(K)]
    return opening + [(int(rng.integers(K)), float(rng.random() < 0.5)) for _ in range(20)]


@pytest.mark.parametrize("name", POLICIES)
def test_state_keeps_its_shape(name, history):
    policy = bound(name)
    params = initial(policy)
    played = rounds(policy, params, history)
    first, last = played[0][0], played[-1][0]
    assert jax.tree.structure(first) == jax.tree.structure(last)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(last), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)


@pytest.mark.parametrize("name", POLICIES)
def test_init_is_within_bounds(name):
    policy = bound(name)
    params = initial(policy)
    lower, upper = policy.bounds()
    assert set(lower) == set(upper) == set(params)
    for key, leaf in jax.device_get(params).items():
        assert np.all((np.asarray(lower[key]) <= leaf) & (leaf <= np.asarray(upper[key])))


@pytest.mark.parametrize("name", POLICIES)
def test_settings_make_the_policy_again(name):
    policy = POLICIES[name]()
    assert POLICIES[name](**policy.settings()) == policy
    assert hash(policy) == hash(POLICIES[name]())


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_probabilities_sum_to_one(name, history):
    policy = bound(name)
    params = initial(policy)
    for _, _, log_probs, _ in rounds(policy, params, history):
        assert log_probs.shape == (K,)
        assert np.exp(log_probs).sum() == pytest.approx(1, abs=1e-6)
    latent = policy.latent_log_probs(params)
    assert latent.shape == (policy.latents,)
    assert np.exp(latent).sum() == pytest.approx(1, abs=1e-6)


@functools.partial(jax.jit, static_argnums=0)
def with_tangent(policy, params, state):
    """Log-probabilities, and how they change if all parameters grow."""
    ones = jax.tree.map(jnp.ones_like, params)
    return jax.jvp(lambda params: policy.log_probs(params, state), (params,), (ones,))


@pytest.mark.parametrize("theta", [1e-3, 0.3, 1.0])
@pytest.mark.parametrize("name", COUNTING)
def test_probabilities_are_finite_at_extremes(name, theta):
    settings = {"theta": theta} if "theta" in policies.named(name).settings() else {}
    policy = bound(name, horizon=10**7, **settings)
    params = initial(policy)
    for pulls, means in (
        ([1e6, 1e6, 1e6], [0.0, 1.0, 0.5]),
        ([1e6, 1, 1], [1.0, 0.0, 1.0]),
        ([1, 1, 1], [0.0, 0.0, 0.0]),
        ([3e6, 2, 5e6], [1.0, 1.0, 1.0]),
    ):
        state = policy.after(Counts(jnp.array(pulls), jnp.array(pulls) * jnp.array(means)))
        log_probs, tangent = with_tangent(policy.compiled(), params, state)
        assert not np.isnan(log_probs).any()
        assert np.exp(log_probs).sum() == pytest.approx(1, abs=1e-6)
        pulled = np.exp(log_probs) > 0
        assert np.isfinite(np.asarray(tangent)[pulled]).all()


def test_exp3_is_finite_at_extremes():
    for theta in (1e-3, 0.3, 1.0):
        policy = bound("exp3", theta=theta)
        log_probs = policy.log_probs(policy.init(None), jnp.array([1e7, 0.0, 1e3]))
        assert np.isfinite(log_probs).all()
        assert np.exp(log_probs).sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", [name for name in COUNTING if POLICIES[name].opens])
def test_each_arm_is_pulled_once_first(name):
    policy = bound(name)
    params = policy.init(None)
    for t in range(K):
        state = after(policy, params, [(arm, 1.0) for arm in range(t)])
        log_probs = compiled(policy, "next_log_probs", params, state, t)
        np.testing.assert_array_equal(np.exp(log_probs), np.eye(K)[t])


@pytest.mark.parametrize("name", [n for n in POLICIES if not POLICIES[n].differentiable])
def test_policies_without_a_density_act(name, history):
    policy = bound(name)
    params = initial(policy)
    _, state, _, _ = rounds(policy, params, history)[-1]
    keys = jax.random.split(jax.random.key(0), 50)
    arms = jax.jit(jax.vmap(lambda key: policy.act(key, params, state)))(keys)
    assert set(arms.tolist()) <= set(range(K))


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.usefixtures("double")
def test_softelim_score_is_the_papers(history):
    """∇ log p_i = θ⁻² (S_i − Σ_j p_j S_j), Section 4.2."""
    policy = bound("softelim")
    state = after(policy, policy.init(None), history)
    score_of = jax.jit(jax.jacfwd(policy.log_probs))
    means = np.asarray(state.sums / state.pulls, float)
    statistic = 2 * (means.max() - means) ** 2 * np.asarray(state.pulls, float)
    for theta in (0.05, 0.3, 1.0, 8.0):
        weights = np.exp(-statistic / theta)
        probabilities = weights / weights.sum()
        params = {"theta": jnp.float64(theta)}
        log_probs = compiled(policy, "log_probs", params, state)
        np.testing.assert_allclose(np.exp(log_probs), probabilities, rtol=1e-12)
        score = score_of(params, state)["theta"]
        closed = (statistic - probabilities @ statistic) / theta**2
        np.testing.assert_allclose(score, closed, rtol=1e-12)


@pytest.mark.usefixtures("double")
def test_exp3_lemma_score_is_the_papers():
    """Lemma 3, whose statistics S do not depend on θ."""
    statistics = np.array([3.0, 9.5, 0.4])
    policy = Exp3(gradient="lemma").bind(K, N)
    score_of = jax.jit(jax.jacfwd(policy.log_probs))
    for theta in (0.05, 0.3, 0.9):
        v = np.exp(theta * statistics / K)
        share = v / v.sum()
        probabilities = theta / K + (1 - theta) * share
        inner = (1 - theta) * (statistics / K - share @ statistics / K) - 1
        closed = (share * inner + 1 / K) / probabilities
        params = {"theta": jnp.float64(theta)}
        state = jnp.array(statistics)
        log_probs = compiled(policy, "log_probs", params, state)
        np.testing.assert_allclose(np.exp(log_probs), probabilities, rtol=1e-12)
        score = score_of(params, state)["theta"]
        np.testing.assert_allclose(score, closed, rtol=1e-12)


def test_exp3_remembers_importance_weighted_rewards():
    policy = Exp3(theta=0.5).bind(2, 10)
    params = policy.init(None)
    state = after(policy, params, [(0, 1.0)])
    np.testing.assert_allclose(state, [2.0, 0.0])
    p = float(np.exp(policy.log_probs(params, state))[1])
    np.testing.assert_allclose(after(policy, params, [(0, 1.0), (1, 0.7)]), [2.0, 0.7 / p], rtol=1e-6)


def test_explore_then_commit_explores_in_turn_and_then_commits():
    policy = ExploreThenCommit(theta=2.5).bind(2, 20)
    params = policy.init(None)
    for latent, length in ((0, 4), (1, 6)):
        state = compiled(policy, "begin", params, jnp.int32(latent))
        pulled = []
        for t in range(12):
            arm = int(np.argmax(compiled(policy, "log_probs", params, state)))
            pulled.append(arm)
            # Arm 1 pays while exploring and never after: the commitment must hold all the same.
            reward = jnp.float32(arm == 1 and t < length)
            state = compiled(policy, "update", params, state, jnp.int32(arm), reward)
        assert pulled == [0, 1] * (length // 2) + [1] * (12 - length)


def test_horizons_and_parameters_out_of_range_are_refused():
    with pytest.raises(InputError, match="at least 5, not 4"):
        SoftElim().bind(5, 4)
    for policy in (
        SoftElim(theta=0.0),
        SoftElim(theta=-1.0),
        SoftElim(theta=float("nan")),
        Exp3(theta=1.5),
    ):
        with pytest.raises(InputError, match="theta of"):
            policy.bind(2, 20)
    with pytest.raises(InputError, match="explore-then-commit"):
        ExploreThenCommit().bind(2, 3)
    with pytest.raises(InputError, match="did you mean 'lemma'"):
        Exp3(gradient="lema").bind(2, 20)
    with pytest.raises(InputError, match="did you mean 'softelim'"):
        policies.named("softelm")
    with pytest.raises(InputError, match="a of ts"):
        policies.ThompsonSampling(a=0).bind(2, 20)


def test_thompson_sampling_needs_rewards_in_the_unit_interval():
    with pytest.raises(InputError, match=r"rewards in \[0, 1\]"):
        evaluate([policies.ThompsonSampling()], problems.Problem(priors.Gaussian(2), 20))


@functools.partial(jax.jit, static_argnums=0)
def slopes(policy, params, state):
    """How probabilities change with each parameter."""
    return jax.jacfwd(lambda params: jnp.exp(policy.log_probs(params, state)))(params)


@pytest.mark.parametrize("ones", [0.0, 9000.0, 20_000.0])
@pytest.mark.brief
def test_kl_softelim_has_a_gradient_for_means_near_0_and_1(ones):
    """Also for 20 000 pulls without a one: arms that differ by far, and pseudo-counts of a thousandth."""
    policy = bound("kl-softelim")
    pulls = jnp.array([20_000.0, 20_000.0, 3.0])
    state = Counts(pulls, jnp.array([0.0, ones, 3.0]))
    for a in (1e-3, 1.0):
        params = {"theta": jnp.float32(1.0), "a": jnp.float32(a), "b": jnp.float32(1e-3)}
        log_probs = compiled(policy, "log_probs", params, state)
        assert np.exp(log_probs).sum() == pytest.approx(1, abs=1e-5)
        p = slopes(policy, params, state)
        assert all(np.isfinite(slope).all() for slope in p.values())
