"""Panels of learning curves: several runs of a policy, and benchmarks as lines (Figures 2 and 3)."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from gradband.core.errors import InputError
from gradband.paper.panels import Level, Panel, Results, Series, benchmark, describe_instances, plain, title
from gradband.paper.unit import Unit

WHERE = ("problem", "arms", "horizon", "noise")  # what settings of a curve say of its problem


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
    """what a profile has less of than the paper"""

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise InputError(f"{self.name} needs at least one run")
        object.__setattr__(self, "seeds", self.seeds or tuple(range(self.runs)))

    def where(self, curve: str) -> dict[str, Any]:
        """The problem of a curve."""
        given = self.curves[curve]
        size = {key: given[key] for key in ("arms", "horizon") if key in given}
        own = dataclasses.replace(self, noise=given.get("noise", self.noise))
        return own.on(given.get("problem", ""), **size)

    def units(self) -> dict[str, Unit]:
        found: dict[str, Unit] = {}
        for curve in self.curves:
            own = self.how(curve)
            how = {"evaluation": self.evaluation, "every": self.every, "final": self.final}
            for seed in self.seeds:
                entry = {"problem": self.where(curve), "policy": self.policy, **own, "seed": seed}
                found[f"{curve} {seed}"] = {"do": "learn", **entry, **how}
        for problem in self.problems():
            for line in self.lines:
                found |= self.line(line, problem)
        return found

    def how(self, curve: str) -> dict[str, Any]:
        """The settings of `learn` for a curve."""
        usual = {name: getattr(self, name) for name in ("iterations", "batch", "baseline", "scale")}
        own = {k: v for k, v in self.curves[curve].items() if k not in WHERE}
        return {k: v for k, v in (usual | own).items() if v is not None}

    def settings(self) -> str:
        seeds = f"{self.seeds[0]}–{self.seeds[-1]}" if len(self.seeds) > 1 else str(self.seeds[0])
        words = [f"Seeds {seeds}"]
        words += [f"L = {self.iterations}"] if self.iterations else []
        words += [f"m = {self.batch}"] if self.batch else []
        words.append(f"{self.evaluation} instances a point, {self.final} at the end")
        words += ["median of the runs"] if self.median else []
        words += [self.note] if self.note else []
        return f"{', '.join(words)}. Lines: {describe_instances(self.benchmarks, self.problems())}."

    def problems(self) -> list[dict[str, Any]]:
        """The problems of its curves, each once, whatever their noise."""
        found: list[dict[str, Any]] = []
        for curve in self.curves:
            there = self.where(curve)
            if plain(there) not in map(plain, found):
                found.append(there)
        return found

    def line(self, line: str, problem: dict[str, Any]) -> dict[str, Unit]:
        """The work for a benchmark's line."""
        label = self.label(line, problem)
        if line == "optimum":
            return {label: {"do": "optimum", "problem": plain(problem)}}
        if line == "dqn":
            return {f"{label} {seed}": dqn(problem, seed, self.final) for seed in range(self.dqn_runs)}
        return {label: benchmark(line, problem, self.benchmarks[problem["name"]])}

    def label(self, line: str, problem: dict[str, Any]) -> str:
        return f"{line} on {' '.join(str(value) for value in plain(problem).values())}"

    def series(self, results: Results) -> list[Series]:
        return [self.curve(curve, results) for curve in self.curves]

    def curve(self, curve: str, results: Results) -> Series:
        """The mean of the runs with its standard error, or their median with the median's."""
        x, each, errors = self.each(curve, results)
        mean, se = middle(each, errors, self.median)
        single = tuple(row.tolist() for row in each) if self.faint else ()
        return Series(curve, x, mean.tolist(), se.tolist(), se.tolist(), single)

    def each(self, curve: str, results: Results) -> tuple[list[float], np.ndarray, np.ndarray]:
        """Iterations [X], and regrets and their standard errors [R, X] of the runs there.

        A run that stopped early stays where it ended.
        """
        runs = [results[f"{curve} {seed}"] for seed in self.seeds]
        points = [{point[0]: point[1:] for point in run["points"]} for run in runs]
        x = sorted({iteration for found in points for iteration in found})
        filled = np.array(
            [
                [found.get(i, [run["regret"], run["se"]]) for i in x]
                for found, run in zip(points, runs, strict=True)
            ]
        ).reshape(len(runs), len(x), 2)
        return [float(i) for i in x], filled[:, :, 0], filled[:, :, 1]

    def end(self, curve: str, results: Results) -> Level:
        """The regret at the end, over runs, on more instances."""
        ends, errors = (
            np.array([[results[f"{curve} {seed}"][what]] for seed in self.seeds])
            for what in ("regret", "se")
        )
        mean, se = middle(ends, errors, self.median)
        return Level(curve, float(mean[0]), float(se[0]))

    def stopped(self, results: Results) -> int:
        """How many runs stopped early."""
        return sum(bool(results[f"{c} {seed}"].get("stopped")) for c in self.curves for seed in self.seeds)

    def levels(self, results: Results) -> list[Level]:
        found = []
        for problem in self.problems():
            for line in self.lines:
                size = f", K = {problem['arms']}" if len(self.problems()) > 1 and "arms" in problem else ""
                other = f", {problem['name']}" if len({p["name"] for p in self.problems()}) > 1 else ""
                level = self.level(line, problem, results)
                found.append(dataclasses.replace(level, name=f"{title(line)}{size}{other}"))
        # The optimum of distractors is the same for every K.
        alike = [level for level in found if level.name.startswith("optimum")]
        if len(alike) > 1 and np.ptp([level.value for level in alike]) < 1e-6:
            found = [level for level in found if level not in alike[1:]]
            found[found.index(alike[0])] = dataclasses.replace(alike[0], name="optimum")
        return found

    def level(self, line: str, problem: dict[str, Any], results: Results) -> Level:
        label = self.label(line, problem)
        if line == "optimum":
            return Level(line, results[label]["regret"], 0.0)
        if line == "dqn":
            ends = np.array([results[f"{label} {seed}"]["regret"] for seed in range(self.dqn_runs)])
            return Level(line, float(ends.mean()), float(ends.std(ddof=1) / len(ends) ** 0.5))
        return Level(line, results[label]["regret"], results[label]["se"])


def dqn(problem: dict[str, Any], seed: int, final: int) -> Unit:
    """A DQN, learned and measured."""
    return {"do": "learn", "problem": problem, "policy": "dqn", "seed": seed, "final": final}


def middle(each: np.ndarray, errors: np.ndarray, median: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean over runs [R, X] and its standard error, or the median and that of the median.

    Both are at least what the runs' own `errors` [R, X] make them. A median's error is that of a mean times
    √(π/2), with the spread taken from the quartiles, so that a few failed runs do not decide it. Two and
    three runs have no quartiles; the median of three has 1.16 times the error of their mean.
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
