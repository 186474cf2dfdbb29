"""Learned policies on contexts: gradients against enumeration, known special cases, NumPy and JAX."""

import dataclasses
import itertools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_z

import gradband as gb
from gradband.core import prng
from gradband.core.arrays import one_hot, pick
from gradband.core.errors import InputError
from gradband.core.pytrees import flattened, pytree
from gradband.gradient.estimator import Estimator, estimate
from gradband.learning.over_problems import Turns, learn_over, suited
from gradband.policies import (
    BeliefIndex,
    ByGroup,
    CoSoftElim,
    DirectedSoftElim,
    LinBoltzmann,
    LinEpsilonGreedy,
    LinSoftElim,
    PretrainedLinear,
    SoftElim,
    SquareCB,
    binding,
)
from gradband.policies.base import Counts
from gradband.policies.policy_file import Learned
from gradband.problems import Problem
from gradband.problems import rewards as laws
from gradband.problems.priors.base import Prior

pytestmark = pytest.mark.brief
MANY = 60_000
ARM_FEATURES = np.array(
    [
        [[1.0, 0.2], [0.3, 1.0], [-0.5, 0.8]],
        [[0.1, -1.0], [1.0, 1.0], [0.7, -0.2]],
    ]
)
VISITORS = np.array([[1.0, 0.3], [-0.4, 1.0]])
THETAS = np.array([[1.5, -1.0], [-0.6, 1.2], [0.3, 0.9]])  # of one belief
BY_ARM = np.stack([THETAS, THETAS[::-1] * [1, -1]], 1)  # [3, K = 2, d]


@pytree("thetas", "seen")
@dataclasses.dataclass(frozen=True, eq=False)
class Few(Prior):
    """Few θ and few contexts, equally likely; rewards are 1 with the probability 1 / (1 + exp(−xᵀθ))."""

    kind: ClassVar[str] = "few"
    arms: int
    dims: int = 2
    thetas: Any = ()
    """[θs, d], or [θs, K, d] with one per arm"""
    seen: Any = ()
    """features [C, K, d], or [C, d] of visitors"""
    shared: bool = False
    rewards: laws.Reward = laws.Bernoulli()

    @property
    def shares_context(self):
        return self.shared

    @property
    def in_groups(self):
        return self.shared and bool(np.isin(self.seen, (0, 1)).all())

    def sample(self, key):
        return one_of(self.thetas, prng.uniform(key))

    def context(self, key, instance, t):
        return one_of(self.seen, prng.uniform(key))

    def means(self, instance):
        theta, x = instance.instance, instance.features
        return jax.nn.sigmoid((x.reshape(-1, 2) * theta.reshape(-1, 2)).sum(-1))


def one_of(table, u):
    table = jnp.asarray(table, jnp.float32)
    which = one_hot((u * table.shape[0]).astype(int), table.shape[0])
    return jnp.where(which.reshape(-1, *[1] * (table.ndim - 1)), table, 0).sum(0)


ONE = Problem(Few(3, 2, THETAS, ARM_FEATURES), 3)
DISJOINT = Problem(Few(2, 2, BY_ARM, VISITORS, True), 4)
GROUPS = Problem(Few(2, 2, BY_ARM, np.eye(2), True), 4)
OF_THREE = np.concatenate([BY_ARM, BY_ARM[:, :1] * [-1, 1]], 1)  # [3, K = 3, d]
EXCLUSIVE = Problem(Few(3, 2, OF_THREE, VISITORS, True), 3)
ROUNDS = ONE.replace(horizon=4, pulls_per_round=2)
BELIEFS = {"within": 1.2, "sd": 0.4}


