"""Q-learning with a network and replay: how DQN is trained (Mnih et al., 2013).

In each iteration m fresh instances are played together for n rounds, each time with the arm of greatest Q
or, with probability ε, a random one. The transitions s, i, y → s' are kept in a ring. After each round
Adam takes a few steps on minibatches from it, for the Huber loss of

    Q(s, i) − (y + γ max_j Q⁻(s', j)),     where Q⁻ = 0 after the last round

and Q⁻ is a copy of Q that is updated from time to time.
"""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from gradband.core import prng, resources
from gradband.core.arrays import pick
from gradband.core.errors import InputError, whole
from gradband.core.statistics import Mean
from gradband.engine.memory import budget
from gradband.engine.observation import Regret, Round
from gradband.learning import recipes
from gradband.learning.checkpoint import HISTORY, Step
from gradband.learning.plan import Session, Wishes, describe_run, refuse
from gradband.policies import DQN, Counts, Params, Policy, binding
from gradband.policies.policy_file import Learned
from gradband.policies.settings import Positive, Share, Whole, check_settings
from gradband.problems import Problem


@dataclasses.dataclass(frozen=True)
class Settings:
    """Hyper-parameters, those of Dopamine's DQN for CartPole unless noted."""

    discount: Share = 0.99  # γ
    huber: Positive = 1.0  # error beyond which the loss grows linearly
    learning_rate: Positive = 1e-3  # Adam's step size
    adam_epsilon: Positive = 3.125e-4  # added to the root in Adam's denominator
    minibatch: Whole = 128  # transitions per update
    update_period: Whole = 200  # transitions between updates; 4 in Dopamine, but here they are cheap
    target_period: Whole = 25  # updates between copies of Q to Q⁻
    replay: Whole = 1_000_000  # transitions kept, at least an iteration's; CartPole's 50 000 were 50 rounds
    warmup: Whole = 500  # transitions before the first update
    epsilon: Share = 0.01  # ε at the end of its decay from 1
    decay: Share = 0.1  # share of all rounds in which ε decreases, linearly

    def __post_init__(self) -> None:
        check_settings(self, "Q-learning")

    @property
    def optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate, eps=self.adam_epsilon)


USUAL = Settings()


class Agent(NamedTuple):
    """What learning changes: the weights of Q and of Q⁻, Adam's state, and the number of updates."""

    params: Params
    target: Params
    adam: Any
    updates: Array


class Transitions(NamedTuple):
    """N transitions: counts before [N, K], arms [N], rewards [N]. These imply the counts after."""

    counts: Counts
    arm: Array
    reward: Array


def error(
    policy: DQN, discount: float, params: Params, target: Params, counts: Counts, arm: Array, reward: Array
) -> Array:
    """Q(s, i) − (y + γ max_j Q⁻(s', j)) of a transition."""
    after = counts.add(arm, reward)
    ahead = jnp.where(after.rounds < policy.horizon, policy.values(target, after).max(), 0)
    return pick(policy.values(params, counts), arm) - (reward + discount * ahead)


def update(policy: DQN, settings: Settings, agent: Agent, seen: Transitions) -> tuple[Agent, Array]:
    """One step of Adam on a minibatch, and the norm of its gradient."""

    def loss(params: Params) -> Array:
        errors = jax.vmap(partial(error, policy, settings.discount, params, agent.target))(*seen)
        return optax.huber_loss(errors, delta=settings.huber).mean()

    gradient = jax.grad(loss)(agent.params)
    changes, adam = settings.optimizer.update(gradient, agent.adam)
    params: Any = optax.apply_updates(agent.params, changes)
    updates = agent.updates + 1
    renewed = updates % settings.target_period == 0
    target = jax.tree.map(lambda new, old: jnp.where(renewed, new, old), params, agent.target)
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in gradient.values()))
    return Agent(params, target, adam, updates), norm


