"""A certificate for one policy: how far it is above the optimum at most, on the same instances."""

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gradband.core import prng, resources
from gradband.core.errors import InputError, whole
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean
from gradband.engine import blocks, measure
from gradband.exact.quadrature import best_mean
from gradband.policies import given
from gradband.policies.given import Given
from gradband.problems import Problem, as_problem, priors, rewards
from gradband.solvers import duality, stopping

PIECE = 64  # instances at a time


@dataclasses.dataclass(frozen=True)
class Certificate(Result):
    """A policy's regret is at most `gap` above the optimum's, up to standard errors.

    `bound` is the lower bound on every policy's regret that the same instances give.
    """

    policy: str
    gap: Mean
    regret: Mean
    bound: Mean
    instances: int
    seconds: float

    def __repr__(self) -> str:
        return f"Certificate({self.in_words()})"

    def in_words(self) -> str:
        gap = f"{self.gap.mean:.3g} ± {self.gap.se:.2g}"
        return f"{self.policy}: at most {gap} above the optimum, {self.instances} instances"

    def as_dict(self) -> dict[str, Any]:
        """Means with their standard errors, ready for JSON."""
        means = {name: vars(getattr(self, name)) for name in ("gap", "regret", "bound")}
        return {"policy": self.policy, **means, "instances": self.instances, "seconds": self.seconds}

    def records(self) -> list[dict[str, Any]]:
        """A single row."""
        pairs = {name: getattr(self, name) for name in ("gap", "regret", "bound")}
        row = {
            key: value for name, m in pairs.items() for key, value in ((name, m.mean), (f"{name}_se", m.se))
        }
        return [{"policy": self.policy, **row, "instances": self.instances, "seconds": self.seconds}]

    def tables(self) -> list[TextTable]:
        rows = [
            [words, f"{m.mean:.3f}", f"{m.se:.3f}"]
            for words, m in (
                ("above the optimum, at most", self.gap),
                (f"regret of {self.policy}", self.regret),
                ("regret of every policy, at least", self.bound),
            )
        ]
        return [TextTable("", ["", "mean", "± se"], rows, f"{self.instances} instances.")]


def certify(
    policy: Given, problem: Problem | str | Path, *, instances: int = 2000, seed: int = 0
) -> Certificate:
    """How far a policy's regret is above the optimum's at most: the duality gap on the paths that it plays.

    For Bernoulli rewards, one by one, and independent beta means. Adding to rewards what is 0 on average
    for every policy leaves the optimum unchanged, and a player who knows all these rewards in advance gains
    at least as much as the best policy. The gap is how much more that is than the policy's own gain; its
    mean bounds what the policy lacks.

    Args:
        policy: A `Policy`, a learned one, a name or a policy file.
        problem: A `Problem`, a name or a TOML file.
        instances: Fresh instances to play.
        seed: Determines the instances and all draws.

    >>> found = certify("ts", "uniform-2", instances=200)
    >>> found.gap.mean > 1
    True
    """
    task = as_problem(problem)
    prior = _check(task)
    whole("instances", instances, least=2)
    began = time.perf_counter()
    n, arms = task.horizon, task.arms
    shapes, _ = stopping.kinds_of(prior.a, prior.b)
    size = len(shapes) * (n + 1) * (n + 2) // 2 * (duality.CHARGES * 4 + 4)
    resources.require(3 * size, f"a certificate for {n} rounds", "use a shorter horizon")
    kind_of = (np.stack([prior.a, prior.b], 1)[:, None] == shapes[None]).all(2).argmax(1)
    charges = np.linspace(0, 1, duality.CHARGES)
    built = [duality.table(float(a), float(b), n, charges) for a, b in shapes]
    tables = charges, np.stack([worth for worth, _ in built]), np.stack([index for _, index in built])
    bound, params = given.bind(policy, task, seed)
    key = prng.stream(prng.root(seed), "evaluation")
    job = measure.history_job(bound, jax.device_put(task), params, key, instances)
    pieces = blocks.map_blocks(job, blocks.workers())
    pulled, gained, regrets, means = (
        np.concatenate([np.asarray(piece[i]) for piece in pieces], axis=-1)[..., :instances]
        for i in range(4)
    )
    played = np.stack([pulled.T, gained.T], 1).astype(np.int16)
    found = np.empty((2, instances))

    def fill(first: int) -> None:
        own = slice(first, first + PIECE)
        draws = np.random.default_rng([seed, first]).random((len(played[own]), arms, n), np.float32)
        exact = means.T[own].astype(np.float64)
        duality.gaps(played[own], exact, draws, shapes, kind_of, tables, found[:, own])

    with ThreadPoolExecutor(resources.cores()) as pool:
        list(pool.map(fill, range(0, instances, PIECE)))
    gap = found[0] - found[1]
    lower = _with_control(regrets - gap, n * (means.max(0) - best_mean(prior)))
    spent = time.perf_counter() - began
    return Certificate(bound.name, Mean.of(gap), Mean.of(regrets), lower, instances, spent)


def _with_control(values: np.ndarray, centred: np.ndarray) -> Mean:
    """The mean of values, with the part that follows a variable of known mean 0 taken out."""
    slope = np.cov(values, centred)[0, 1] / max(centred.var(ddof=1), 1e-300)
    return Mean.of(values - slope * centred)


def _check(problem: Problem) -> priors.Beta:
    """The problem's prior, or an error if there is no certificate for it."""
    problem.one_by_one("a certificate")
    prior = problem.prior
    if not (isinstance(prior, priors.Beta) and isinstance(prior.rewards, rewards.Bernoulli)):
        kinds = f"{prior.rewards.kind} rewards and a {prior.kind} prior"
        raise InputError(f"a certificate needs bernoulli rewards and a beta prior, not {kinds}")
    if problem.afterwards:
        raise InputError("a certificate does not support pulls afterwards: remove them from the problem")
    return prior