def enumerated(policy, problem, *points):
    """The expected regret and the reward's gradient [P] for each of these parameters, over all contexts,
    arms and rewards, in float64."""
    prior, horizon = problem.prior, problem.horizon
    policy = binding.check(policy, problem)
    contexts = np.asarray(prior.seen)
    size = len(contexts) * policy.arms * 2
    digits = np.array(list(itertools.product(range(size), repeat=horizon)))
    visits, rest = digits % len(contexts), digits // len(contexts)
    arms, gained = rest % policy.arms, rest // policy.arms
    thetas = np.asarray(prior.thetas)
    x, theta = (contexts[:, None], thetas[:, None]) if prior.shared else (contexts, thetas[:, None, None])
    means = 1 / (1 + np.exp(-(x * theta).sum(-1)))  # [θs, C, K]
    mean = means[:, visits, arms]  # [θs, H, n]
    chance = np.where(gained == 1, mean, 1 - mean).prod(-1).mean(0) / len(contexts) ** horizon

    def log_probability(params, visits, arms, gained):
        state = known = policy.begin(params, jnp.int32(0))
        total = jnp.zeros(())
        for t in range(horizon):  # decisions know the rewards of earlier rounds
            x = jnp.asarray(contexts)[visits[t]]
            total = total + pick(policy.log_probs(params, policy.see(params, known, x)), arms[t])
            state = policy.update(params, policy.see(params, state, x), arms[t], gained[t] * 1.0)
            known = state if (t + 1) % problem.pulls_per_round == 0 else known
        return total

    def value(params):
        logs = jax.vmap(log_probability, (None, 0, 0, 0))(params, visits, arms, gained)
        return (jnp.exp(logs) * chance * gained.sum(1)).sum()

    both, best = jax.jit(jax.value_and_grad(value)), horizon * means.max(-1).mean()
    with jax.enable_x64(True):
        wide = [{key: np.asarray(leaf, float) for key, leaf in params.items()} for params in points]
        found = [both(params) for params in wide]
    return [(best - float(reward), flattened(gradient)) for reward, gradient in found]


def distant(policy, problem):
    """Parameters that are as far from special as learned ones."""
    params = binding.check(policy, problem).init(jax.random.key(3))
    if sum(leaf.size for leaf in jax.tree.leaves(params)) == 1:
        return params
    rng = np.random.default_rng(5)
    if isinstance(policy, PretrainedLinear):  # as it comes, few arms are pulled at random
        params |= {"power": np.float32(1.5)}
    return {n: np.float32(leaf * 1.1 + 0.2 * rng.random(leaf.shape)) for n, leaf in params.items()}


POLICIES = {
    "scalar": (LinSoftElim(a=0.7, **BELIEFS), ONE),
    "scalar, difference": (LinSoftElim(a=0.7, variance="difference", **BELIEFS), ONE),
    "diagonal": (LinSoftElim(shape="diagonal", **BELIEFS), ONE),
    "full": (LinSoftElim(shape="full", **BELIEFS), ONE),
    "full, difference": (LinSoftElim(shape="full", variance="difference", **BELIEFS), ONE),
    "logistic": (LinSoftElim(a=0.7, link="logistic", within=1.2), ONE),
    "by arm": (CoSoftElim(a=0.7), DISJOINT),
    "by arm, full, difference": (CoSoftElim(shape="full", variance="difference", **BELIEFS), DISJOINT),
    "by arm, features of arms": (LinSoftElim(a=0.7, model="by-arm", **BELIEFS), ONE),
    "hinges": (LinSoftElim(shape="diagonal", hinges=3, bend=0.8, **BELIEFS), ONE),
    "exclusive": (CoSoftElim(a=0.7, exclusive=0.6, **BELIEFS), EXCLUSIVE),
    "exclusive, logistic, hinges": (
        DirectedSoftElim(link="logistic", model="by-arm", power=2.0, exclusive=0.6, hinges=3),
        EXCLUSIVE,
    ),
    "directed": (DirectedSoftElim(a=0.6, power=1.5, **BELIEFS), ONE),
    "directed, logistic, by arm": (DirectedSoftElim(link="logistic", model="by-arm", power=2.0), DISJOINT),
    "square-cb": (SquareCB(**BELIEFS), ONE),
    "square-cb, logistic, by arm": (SquareCB(link="logistic", model="by-arm", within=1.2), DISJOINT),
    "epsilon": (LinEpsilonGreedy(epsilon=0.3, **BELIEFS), ONE),
    "epsilon, by arm": (LinEpsilonGreedy(epsilon=0.3, model="by-arm"), DISJOINT),
    "rounds": (LinSoftElim(a=0.7, **BELIEFS), ROUNDS),
    "rounds, logistic, by arm": (
        DirectedSoftElim(link="logistic", model="by-arm", power=2.0),
        DISJOINT.replace(pulls_per_round=2),
    ),
    "boltzmann": (LinBoltzmann(**BELIEFS), ONE),
    "boltzmann, by arm": (LinBoltzmann(model="by-arm"), DISJOINT),
    "pretrained": (PretrainedLinear(**BELIEFS), ONE),
    "pretrained, logistic, by arm": (PretrainedLinear(link="logistic", model="by-arm"), DISJOINT),
    "by group": (ByGroup(policy="softelim:theta=0.4"), GROUPS),
    "pretrained, by group": (ByGroup(policy="pretrained:sharpness=3"), GROUPS),
    "by group, forgetting": (ByGroup(policy="discounted-softelim:theta=0.4"), GROUPS),
    "by group, rounds": (ByGroup(policy="boltzmann:theta=0.2"), GROUPS.replace(pulls_per_round=2)),
    "network": (BeliefIndex(hidden=3, **BELIEFS), ONE),
    "network, logistic, by arm": (BeliefIndex(hidden=3, link="logistic", model="by-arm"), DISJOINT),
}
ESTIMATORS = {
    "none": Estimator("none"),
    "optimal": Estimator("optimal"),
    "self": Estimator("self"),
    "leave-one-out": Estimator("leave-one-out", rollouts=3),
    "critic": Estimator("critic"),
    "luck": Estimator("luck"),
    "critic, expected": Estimator("critic", 2, "expected"),
    "luck, expected": Estimator("luck", 2, "expected"),
}
PAIRS = [
    (policy, name)
    for policy in POLICIES
    for name, how in ESTIMATORS.items()
    if not (how.rule.looks_ahead and "rounds" in policy)  # it needs rewards one by one
]