def learn(policy: Policy, problem: Problem, wishes: Wishes, session: Session) -> Learned:
    """Learns a DQN for `gradband.learn`, or raises an error for arguments that do not apply to it."""
    if not isinstance(policy, DQN):
        raise InputError(f"Q-learning needs the network of dqn, which {policy.name} does not have")
    refuse(policy, wishes, session, "which is learned by Q-learning")
    size = wishes.size(recipes.choose(binding.check(policy, problem), None), problem)
    on: dict[str, Any] = {"seed": session.seed, "progress": session.progress}
    on["memory"] = session.where.get("memory")
    return train(policy, problem, iterations=size[0], instances=size[1], **on)


class Clock(NamedTuple):
    """The number of rounds before, and of those in which ε decreases."""

    start: np.int32
    decay: np.float32


def train(
    policy: DQN,
    problem: Problem,
    *,
    iterations: int = 100,
    instances: int = 1000,
    settings: Settings = USUAL,
    seed: int = 0,
    memory: int | str | None = None,
    progress: Callable[[Step], None] | None = None,
) -> Learned:
    """Trains DQN in L = `iterations` iterations, each on m = `instances` fresh instances.

    The history has the regrets of the ε-greedy policy while it learns, and the mean norm of the gradients
    in each iteration.

    >>> from gradband import problems
    >>> learned = train(DQN(hidden=8), problems.named("two-point", horizon=20), iterations=2, instances=50)
    >>> learned.history["regret"].shape
    (2,)
    """
    problem.one_by_one("Q-learning")
    problem.unguarded("Q-learning")
    bound = binding.check(policy, problem)
    key = prng.root(seed)
    size = whole("the size of the replay", instances * max(problem.horizon, settings.replay // instances))
    most = None if memory is None else budget(memory)
    resources.require(8 * size * (problem.arms + 1), "this replay", "use fewer instances", most)
    params = bound.init(prng.stream(key, "init"))
    agent = Agent(params, params, settings.optimizer.init(params), jnp.int32(0))
    zeros = jnp.zeros((size, problem.arms))
    ring = Transitions(Counts(zeros, zeros + 0), jnp.zeros(size, jnp.int32), jnp.zeros(size))
    history: dict[str, list[Any]] = {name: [] for name in HISTORY}
    stopped = ""
    decay = np.float32(max(1, settings.decay * iterations * problem.horizon))  # in rounds
    task = jax.device_put(problem)
    began = time.perf_counter()
    for i in range(iterations):
        before = agent.params
        clock = Clock(np.int32(i * problem.horizon), decay)
        own = prng.fold_in(prng.stream(key, "training"), i)
        agent, ring, norm, regrets = _iterate(bound, settings, instances, task, agent, ring, own, clock)
        regret = Mean.of(np.asarray(regrets, np.float64))
        if not all(np.isfinite(leaf).all() for leaf in agent.params.values()):
            stopped = f"the weights were not finite in iteration {i + 1}"
            agent = agent._replace(params=before)
        step = Step(i + 1, iterations, problem.horizon, agent.params, float(norm), regret.mean, regret.se)
        for name in HISTORY:
            history[name].append(getattr(step, name))
        if progress:
            progress(step)
        if stopped:
            break
    training = {"iterations": iterations, "instances": instances, **dataclasses.asdict(settings)}
    training["seconds"] = round(time.perf_counter() - began, 3)
    about = describe_run(problem, training, seed)
    curves = {name: np.asarray(values, np.float32) for name, values in history.items()}
    curves["params"] = np.zeros((len(history["regret"]), 0), np.float32)  # too many weights to keep
    return Learned(bound, agent.params, curves, about, stopped)


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=5)
def _iterate(
    policy: DQN,
    settings: Settings,
    instances: int,
    problem: Problem,
    agent: Agent,
    ring: Transitions,
    key: Array,
    clock: Clock,
) -> tuple[Agent, Transitions, Array, Array]:
    """Plays m instances and learns from them; also returns the gradients' mean norm and the regrets [m]."""
    arms = problem.arms
    rounds = ring.arm.shape[0] // instances  # that the ring holds
    updates = max(1, instances // settings.update_period)
    every = max(1, settings.update_period // instances)  # rounds between updates
    pay, observe = _environments(problem, instances, key)

    def learn(agent: Agent, ring: Transitions, key: Array, stored: Array) -> tuple[Agent, Array]:
        chosen = jax.random.randint(key, (updates, settings.minibatch), 0, stored)

        def one_update(agent: Agent, chosen: Array) -> tuple[Agent, Array]:
            return update(policy, settings, agent, jax.tree.map(lambda leaf: leaf[chosen], ring))

        return jax.lax.scan(one_update, agent, chosen)

    def rest(agent: Agent, *_: Any) -> tuple[Agent, Array]:
        return agent, jnp.zeros(updates)

    def one_round(carry: Any, t: Array) -> tuple[Any, Array]:
        agent, ring, counts, regret = carry
        step = clock.start + t.astype(jnp.int32)
        for_arms, for_updates = (
            jax.random.fold_in(prng.stream(key, name), t) for name in ("more of a round", "training")
        )
        u = jax.random.uniform(for_arms, (3, instances))
        epsilon = 1 - (1 - settings.epsilon) * jnp.minimum(step / clock.decay, 1)
        greedy = jnp.argmax(jax.vmap(partial(policy.values, agent.params))(counts), axis=1)
        arm = jnp.where(u[0] < epsilon, jnp.floor(u[1] * arms).astype(jnp.int32), greedy)
        reward = pay(t, arm)
        regret = observe(regret, t, arm, reward)
        observed = (u[2] < reward).astype(jnp.float32)  # rounded, as in a rollout
        put = partial(jax.lax.dynamic_update_slice_in_dim, start_index=step % rounds * instances, axis=0)
        ring = jax.tree.map(put, ring, Transitions(counts, arm, observed))
        stored = jnp.minimum(step + 1, rounds) * instances
        due = (stored >= settings.warmup) & ((step + 1) % every == 0)
        agent, norms = jax.lax.cond(due, learn, rest, agent, ring, for_updates, stored)
        return (agent, ring, jax.vmap(Counts.add)(counts, arm, observed), regret), norms

    zeros = jnp.zeros((instances, arms))
    carry = agent, ring, Counts(zeros, zeros), Regret.zero(problem, jnp.zeros((1, instances)))
    times = jnp.arange(problem.horizon, dtype=jnp.uint32)
    (last, ring, _, regret), norms = jax.lax.scan(one_round, carry, times)
    made = jnp.maximum(last.updates - agent.updates, 1)
    return last, ring, norms.sum() / made, regret.total[0]


Function = Callable[..., Any]


def _environments(problem: Problem, count: int, key: Array) -> tuple[Function, Function]:
    """For m fresh instances: functions for the rewards [m] of arms [m] in round t, and for the regrets."""
    prior = problem.prior
    numbers = jnp.arange(count)
    keys, reward_keys = (
        jax.vmap(partial(jax.random.fold_in, prng.stream(key, name)))(numbers)
        for name in ("prior", "round")
    )
    instances = jax.vmap(prior.nth)(numbers, keys)

    def pay(t: Array, arm: Array) -> Array:
        of_round = jax.vmap(prng.fold_in, (0, None))(reward_keys, t)
        return jax.vmap(problem.reward, (0, 0, 0, None))(of_round, instances, arm, t)

    def observe(regret: Regret, t: Array, arm: Array, reward: Array) -> Regret:
        mean = best = None
        if prior.knows_means:
            means = jax.vmap(prior.means_at, (0, None))(instances, t)
            mean, best = jax.vmap(pick)(means, arm)[None], means.max(1)[None]

        def all_rewards() -> Array:
            return jnp.stack([pay(t, jnp.full(count, i))[None] for i in range(problem.arms)])

        seen = Round(t, arm[None], jnp.zeros(()), reward[None], all_rewards, mean=mean, best_mean=best)
        return regret.add(seen)

    return pay, observe
