"""Panels of learning curves: several runs of a policy, and benchmarks as lines (Figures 2 and 3)."""

import dataclasses
import math
from collections.abc import Collection
from typing import Any, ClassVar

import numpy as np

from gradband.core.errors import InputError
from gradband.core.statistics import Mean
from gradband.paper.panels import Level, Panel, Results, Series, benchmark, describe_instances, plain, title
from gradband.paper.unit import Unit

BOUND_SECONDS = 20  # for a bound on every regret
WHERE = ("problem", "arms", "horizon", "noise")  # settings of a curve that are about its problem


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learning(Panel):
    """Figures 2 and 3: regret over iterations, over several runs, and benchmarks as lines."""

    kind: ClassVar[str] = "learning"
    policy: str
    curves: dict[str, dict[str, Any]]
    lines: list[str]
    benchmarks: dict[str, int]
    runs: int
    evaluation: int
    final: int
    every: int
    seeds: tuple[int, ...] = ()
    dqn_runs: int = 0
    iterations: int | None = None
    batch: int | None = None
    baseline: str | None = None
    scale: str | None = None
    median: bool = False
    faint: bool = False
    note: str = ""
    """how a profile falls short of the paper"""

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise InputError(f"{self.name} needs at least one run")
        object.__setattr__(self, "seeds", self.seeds or tuple(range(self.runs)))

    def where(self, curve: str) -> dict[str, Any]:
        given = self.curves[curve]
        size = {key: given[key] for key in ("arms", "horizon") if key in given}
        own = dataclasses.replace(self, noise=given.get("noise", self.noise))
        return own.on(given.get("problem", ""), **size)

    def units(self) -> dict[str, Unit]:
        found: dict[str, Unit] = {}
        usual = {name: getattr(self, name) for name in ("iterations", "batch", "baseline", "scale")}
        how = {"evaluation": self.evaluation, "every": self.every, "final": self.final}
        for curve, given in self.curves.items():
            own = usual | {key: value for key, value in given.items() if key not in WHERE}
            own = {key: value for key, value in own.items() if value is not None}
            for seed in self.seeds:
                entry = {"problem": self.where(curve), "policy": self.policy, **own, "seed": seed}
                found[f"{curve} {seed}"] = {"do": "learn", **entry, **how}
        for problem in self.problems():
            for line in self.lines:
                found |= self.line(line, problem)
        return found

    def settings(self) -> str:
        words = [
            f"Seeds {self.seeds[0]}" + (f"–{self.seeds[-1]}" if len(self.seeds) > 1 else ""),
            f"L = {self.iterations}" if self.iterations else "",
            f"m = {self.batch}" if self.batch else "",
            f"{self.evaluation} instances per point, {self.final} at the end",
            "median of the runs" if self.median else "",
            self.note,
        ]
        there = [problem["name"] for problem in self.problems()]
        return f"{', '.join(filter(None, words))}. Lines: {describe_instances(self.benchmarks, there)}."

    def problems(self) -> list[dict[str, Any]]:
        """The problems of its curves, each once, whatever their noise."""
        there = [self.where(curve) for curve in self.curves]
        return [one for i, one in enumerate(there) if plain(one) not in map(plain, there[:i])]

    def line(self, line: str, problem: dict[str, Any]) -> dict[str, Unit]:
        """The work for a benchmark's line."""
        label = self.label(line, problem)
        if line == "optimum":
            return {label: {"do": "optimum", "problem": plain(problem)}}
        if line == "bound":
            return {label: {"do": "bound", "problem": plain(problem), "seconds": BOUND_SECONDS}}
        if line == "dqn":
            return {f"{label} {seed}": dqn(problem, seed, self.final) for seed in range(self.dqn_runs)}
        return {label: benchmark(line, problem, self.benchmarks[problem["name"]])}

    def label(self, line: str, problem: dict[str, Any]) -> str:
        """The label of a line's unit, the same whatever the noise."""
        return f"{line} on {' '.join(str(value) for value in plain(problem).values())}"

    def series(self, results: Results) -> list[Series]:
        return [self.curve(curve, results) for curve in self.curves]

    def curve(self, curve: str, results: Results) -> Series:
        """The mean of the runs with its standard error, or their median with the median's."""
        x, each, errors = self.each(curve, results)
        centre, se = (values.tolist() for values in middle(each, errors, self.median))
        return Series(curve, x, centre, se, se, tuple(each.tolist()) if self.faint else ())

    def runs_of(self, curve: str, results: Results) -> list[dict[str, Any]]:
        return [results[f"{curve} {seed}"] for seed in self.seeds]

    def each(self, curve: str, results: Results) -> tuple[list[float], np.ndarray, np.ndarray]:
        """Iterations [X], and regrets and their standard errors [R, X] of the runs there.

        A run that stopped early stays where it ended.
        """
        runs = self.runs_of(curve, results)
        points = [{point[0]: point[1:] for point in run["points"]} for run in runs]
        x = sorted({iteration for found in points for iteration in found})
        ends = [[run["regret"], run["se"]] for run in runs]
        filled = [[found.get(i, end) for i in x] for found, end in zip(points, ends, strict=True)]
        regrets, errors = np.moveaxis(np.array(filled).reshape(len(runs), len(x), 2), 2, 0)
        return [float(i) for i in x], regrets, errors

    def end(self, curve: str, results: Results) -> Level:
        """The regret at the end, over runs, on more instances."""
        runs = self.runs_of(curve, results)
        ends, errors = (np.array([[run[what]] for run in runs]) for what in ("regret", "se"))
        mean, se = middle(ends, errors, self.median)
        return Level(curve, float(mean[0]), float(se[0]))

    def stopped(self, results: Results) -> int:
        """How many runs stopped early."""
        return sum(bool(run.get("stopped")) for c in self.curves for run in self.runs_of(c, results))

    def levels(self, results: Results) -> list[Level]:
        found, problems = [], self.problems()
        for problem in problems:
            name = f", K = {problem['arms']}" if len(problems) > 1 and "arms" in problem else ""
            name += f", {problem['name']}" if len({one["name"] for one in problems}) > 1 else ""
            for line in self.lines:
                level = self.level(line, problem, results)
                found.append(level._replace(name=f"{title(line)}{name}"))
        # The optimum of distractors is the same for every K.
        alike = [level for level in found if level.name.startswith("optimum")]
        if len(alike) > 1 and np.ptp([level.value for level in alike]) < 1e-6:
            found = [level for level in found if level not in alike[1:]]
            found[found.index(alike[0])] = alike[0]._replace(name="optimum")
        return found

    def level(self, line: str, problem: dict[str, Any], results: Results) -> Level:
        """The regret of a benchmark; that of DQN is a mean over its runs."""
        label = self.label(line, problem)
        if line == "dqn":
            ends = [results[f"{label} {seed}"]["regret"] for seed in range(self.dqn_runs)]
            found = Mean.of(np.array(ends))
            return Level(line, found.mean, found.se)
        return Level(line, results[label]["regret"], 0.0 if line == "optimum" else results[label]["se"])

    def records(self, results: Results) -> list[list[Any]]:
        found = super().records(results)
        for name in self.curves:
            for seed, run in zip(self.seeds, self.runs_of(name, results), strict=True):
                found += [["run", name, seed, *point] for point in run["points"]]
                found.append(["end of run", name, seed, "", run["regret"], run["se"]])
        return found + [
            ["end of run", label, "", "", result["regret"], result["se"]]
            for label, result in results.items()
            if label.startswith("dqn on")
        ]

    def row_keys(self, of: dict[str, Any]) -> dict[str, Collection[Any]]:
        both = [*self.curves, *self.lines]
        return {"line": self.lines, "curve": self.curves, "less": both, "after": [of.get("after")]}

    def measure(self, of: dict[str, Any], results: Results) -> Level:
        if "line" in of:
            return self.level(of["line"], self.problems()[0], results)
        curve, other = of["curve"], of.get("less")
        if "after" in of:
            x, each, errors = self.each(curve, results)
            place = int(np.argmin(np.abs(np.array(x) - of["after"])))
            # Both points of a run are measured on the same instances.
            above = 100 * (each[:, [place]] / each[:, [-1]] - 1)
            mean, se = middle(above, 0 * errors[:, [-1]], median=False)
            return Level("", float(mean[0]), float(se[0]))
        end = self.end(curve, results)
        if other is None:
            return end
        if other in self.curves:
            less = self.end(other, results)
        else:
            less = self.level(other, self.where(curve), results)
        return Level("", end.value - less.value, math.hypot(end.se, less.se))


def dqn(problem: dict[str, Any], seed: int, final: int) -> Unit:
    """Learning and measuring a DQN."""
    return {"do": "learn", "problem": problem, "policy": "dqn", "seed": seed, "final": final}


def middle(each: np.ndarray, errors: np.ndarray, median: bool) -> tuple[np.ndarray, np.ndarray]:
    """The mean or median over runs [R, X], and its standard error.

    The error is at least the one that follows from the runs' own `errors` [R, X]. A median's error is that
    of a mean times √(π/2), with the spread taken from the quartiles, so that a few failed runs do not
    decide it. Two and three runs have no quartiles; the median of three has 1.16 times the error of their
    mean.
    """
    count = len(each)
    least = np.sqrt((errors**2).sum(0)) / count
    if count == 1:
        return each[0], least
    spread = each.std(0, ddof=1) * (1.16 if median and count == 3 else 1)
    if median and count > 3:
        low, high = np.quantile(each, (0.25, 0.75), axis=0, method="hazen")
        spread = np.sqrt(np.pi / 2) * (high - low) / 1.349
    centre = np.median(each, 0) if median else each.mean(0)
    return centre, np.maximum(spread / count**0.5, least)