QUICK = {("scalar", name) for name in ESTIMATORS} - {("scalar", "critic"), ("scalar", "luck")}
QUICK |= {(policy, "self") for policy in POLICIES} - {
    ("network", "self"),
    ("network, logistic, by arm", "self"),
    ("by group, forgetting", "self"),
}


@pytest.fixture(scope="module")
def exact():
    """Parameters and a random direction; regrets and gradients there, and at both ends of a line along it.

    They come from enumeration, and are computed once.
    """
    known = {}

    def find(name):
        if name not in known:
            policy, problem = POLICIES[name]
            params, rng = distant(policy, problem), np.random.default_rng(1)
            way = {key: rng.normal(size=np.shape(leaf)) for key, leaf in params.items()}
            ends = [{key: np.float64(params[key]) + d * way[key] for key in way} for d in (-1e-5, 1e-5)]
            known[name] = params, way, enumerated(policy, problem, params, *ends)
        return known[name]

    return find


@pytest.mark.parametrize(
    ("policy", "how"),
    [pytest.param(*pair, marks=[] if pair in QUICK else pytest.mark.slow) for pair in PAIRS],
)
def test_estimates_agree_with_the_exact_gradient(exact, policy, how):
    (given, problem), (params, _, [(regret, gradient), *_]) = POLICIES[policy], exact(policy)
    found = estimate(given, problem, params, instances=MANY, estimator=ESTIMATORS[how], seed=1)
    assert_z(found.mean, np.maximum(found.se, 1e-12), gradient)
    assert_z(found.regrets.mean(), found.regrets.std() / MANY**0.5, regret)


@pytest.mark.parametrize("name", POLICIES)
def test_exact_gradients_are_slopes(exact, name):
    """Enumeration, at one end of the line along a random direction and at the other."""
    _, way, [(_, gradient), (first, _), (last, _)] = exact(name)
    assert gradient @ flattened(way) == pytest.approx((first - last) / 2e-5, abs=1e-7)


def features_of(problem, rng, shape):
    """Any features, or those of a visitor of a group."""
    return rng.permutation(np.eye(*shape))[0] if problem.prior.in_groups else rng.normal(size=shape)


