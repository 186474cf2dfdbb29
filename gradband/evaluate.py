"""Bayes regret of policies on fresh instances, paired: all of them see the same instances and Y."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband import blocks, random, rollout
from gradband.errors import InputError, whole
from gradband.policies import Params, Policy
from gradband.problems import Problem

CHUNK = 16  # blocks a device computes between two reports of progress


class WithParams(Protocol):
    """A policy with parameters, such as `learn` returns."""

    @property
    def policy(self) -> Policy: ...
    @property
    def params(self) -> Params: ...


@dataclasses.dataclass(frozen=True)
class Mean:
    """A Monte Carlo mean with its standard error.

    >>> print(Mean(4.6712, 0.0213))
    4.671 ± 0.021
    """

    mean: float
    se: float

    @classmethod
    def of(cls, values: np.ndarray) -> "Mean":
        count = values.size
        se = values.std(ddof=1) / np.sqrt(count) if count > 1 else float("nan")
        return cls(float(values.mean()), float(se))

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.se:.3f}"


@dataclasses.dataclass(frozen=True)
class Row:
    """One policy's result: regrets and rewards [m] of the instances, and the seconds it took."""

    name: str
    regrets: np.ndarray
    rewards: np.ndarray
    seconds: float

    @property
    def regret(self) -> Mean:
        return Mean.of(self.regrets)

    @property
    def reward(self) -> Mean:
        return Mean.of(self.rewards)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Rows sorted by regret."""

    rows: tuple[Row, ...]

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def difference(self, one: str, other: str) -> Mean:
        """Regret of one policy minus that of another, paired by instance."""
        return Mean.of(self[one].regrets - self[other].regrets)

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        return "\n".join(f"{row.name:<{width}}  {row.regret}" for row in self.rows)


def evaluate(
    policies: Sequence[Policy | WithParams] | dict[str, Policy | WithParams],
    problem: Problem,
    *,
    instances: int = 10_000,
    seed: int = 0,
    devices: int | None = None,
    chunk: int = CHUNK,
    progress: Callable[[str, float], None] | None = None,
) -> Comparison:
    """Bayes regret of each policy on `instances` fresh instances, the same for all.

    Regret is that of the pulled arms' means where they are known; otherwise realised rewards are
    compared with the best arm in hindsight, on instances held out from training.

    >>> from gradband import policies, problems
    >>> problem = problems.named("two-point", horizon=20)
    >>> table = evaluate([policies.Uniform(), policies.SoftElim()], problem, instances=2000)
    >>> [row.name for row in table.rows]
    ['softelim', 'uniform']
    """
    whole("instances", instances, least=2)
    whole("chunk", chunk)
    fresh = problem.fresh()
    instances = min(instances, getattr(fresh.prior, "size", instances))
    if instances < 2:
        raise InputError("an evaluation needs at least 2 instances: hold more of the table out")
    on = blocks.devices(devices)
    key = random.stream(random.root(seed), "evaluation")
    entries = policies if isinstance(policies, dict) else _names(policies)
    if not entries:
        raise InputError("there is no policy to evaluate")
    players = {name: _player(entry, problem, seed) for name, entry in entries.items()}
    rows = []
    for name, (policy, params) in players.items():
        began = time.perf_counter()
        report = partial(progress, name) if progress else lambda done: None
        played = _all_blocks(policy, params, fresh, key, instances, on, chunk, report)
        rows.append(Row(name, *played, time.perf_counter() - began))
    return Comparison(tuple(sorted(rows, key=lambda row: row.regret.mean)))


def _names(policies: Sequence[Policy | WithParams]) -> dict[str, Policy | WithParams]:
    """The policies by their names, numbered where a name comes again."""
    entries: dict[str, Policy | WithParams] = {}
    for entry in policies:
        name = entry.name if isinstance(entry, Policy) else f"{entry.policy.name} (learned)"
        taken = sum(known == name or known.startswith(f"{name} #") for known in entries)
        entries[f"{name} #{taken + 1}" if taken else name] = entry
    return entries


def _player(entry: Policy | WithParams, problem: Problem, seed: int) -> tuple[Policy, Params]:
    """A bound policy and its parameters."""
    if isinstance(entry, Policy):
        policy = rollout.check(entry, problem)
        return policy, policy.init(random.stream(random.root(seed), "init"))
    return rollout.check(entry.policy, problem), entry.params


def _all_blocks(
    policy: Policy,
    params: Params,
    problem: Problem,
    key: Array,
    instances: int,
    on: tuple[Any, ...],
    chunk: int,
    report: Callable[[float], None],
) -> tuple[np.ndarray, np.ndarray]:
    """Regrets and rewards [m], computed a few blocks at a time."""
    size = blocks.block_size(problem.arms)
    at_once = min(chunk * len(on) * size, instances)
    pieces = []
    for done in range(0, instances, at_once):
        numbers = blocks.block_numbers(at_once, size, on, first=done // size)
        piece = _play(policy, size, on, problem, params, key, numbers)
        pieces.append(blocks.gather(piece, min(at_once, instances - done)))
        report(min(done + at_once, instances) / instances)
    regrets, rewards = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return regrets.astype(np.float64), rewards.astype(np.float64)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _play(
    policy: Policy,
    size: int,
    on: tuple[Any, ...],
    problem: Problem,
    params: Params,
    key: Array,
    numbers: Array,
) -> tuple[Array, Array]:
    """Regrets and rewards [N, B] of the instances of some blocks, each played once."""

    def observe(seen: tuple[rollout.Regret, Array], round: rollout.Round) -> Any:
        regret, reward = seen
        gained = round.reward if round.expected is None else round.expected
        return regret.add(round), reward + gained

    def of_block(operands: Any, block: Array) -> tuple[Array, Array]:
        problem, params, key = operands

        def start(score: Array) -> tuple[rollout.Regret, Array]:
            zeros = jnp.zeros_like(score)
            return rollout.Regret.zero(problem, zeros), zeros

        regret, reward = rollout.play(policy, problem, params, key, block, size, 1, observe, start)
        return regret.total[0], reward[0]

    return blocks.map_blocks(of_block, (problem, params, key), numbers, on)
