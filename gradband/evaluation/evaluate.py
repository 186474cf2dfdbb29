"""Bayes regret of policies on fresh instances. It is paired: all play the same instances and Y."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import jax
import numpy as np

from gradband.core import figures, prng
from gradband.core import progress as progress_bars
from gradband.core.errors import InputError, number, whole
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean, Quantile, losses_in_tail
from gradband.engine import blocks, diagnosis, measure
from gradband.engine.blocks import Where
from gradband.policies import TABLES, Params, Policy, as_policy, given
from gradband.policies.given import Given
from gradband.policies.given import WithParams as WithParams
from gradband.problems import GivenProblem, Problem, as_problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TAIL = (0.95, 0.99)  # levels of the quantiles that commands show
SHOWN = 4  # rows in a comparison's repr


@dataclasses.dataclass(frozen=True)
class Row:
    """One policy's result: regrets and rewards [m] by instance, and the seconds it took."""

    name: str
    regrets: np.ndarray
    rewards: np.ndarray
    seconds: float

    def __repr__(self) -> str:
        return f"Row({self.name!r}, regret {self.regret}, {len(self.regrets)} instances)"

    @property
    def regret(self) -> Mean:
        return Mean.of(self.regrets)

    @property
    def reward(self) -> Mean:
        return Mean.of(self.rewards)

    def quantile(self, level: float) -> Quantile:
        """A quantile of the regret of an instance, with a 95 % interval.

        Args:
            level: Between 0 and 1, such as 0.95: the regret that 95 % of the instances do not exceed.
        """
        return Quantile.of(self.regrets, _between("level", level))

    def cvar(self, share: float) -> Mean:
        """The mean regret on the worst instances: the conditional value at risk.

        Args:
            share: How many of the instances are the worst ones, such as 0.1.
        """
        return Mean.of(losses_in_tail(self.regrets, _between("share", share)))