@pytest.mark.parametrize("name", POLICIES)
def test_numpy_and_jax_have_the_same_probabilities(name):
    """In float64, along a few rounds."""
    policy, problem = POLICIES[name]
    policy = binding.check(policy, problem)
    given, rng = distant(policy, problem), np.random.default_rng(0)
    wide = {key: np.asarray(leaf, np.float64) for key, leaf in given.items()}
    shape = (policy.dims,) if problem.prior.shared else (policy.arms, policy.dims)
    rounds = [
        (features_of(problem, rng, shape), rng.integers(policy.arms), float(rng.random() < 0.5))
        for _ in range(problem.horizon)
    ]

    @jax.jit
    def along(params, rounds):
        def step(state, at):
            x, arm, reward = at
            seen = policy.see(params, state, x)
            return policy.update(params, seen, arm, reward), policy.log_probs(params, seen)

        return jax.lax.scan(step, policy.begin(params, jnp.int32(0)), rounds)[1]

    with jax.enable_x64(True):
        theirs = np.asarray(along(wide, tuple(map(np.array, zip(*rounds, strict=True)))))
        assert theirs.dtype == np.float64
    state = policy.begin(wide, np.int64(0))
    for (x, arm, reward), others in zip(rounds, theirs, strict=True):
        seen = policy.see(wide, state, x)
        found = policy.log_probs(wide, seen)
        assert isinstance(found, np.ndarray)
        assert np.exp(found).sum() == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(found, others, rtol=0, atol=1e-9)
        state = policy.update(wide, seen, arm, reward)


@pytest.mark.parametrize(
    ("shape", "model"), [("scalar", "linear"), ("diagonal", "linear"), ("scalar", "by-arm")]
)
def test_one_hot_features_give_softelim(shape, model):
    """Where the prior is flat, c_i = a² σ² / T_i: SoftElim with θ = 2 a² σ²."""
    rng, a, sd, arms = np.random.default_rng(1), 0.8, 0.4, 4
    kind = CoSoftElim if model == "by-arm" else LinSoftElim
    policy = kind(a=a, shape=shape, within=1e6, sd=sd, dims=arms).bind(arms, 100)
    params = policy.as_arrays(policy.init(jax.random.key(0)))
    known = SoftElim(theta=2 * a**2 * sd**2).bind(arms, 100)
    state, counts = policy.begin(params, np.int64(0)), Counts.zeros(arms)
    for t in range(40):
        seen = policy.see(params, state, np.eye(arms))
        if t >= arms:
            ours, theirs = policy.log_probs(params, seen), known.log_probs({"theta": known.theta}, counts)
            np.testing.assert_allclose(np.exp(ours), np.exp(theirs), atol=1e-5)
        arm = t if t < arms else int(rng.integers(arms))
        reward = float(rng.normal())
        state, counts = policy.update(params, seen, np.int64(arm), reward), counts.add(arm, reward)


@pytest.mark.parametrize("name", [n for n in POLICIES if not n.startswith(("network", "pretrained"))])
def test_lanes_play_what_xla_plays(name):
    """Gradients of instances differ by rounding alone, but for the few whose draws it turns.

    Lanes compute no derivatives with respect to many parameters, as networks and pretrained policies have.
    """
    policy, problem = POLICIES[name]
    params = distant(policy, problem)
    lanes, xla = (
        estimate(policy, problem, params, instances=512, engine=engine) for engine in ("lanes", "xla")
    )
    near = np.isclose(lanes.per_instance, xla.per_instance, rtol=1e-3, atol=1e-4)
    assert near.mean() > 0.99


def test_square_cb_starts_as_vowpal_wabbit():
    """p_i = 1 / (K + 10 √t g_i) for rewards in [0, 1]."""
    policy = SquareCB(dims=2, within=1.0).bind(3, 50)
    params, rng = policy.as_arrays({"scale": 10.0, "exponent": 0.5}), np.random.default_rng(0)
    state = policy.begin(params, np.int64(0))
    for t in range(1, 30):
        seen = policy.see(params, state, rng.normal(size=(3, 2)))
        p, best = np.exp(policy.log_probs(params, seen)), seen.mean.argmax()
        for arm in {0, 1, 2} - {best}:
            assert p[arm] == pytest.approx(1 / (3 + 10 * t**0.5 * (seen.mean[best] - seen.mean[arm])))
        assert p.sum() == pytest.approx(1)
        state = policy.update(params, seen, np.int64(rng.integers(3)), rng.normal())


