"""Sweeps: policies on problems under several seeds, in one call."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from gradband.core import figures
from gradband.core import progress as progress_bars
from gradband.core.errors import InputError, whole
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean
from gradband.engine.blocks import Where, check_where
from gradband.evaluation.evaluate import evaluate, name_policies, several
from gradband.learning.learn import learn
from gradband.policies import Policy, binding, given
from gradband.policies.given import Given
from gradband.policies.policy_file import Learned
from gradband.problems import GivenProblem, Problem, as_problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 3  # pairs of policy and problem in a sweep's repr
USUAL: Mapping[str, Any] = MappingProxyType({})
OWN = ("seed", "progress", *Where.__annotations__)  # arguments of `learn` that a sweep sets itself


@dataclasses.dataclass(frozen=True)
class SweepRow:
    """One policy on one problem under one seed."""

    policy: str
    problem: str
    seed: int
    regret: Mean
    reward: Mean
    seconds: float  # of learning and evaluation
    learned: Learned | None = None  # the policy, if the sweep learned it

    def as_dict(self) -> dict[str, Any]:
        """The row as numbers and strings."""
        return {
            "policy": self.policy,
            "problem": self.problem,
            "seed": self.seed,
            "regret": self.regret.mean,
            "regret_se": self.regret.se,
            "reward": self.reward.mean,
            "reward_se": self.reward.se,
            "learned": self.learned is not None,
            "stopped": self.learned.stopped if self.learned else "",
            "seconds": self.seconds,
        }


@dataclasses.dataclass(frozen=True)
class Sweep(Result):
    """The rows of a sweep: by problem, then by seed, then in the order of the policies."""

    rows: tuple[SweepRow, ...]

    def as_dict(self) -> dict[str, Any]:
        """All rows as dictionaries, ready for JSON."""
        return {"rows": [row.as_dict() for row in self.rows]}

    def records(self) -> list[dict[str, Any]]:
        return [row.as_dict() for row in self.rows]

    def tables(self) -> list[TextTable]:
        rows = []
        for policy, name in self.pairs:
            found = self.regret(policy, name)
            seconds = sum(row.seconds for row in self.rows if (row.policy, row.problem) == (policy, name))
            rows.append([policy, name, f"{found.mean:.3f}", f"{found.se:.3f}", f"{seconds:.1f}"])
        columns = ["policy", "problem", "Bayes regret", "± se", "seconds"]
        return [TextTable(f"Means over {self._seeds()}", columns, rows, texts=2)]

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the mean regret of each policy on each problem, with its standard error.

        Args:
            ax: Where to draw; new Axes by default.
        """
        axes = figures.axes_for(ax, (7.5, figures.height_of_bars(len(self.pairs))))
        several = len({problem for _, problem in self.pairs}) > 1
        names = [f"{policy} on {problem}" if several else policy for policy, problem in self.pairs]
        regrets = [self.regret(*pair) for pair in self.pairs]
        figures.points(axes, names, [r.mean for r in regrets], [r.se for r in regrets], color="C0")
        axes.set_xlim(left=0)
        axes.set(xlabel="Bayes regret, ± se", title=f"Means over {self._seeds()}")
        return axes

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Each policy with each problem."""
        return list(dict.fromkeys((row.policy, row.problem) for row in self.rows))

    def _seeds(self) -> str:
        count = len({row.seed for row in self.rows})
        return "1 seed" if count == 1 else f"{count} seeds"

    def regret(self, policy: str, problem: str) -> Mean:
        """The mean regret over seeds. With several seeds, its standard error is that between them."""
        found = [row.regret for row in self.rows if (row.policy, row.problem) == (policy, problem)]
        if not found:
            raise KeyError((policy, problem))
        return found[0] if len(found) == 1 else Mean.of(np.array([each.mean for each in found]))

    def __repr__(self) -> str:
        pairs = self.pairs
        words = [f"{policy} on {name} {self.regret(policy, name)}" for policy, name in pairs[:SHOWN]]
        words += [f"{len(pairs) - SHOWN} more"] if len(pairs) > SHOWN else []
        return f"Sweep({self._seeds()}: {', '.join(words)})"


def sweep(
    policies: Given | Iterable[Given] | Mapping[str, Given],
    problems: GivenProblem | Iterable[GivenProblem] | Mapping[str, GivenProblem],
    seeds: int | Iterable[int] = 1,
    *,
    learning: Mapping[str, Any] | None = USUAL,
    instances: int = 10_000,
    progress: Callable[[str, float], None] | bool | None = None,
    **where: Unpack[Where],
) -> Sweep:
    """Learns and evaluates each policy on each problem under each seed.

    Policies that can be learned are learned on every problem under every seed. Others, such as learned
    policies and policy files, are only evaluated. Under one seed all policies play the same instances of a
    problem. The code compiled for a policy is used for all seeds, and for all problems with the same kind
    of prior, number of arms and horizon.

    Args:
        policies: As for `evaluate`: a policy, several, or a dictionary with your own names.
        problems: A problem, several, or a dictionary with your own names; each a `Problem`, a fit, a
            name or a file.
        seeds: The seeds, or their number: 0, 1, ….
        learning: Arguments of `learn`, such as `{"iterations": 50}`. With None nothing is learned, and
            policies are evaluated with their initial parameters.
        instances: Fresh instances for each evaluation.
        progress: Called with a description of the last row and the share that is done; by default a bar in
            terminals and notebooks, with False nothing.
        **where: The `devices`, the `memory` and the `engine`: see `Where`.

    >>> found = sweep(["softelim", "uniform"], "two-point", learning=None, instances=100)
    >>> [(row.policy, row.problem, row.seed) for row in found.rows]
    [('softelim', 'two-point', 0), ('uniform', 'two-point', 0)]
    """
    check_where(where)
    entries = policies if isinstance(policies, Mapping) else name_policies(several(policies))
    tasks = _name_problems(problems)
    numbers = list(range(whole("seeds", seeds))) if isinstance(seeds, int) else list(seeds)
    for what, there in (("policy", entries), ("problem", tasks), ("seed", numbers)):
        if not there:
            raise InputError(f"there is no {what} to sweep over")
    for name in learning or ():
        if name in OWN:
            raise InputError(f"{name} is an argument of sweep, not of learning")
    rows: list[SweepRow] = []
    total = len(tasks) * len(numbers) * len(entries)
    with progress_bars.follow(
        "sweeping", progress, lambda update: lambda what, share: update(share, what)
    ) as told:
        for (place, task), seed, (name, entry) in product(tasks.items(), numbers, entries.items()):
            began, learned = time.perf_counter(), None
            policy = given.resolve(entry, task)
            if learning is not None and isinstance(policy, Policy) and _can_learn(policy, task):
                policy = learned = learn(policy, task, seed=seed, **learning, **where, progress=False)
            how: dict[str, Any] = {"instances": instances, "seed": seed, **where, "progress": False}
            row = evaluate({name: policy}, task, **how).rows[0]
            seconds = round(time.perf_counter() - began, 3)
            rows.append(SweepRow(name, place, seed, row.regret, row.reward, seconds, learned))
            if told:
                told(f"{name} on {place}, seed {seed}", len(rows) / total)
    return Sweep(tuple(rows))


def _can_learn(policy: Policy, problem: Problem) -> bool:
    """Whether the policy has parameters to learn."""
    bound = binding.check(policy, problem)
    return bound.trainer != Policy.trainer or (bound.differentiable and bool(bound.shapes()))


def _name_problems(problems: Any) -> dict[str, Problem]:
    """The problems by name; repeated names are numbered."""
    if isinstance(problems, Mapping):
        return {name: as_problem(entry) for name, entry in problems.items()}
    found: dict[str, Problem] = {}
    alone = isinstance(problems, str | Path) or not isinstance(problems, Iterable)
    for entry in [problems] if alone else problems:
        problem = as_problem(entry)
        name = entry if isinstance(entry, str) else problem.name
        name = name or f"{problem.prior.label}, {problem.arms} arms, {problem.horizon} rounds"
        taken = sum(known == name or known.startswith(f"{name} #") for known in found)
        found[f"{name} #{taken + 1}" if taken else name] = problem
    return found
