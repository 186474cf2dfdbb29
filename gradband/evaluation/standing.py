"""Where policies stand between Thompson sampling and the optimum."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from gradband.core import figures
from gradband.core import progress as progress_bars
from gradband.core.errors import InputError
from gradband.core.results import Result, TextTable
from gradband.core.statistics import Mean
from gradband.engine.blocks import Where, check_where
from gradband.evaluation.evaluate import (
    Comparison,
    check_quantiles,
    evaluate,
    fresh_instances,
    name_policies,
    quantiles_by_name,
    several,
)
from gradband.exact.lower_bound import Bound, bound
from gradband.exact.optimum import known_regret, optimum
from gradband.policies import UCB1, Policy, SoftElim, Uniform, references
from gradband.policies.given import Given
from gradband.problems import GivenProblem, Problem, as_problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

START = "ts"  # the policy at which the way to the optimum begins
NORMAL_START = "ts-gaussian:prior"  # if rewards are not in [0, 1]
OPTIMAL = "optimal"  # the name of the problem's optimal policy
LEAST_SECONDS = 0.2  # for a bound, even if that is more than a tenth of the time


@dataclasses.dataclass(frozen=True)
class Standing(Result):
    """Regrets of policies, and how much of the way from Thompson sampling to the optimum each covers."""

    table: Comparison
    optimum: float | None
    shares: dict[str, Mean]  # empty if the optimum or Thompson sampling's regret is unknown
    note: str = ""
    """a sentence about the optimum"""
    bound: Bound | None = None
    """on every policy's regret, if the optimum is not known"""
    between: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    """shares by name, at least and at most, if the optimum lies between a bound and the best policy"""

    @classmethod
    def of(
        cls, table: Comparison, optimum: float | None, note: str = "", bound: Bound | None = None
    ) -> "Standing":
        names = [row.name for row in table.rows]
        goal = bound.regret if optimum is None and bound is not None else optimum
        begin = beginning(names)
        if goal is None or begin not in names or table[begin].regret.mean <= goal:
            return cls(table, optimum, {}, note, bound)
        found = {name: table.share(name, begin, goal) for name in names}
        if optimum is not None:
            return cls(table, optimum, found, note)
        start, best = table[begin].regret.mean, min(row.regret.mean for row in table.rows)
        # Noise may put the best policy below the bound.
        most = max((start - goal) / (start - best), 1.0) if start > best else 1.0
        between = {name: (share.mean, share.mean * most) for name, share in found.items()}
        return cls(table, None, {}, note, bound, between)

    def without(self, name: str) -> "Standing":
        """The other policies, with the same shares."""
        return dataclasses.replace(self, table=self.table.without(name))

    @property
    def instances(self) -> int:
        """The number of instances that the policies were measured on."""
        return self.table.instances

    def in_words(self, name: str) -> str:
        """A policy's regret, and how much of the way it covers."""
        regret, start = self.table[name].regret, beginning(row.name for row in self.table.rows)
        words, way = (
            f"Its regret is {regret.mean:.4g} ± {regret.se:.2g}",
            f"the way from {start} to the optimum",
        )
        if name in self.between:
            least, most = sorted(100 * share for share in self.between[name])
            words += f": {least:.0f} to {most:.0f} % of {way}"
        elif name in self.shares:
            share = self.shares[name]
            words += f": {100 * share.mean:.0f} ± {100 * share.se:.0f} % of {way}"
        return f"{words}.{self.note}"

    def __repr__(self) -> str:
        best = "unknown" if self.optimum is None else f"{self.optimum:.4g}"
        return f"Standing(optimum {best}; {repr(self.table).partition('(')[2]}"

    def as_dict(self) -> dict[str, Any]:
        """The result as `gradband compare` writes it."""
        found = {"instances": self.instances, "optimum": self.optimum, "policies": self.records()}
        return found | {"bound": self.bound and self.bound.as_dict()}

    def records(self) -> list[dict[str, Any]]:
        rows = []
        for row in self.table.rows:
            share, regret = self.shares.get(row.name), row.regret
            covered = {"share": share and share.mean, "share_se": share and share.se}
            own = {"name": row.name, "regret": regret.mean, "se": regret.se}
            least, most = self.between.get(row.name, (None, None))
            covered |= {"share_least": least, "share_most": most}
            tail = quantiles_by_name(row, self.table.quantiles)
            rows.append({**own, **tail, **covered, "seconds": row.seconds})
        return rows

    def tables(self) -> list[TextTable]:
        own = self.as_text(f"{self.instances} instances", self.note, details=True)
        return [own, *self.table.quantile_tables()]

    def as_text(self, title: str, notes: str, details: bool = False) -> TextTable:
        """Regrets, best first, and how far each policy is on the way from ts to the optimum.

        With `details`, also how far each is from the first, and the seconds it took.
        """
        best, rows = self.table.rows[0].name, []
        for row in self.table.rows:
            cells = [figures.shortened(row.name), f"{row.regret.mean:.3f}", f"{row.regret.se:.3f}"]
            if details:
                above = self.table.difference(row.name, best)
                cells += ["", ""] if row.name == best else [f"{above.mean:.3f}", f"{above.se:.3f}"]
            cells += [share_bar(self.shares[row.name])] if self.shares else []
            cells += [interval_bar(*self.between[row.name])] if self.between else []
            rows.append(cells + ([f"{row.seconds:.2f}"] if details else []))
        columns = ["policy", "Bayes regret", "± se", *(["above the first", "± se"] if details else [])]
        start = NORMAL_START if NORMAL_START in self.shares | self.between else START
        columns += [f"from {start} to the optimum"] if self.shares or self.between else []
        return TextTable(title, columns + (["seconds"] if details else []), rows, notes)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the regrets as bars beside the optimum, with the way from ts to it in percent.

        Args:
            ax: Where to draw; new Axes by default.
        """
        axes = figures.axes_for(ax, (7.5, figures.height_of_bars(len(self.table.rows))))
        bound = None if self.bound is None else self.bound.regret
        figures.bars(axes, self.records(), self.optimum, bound)
        return axes


def beginning(names: Iterable[str]) -> str:
    """The policy among these at which the way to the optimum begins."""
    known = set(names)
    return NORMAL_START if NORMAL_START in known and START not in known else START


def share_bar(share: Mean, width: int = 10) -> str:
    """A share between 0 and 1 as a bar, and in percent with its standard error.

    >>> share_bar(Mean(0.5, 0.02), width=4)
    '██░░  50 ± 2 %'
    """
    filled = round(min(max(share.mean, 0.0), 1.0) * width)
    return f"{'█' * filled}{'░' * (width - filled)} {100 * share.mean:>3.0f} ± {100 * share.se:.0f} %"


def interval_bar(least: float, most: float, width: int = 10) -> str:
    """Shares, at least and at most, as a bar and in percent.

    >>> interval_bar(0.5, 0.75, width=4)
    '██▒░  50 to 75 %'
    """
    low, high = sorted(min(max(share, 0.0), 1.0) for share in (least, most))
    sure, filled = round(low * width), round(high * width)
    bar = f"{'█' * sure}{'▒' * (filled - sure)}{'░' * (width - filled)}"
    return f"{bar} {100 * min(least, most):>3.0f} to {100 * max(least, most):.0f} %"


def compare(
    policies: Given | Iterable[Given] | Mapping[str, Given] | None,
    problem: GivenProblem,
    *,
    instances: int = 10_000,
    seed: int = 0,
    quantiles: Sequence[float] = (),
    certify: float | None = None,
    progress: Callable[[str, float], None] | bool | None = None,
    **where: Unpack[Where],
) -> Standing:
    """Compares policies on the same instances, and with the optimum if it can be computed.

    Each policy is also shown on the way from Thompson sampling (0 %) to the optimum (100 %): as an interval
    if the optimum is only known to lie between a bound and the best policy.

    Args:
        policies: As for `evaluate`, or None for the usual ones. The name `"optimal"` is the problem's
            optimal policy.
        problem: A `Problem`, a fit, a name or a TOML file.
        instances: Fresh instances to play.
        seed: Determines the instances and all draws.
        quantiles: Levels of the quantiles of regret to show, such as (0.95, 0.99).
        certify: Seconds for a bound if the optimum cannot be computed; by default a tenth of the time that
            the comparison takes.
        progress: Called with the current work and the share of it that is done; by default a bar in
            terminals and notebooks, with False nothing.
        **where: The `devices`, the `memory` and the `engine`: see `Where`.

    >>> found = compare(["optimal", "softelim"], "two-point", instances=200)
    >>> [row.name for row in found.table.rows], round(found.optimum, 2)
    (['optimal', 'softelim'], 2.48)
    """
    check_where(where)
    levels, task = check_quantiles(quantiles), as_problem(problem)
    fresh_instances(task, instances)
    if policies is None:
        policies = usual_policies(task)
    entries: dict[str, Any] = {
        **(policies if isinstance(policies, Mapping) else name_policies(several(policies)))
    }
    with progress_bars.follow(
        "comparing", progress, lambda update: progress_bars.in_turn(update, stages(entries))
    ) as told:
        report = told or (lambda name, share: None)
        for name, entry in entries.items():
            if isinstance(entry, str) and entry == OPTIMAL:
                entries[name] = optimum(task, progress=lambda done: report(OPTIMAL, done)).playable()
        regret, note = known_optimum(task, lambda done: report("the optimum", done))
        # The way to the optimum begins at Thompson sampling, which is measured even if it is not compared.
        unasked = regret is not None and bool(entries) and START not in entries
        began = time.perf_counter()
        added = {START: START} if unasked else {}
        how: dict[str, Any] = {"instances": instances, "seed": seed, **where}
        table = evaluate(entries | added, task, **how, quantiles=levels, progress=told or False)
    limit, words = known_bound(task, regret, certify, time.perf_counter() - began)
    found = Standing.of(table, regret, f"{note}{words}", limit)
    return found.without(START) if unasked else found


def locate(
    policy: Given, name: str, problem: Problem, best: float | None, certify: float | None, **how: Any
) -> Standing:
    """Where a policy stands beside Thompson sampling, if that can play the problem.

    `best` is the optimum's regret, None if it is unknown: then a bound takes `certify` seconds, or a tenth
    of what this takes. `how` are further arguments of `evaluate`.
    """
    began = time.perf_counter()
    fair = references.fair(problem)
    start = beginning(fair)
    entries: dict[str, Any] = {start: fair[start]} if start in fair else {}
    table = evaluate(entries | {name: policy}, problem, **how)
    limit, words = known_bound(problem, best, certify, time.perf_counter() - began)
    return Standing.of(table, best, words, limit)


def stages(entries: Iterable[str]) -> list[str]:
    """The names that `compare` reports, in turn."""
    return [OPTIMAL, "the optimum", *entries, START]


def known_optimum(problem: Problem, progress: Callable[[float], None]) -> tuple[float | None, str]:
    """The regret of the optimum, or None; and a sentence about it."""
    try:
        regret = known_regret(problem, progress)
    except InputError as error:
        return None, f"No optimum to compare with: {error}."
    return regret, f"The optimum has a regret of {regret:.4f}."


def known_bound(
    problem: Problem, optimum: float | None, certify: float | None, spent: float
) -> tuple[Bound | None, str]:
    """A bound on every policy's regret where the optimum is unknown, and a sentence about it.

    It takes `certify` seconds, or a tenth of those `spent` on other work.
    """
    if optimum is not None:
        return None, ""
    try:
        found = bound(problem, seconds=max(spent / 10, LEAST_SECONDS) if certify is None else certify)
    except InputError:
        return None, ""
    error = f" ± {found.se:.2g}" if found.se else ""
    return found, f" No policy has a regret below {found.regret:.4g}{error} ({found.method})."


def usual_policies(problem: Problem) -> dict[str, Policy]:
    """The policies to compare by default."""
    if problem.prior.contextual:
        return references.fair(problem) | {"uniform": Uniform()}
    return {"softelim": SoftElim(), **references.fair(problem), "ucb1": UCB1(), "uniform": Uniform()}