@dataclasses.dataclass(frozen=True)
class Comparison(Result):
    """Rows sorted by regret."""

    rows: tuple[Row, ...]
    quantiles: tuple[float, ...] = ()
    """levels of the quantiles of regret that tables and `as_dict` show"""

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def difference(self, one: str, other: str) -> Mean:
        """Regret of one policy minus that of another, paired by instance."""
        return Mean.of(self[one].regrets - self[other].regrets)

    def difference_in_tail(self, one: str, other: str, share: float) -> Mean:
        """Mean regret of one policy on its worst instances minus that of another on its own.

        Args:
            one: The name of a row.
            other: The name of another row.
            share: How many of the instances are the worst ones, such as 0.1.
        """
        tails = (losses_in_tail(self[name].regrets, _between("share", share)) for name in (one, other))
        return Mean.of(np.subtract(*tails))

    def share(self, name: str, start: str, goal: float) -> Mean:
        """The share of the way from the regret of `start` to `goal` that a policy covers.

        It is between 0 and 1, or beyond. Its standard error takes into account that both policies were
        measured on the same instances.
        """
        regrets, from_ = self[name].regrets, self[start].regrets
        way = from_.mean() - goal
        covered = (from_.mean() - regrets.mean()) / way
        return Mean(float(covered), Mean.of((1 - covered) * from_ - regrets).se / abs(float(way)))

    def without(self, name: str) -> "Comparison":
        """The other rows."""
        return dataclasses.replace(self, rows=tuple(row for row in self.rows if row.name != name))

    @property
    def instances(self) -> int:
        """The number of instances that the policies were measured on."""
        return len(self.rows[0].regrets)

    def as_dict(self) -> dict[str, Any]:
        """Regrets and rewards with their standard errors, ready for JSON."""
        return {"instances": self.instances, "policies": self.records()}

    def records(self) -> list[dict[str, Any]]:
        return [
            {
                "name": row.name,
                "regret": row.regret.mean,
                "se": row.regret.se,
                "reward": row.reward.mean,
                "reward_se": row.reward.se,
                **quantiles_by_name(row, self.quantiles),
                "seconds": row.seconds,
            }
            for row in self.rows
        ]

    def tables(self) -> list[TextTable]:
        rows = [
            [figures.shortened(row.name), f"{row.regret.mean:.3f}", f"{row.regret.se:.3f}"]
            + [f"{row.reward.mean:.3f}", f"{row.reward.se:.3f}"]
            for row in self.rows
        ]
        columns = ["policy", "Bayes regret", "± se", "reward", "± se"]
        return [TextTable(f"{self.instances} instances", columns, rows), *self.quantile_tables()]

    def quantile_tables(self) -> list[TextTable]:
        """A table of the quantiles of regret, if there are any to show."""
        rows = []
        for row in self.rows if self.quantiles else ():
            found = [row.quantile(level) for level in self.quantiles]
            cells = [text for q in found for text in (f"{q.value:.3f}", f"{q.low:.3f} – {q.high:.3f}")]
            rows.append([figures.shortened(row.name), *cells])
        columns = [word for q in self.quantiles for word in (f"{100 * q:g} % quantile", "95 % interval")]
        return [TextTable("Quantiles of regret", ["policy", *columns], rows)] if rows else []

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the regrets as bars, with their standard errors.

        Args:
            ax: Where to draw; new Axes by default.
        """
        axes = figures.axes_for(ax, (7.5, figures.height_of_bars(len(self.rows))))
        figures.bars(axes, [row | {"share": None} for row in self.records()])
        return axes

    def __repr__(self) -> str:
        shown = [f"{row.name} {row.regret}" for row in self.rows[:SHOWN]]
        rest = [f"{len(self.rows) - SHOWN} more"] if len(self.rows) > SHOWN else []
        return f"Comparison({', '.join(shown + rest)})"

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        return "\n".join(f"{row.name:<{width}}  {row.regret}" for row in self.rows)


def evaluate(
    policies: Given | Iterable[Given] | Mapping[str, Given],
    problem: GivenProblem,
    *,
    instances: int = 10_000,
    seed: int = 0,
    quantiles: Sequence[float] = (),
    progress: Callable[[str, float], None] | bool | None = None,
    **where: Unpack[Where],
) -> Comparison:
    """Bayes regret of each policy on fresh instances, the same for all.

    Regret uses the means of the pulled arms if they are known. Otherwise realised rewards are compared with
    the best arm in hindsight, on instances held out from training. Each instance and policy takes 16 bytes,
    for any horizon and number of arms.

    Args:
        policies: A policy, a list, or a dictionary with your own names. Each is a `Policy`, a learned one,
            a name (`"ts"`, `"softelim:theta=0.5"`, `"ts:prior"` with the problem's prior) or a policy file.
        problem: A `Problem`, a fit, a name or a TOML file.
        instances: Fresh instances to play.
        seed: Determines the instances and all draws.
        quantiles: Levels of the quantiles of regret to show, such as (0.95, 0.99): what 95 % and 99 % of
            the instances do not exceed. `Row.quantile` and `Row.cvar` compute any of them later.
        progress: Called with a policy's name and the share of its instances that is done; by default a bar
            in terminals and notebooks, with False nothing.
        **where: The `devices`, the `memory` and the `engine`: see `Where`.

    >>> from gradband import policies, problems
    >>> problem = problems.named("two-point", horizon=20)
    >>> table = evaluate([policies.Uniform(), policies.SoftElim()], problem, instances=2000)
    >>> [row.name for row in table.rows]
    ['softelim', 'uniform']
    """
    levels = check_quantiles(quantiles)
    problem = as_problem(problem)
    fresh, instances = fresh_instances(problem, instances)
    on = blocks.workers(**where)
    fresh = jax.device_put(fresh)
    size = blocks.block_size(problem.arms)
    key = prng.stream(prng.root(seed), "evaluation")
    entries = policies if isinstance(policies, Mapping) else name_policies(several(policies))
    if not entries:
        raise InputError("there is no policy to evaluate")
    rows = []
    with progress_bars.follow(
        "evaluating", progress, lambda update: progress_bars.in_turn(update, entries)
    ) as told:
        players = {name: _player(entry, problem, seed, name, told) for name, entry in entries.items()}
        for name, (policy, params) in players.items():
            began = time.perf_counter()
            report = partial(_report, told, name, instances, size) if told else None
            results = blocks.map_blocks(
                measure.regret_job(policy, fresh, params, key, instances), on, report
            )
            regrets, rewards = (blocks.join(pieces, instances) for pieces in zip(*results, strict=True))
            if fault := diagnosis.fault(policy, fresh, params, key, regrets):
                raise InputError(fault)
            rows.append(Row(name, regrets, rewards, time.perf_counter() - began))
    return Comparison(tuple(sorted(rows, key=lambda row: row.regret.mean)), levels)


def check_quantiles(levels: Sequence[float]) -> tuple[float, ...]:
    """Levels of quantiles, each between 0 and 1."""
    return tuple(_between("quantiles", level) for level in levels)


def _between(what: str, share: float) -> float:
    """A number between 0 and 1, both excluded."""
    found = number(what, share, 0, 1)
    if found in (0, 1):
        raise InputError(f"{what} must lie between 0 and 1, both excluded, not {share}")
    return found


def quantiles_by_name(row: Row, levels: Sequence[float]) -> dict[str, float]:
    """A policy's quantiles of regret and the ends of their intervals, as entries of its record."""
    entries: dict[str, float] = {}
    for level in levels:
        name, found = f"regret_q{100 * level:g}", row.quantile(level)
        entries |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
    return entries


def fresh_instances(problem: Problem, instances: int) -> tuple[Problem, int]:
    """The problem to evaluate on, and how many of the requested instances it has."""
    whole("instances", instances, least=2)
    fresh = problem.fresh()
    available = min(instances, fresh.prior.size or instances)
    if available < 2:
        raise InputError("an evaluation needs at least 2 instances: hold more of the table out")
    return fresh, available


def _report(
    progress: Callable[[str, float], None], name: str, instances: int, size: int, done: float
) -> None:
    progress(name, min(1.0, done * size / instances))


def several(policies: Given | Iterable[Given]) -> Iterable[Given]:
    """A list of the policies, if only one is given."""
    return [policies] if isinstance(policies, str | Path | Policy | WithParams) else policies


def name_policies(policies: Iterable[Given]) -> dict[str, Given]:
    """The policies by name, or by the text that named them; repeated names are numbered."""
    entries: dict[str, Given] = {}
    for entry in policies:
        if isinstance(entry, str | Path):
            name = str(entry)
        elif isinstance(entry, WithParams):
            name = entry.policy.name + ("" if entry.policy.name in TABLES else " (learned)")
        else:
            name = as_policy(entry).name
        taken = sum(known == name or known.startswith(f"{name} #") for known in entries)
        entries[f"{name} #{taken + 1}" if taken else name] = entry
    return entries


def _player(
    entry: Given,
    problem: Problem,
    seed: int,
    name: str,
    progress: Callable[[str, float], None] | None,
) -> tuple[Policy, Params]:
    """A bound policy and its parameters."""
    return given.bind(entry, problem, seed, partial(progress, f"preparing {name}") if progress else None)