def test_a_policy_says_whose_features_it_takes():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Silent(gb.policies.Seeing):
        name: ClassVar[str] = "silent"

    with pytest.raises(InputError, match="silent must set takes_arms or takes_visitor"):
        binding.check(Silent(), ONE)


def test_settings_are_checked():
    for policy, words in (
        (LinSoftElim(a=0.0), "a of lin-softelim"),
        (LinSoftElim(shape="round"), "shape of lin-softelim"),
        (CoSoftElim(variance="both"), "variance of co-softelim"),
        (SquareCB(exponent=9.0), "exponent of square-cb"),
        (LinEpsilonGreedy(epsilon=1.5), "epsilon of lin-epsilon-greedy"),
        (LinBoltzmann(temperature=-1.0), "temperature of lin-boltzmann"),
        (BeliefIndex(hidden=0), "hidden of belief-index"),
        (LinSoftElim(hinges=-1), "hinges of lin-softelim"),
        (LinSoftElim(bend=0.0), "bend of lin-softelim"),
        (LinSoftElim(hinges=20_000), "hinges of lin-softelim"),
        (CoSoftElim(exclusive=1.5), "exclusive of co-softelim"),
        (LinSoftElim(exclusive=0.5), "use model=by-arm, not model=linear"),
        (CoSoftElim(exclusive=0.5), "exclusive of co-softelim needs features of the visitor"),
    ):
        with pytest.raises(InputError, match=words):
            binding.check(policy, ONE)


def test_learning_surveys_the_lead_and_finds_what_a_sweep_finds():
    """From a start a decade off, on a problem that is quickly played."""
    problem = Problem(gb.priors.Linear(3, 2, rewards=laws.Gaussian(0.5)), 30)
    learned = gb.learn(LinSoftElim(within=1.0), problem, iterations=10, instances=500)
    assert learned.about["training"]["survey"]
    sweep = {str(a): LinSoftElim(within=1.0, a=a) for a in (0.1, 0.3, 1.0, 3.0)}
    found = gb.evaluate({"learned": learned, **sweep}, problem, instances=4000)
    least = min(found[name].regret.mean for name in sweep)
    assert found["learned"].regret.mean < least + 5 * found["learned"].regret.se


def test_one_policy_is_learned_over_problems_of_several_sizes():
    """From a start that explores far too much, on problems with other K, d and n."""
    problems = [
        Problem(gb.priors.Linear(3, 2, rewards=laws.Gaussian(0.5)), 20),
        Problem(gb.priors.Linear(5, 3, rewards=laws.Gaussian(1.0)), 30),
    ]
    start = DirectedSoftElim(a=3.0, power=0.5)
    seen = []
    learned = learn_over(
        start,
        problems,
        Turns(iterations=20, instances=200, rate=0.05, estimator=Estimator("self")),
        progress=lambda i, name, regret: seen.append((i, name)),
    )
    assert seen[-1] == (20, "problem 2")
    assert np.mean(learned.about["training"]["ratios"]) < 0.9
    fresh = Problem(gb.priors.Linear(8, 4, rewards=laws.Gaussian(1.0)), 40)
    ours = Learned(suited(learned.policy, fresh), learned.params, {}, {})
    found = gb.evaluate({"learned": ours, "start": suited(start, fresh)}, fresh, instances=2000)
    lower = found.difference("start", "learned")
    assert lower.mean > 5 * lower.se
    for wrong, words in (([], "at least one problem"), ([Problem(gb.priors.Beta(2), 9)], "contexts")):
        with pytest.raises(InputError, match=words):
            learn_over(start, wrong)
    with pytest.raises(InputError, match="other shapes"):
        learn_over(LinSoftElim(shape="diagonal"), problems)
