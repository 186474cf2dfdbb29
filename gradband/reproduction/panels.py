"""Kinds of panels: the units of work that each needs, and the series of numbers that come of them."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from gradband.errors import InputError
from gradband.reproduction.unit import Unit

Results = dict[str, dict[str, Any]]  # by the units' labels

WHERE = ("problem", "arms", "horizon", "noise")  # what settings of a curve say of its problem
NAMES = {
    "exp3": "Exp3",
    "softelim": "SoftElim",
    "optimum": "optimum",
    "gittins": "Gittins index",
    "ts": "TS",
    "ucb1": "UCB1",
    "ucb-v": "UCB-V",
    "dqn": "DQN",
    "none": "b-none",
    "optimal": "b-opt",
    "self": "b-self",
    "exact": "exact",
}


@dataclasses.dataclass(frozen=True)
class Series:
    """A curve y(x) with half the width of a band around it; `runs` are single ones, drawn faintly.

    A curve without a standard error is exact.
    """

    name: str
    x: list[float]
    y: list[float]
    se: list[float] | None = None
    band: list[float] | None = None
    runs: tuple[list[float], ...] = ()


@dataclasses.dataclass(frozen=True)
class Level:
    """A number that does not depend on x, with its standard error (0: exact)."""

    name: str
    value: float
    se: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panel:
    """What all kinds have: a name, a title, and the minutes it takes on two cores."""

    kind: ClassVar[str]
    name: str
    title: str
    problem: str = ""
    horizon: int | None = None
    noise: str = "shared"
    minutes: float = 1.0

    def units(self) -> dict[str, Unit]:
        """The work that it needs, by labels."""
        raise NotImplementedError

    def series(self, results: Results) -> list[Series]:
        """Its curves."""
        return []

    def levels(self, results: Results) -> list[Level]:
        """Its horizontal lines."""
        return []

    def settings(self) -> str:
        """Its settings in words."""
        return ""

    def on(self, name: str = "", **size: Any) -> dict[str, Any]:
        """A problem as a unit has it: only what is not the default."""
        length = {"horizon": self.horizon} if self.horizon is not None else {}
        noise = {"noise": self.noise} if self.noise != "shared" else {}
        return {"name": name or self.problem, **length, **size, **noise}


def title(name: str) -> str:
    """A policy or baseline as the paper writes it."""
    return NAMES.get(name, name)


def plain(problem: dict[str, Any]) -> dict[str, Any]:
    """A problem without how its arms share their noise, on which no law of a single run depends."""
    return {key: problem[key] for key in problem if key != "noise"}


def benchmark(policy: str, problem: dict[str, Any], instances: int) -> Unit:
    """The regret of a benchmark."""
    settings = {"policy": policy, "instances": instances, "seed": 0}
    return {"do": "evaluate", "problem": plain(problem), **settings}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table(Panel):
    """Benchmarks on problems, beside what the paper printed."""

    kind: ClassVar[str] = "table"
    policies: list[str]
    benchmarks: dict[str, int]
    printed: dict[str, dict[str, list[float]]]
    remarks: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    def units(self) -> dict[str, Unit]:
        return {
            f"{policy} on {problem}": benchmark(policy, self.on(problem), self.benchmarks[problem])
            for problem in self.printed
            for policy in self.policies
        }

    def settings(self) -> str:
        there = [{"name": problem} for problem in self.printed]
        return f"{describe_instances(self.benchmarks, there)}, seed 0."


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegretOverTheta(Panel):
    """Figure 1a: the regret of policies over θ."""

    kind: ClassVar[str] = "regret over theta"
    policies: list[str]
    thetas: list[float]
    regret_instances: int

    def units(self) -> dict[str, Unit]:
        found: dict[str, Unit] = {}
        for policy in self.policies:
            for theta in self.thetas:
                entry = f"{policy}:theta={theta:g}"
                found[entry] = benchmark(entry, self.on(), self.regret_instances)
                if policy == "softelim":
                    found[f"exact {entry}"] = {"do": "exact", "problem": self.on(), "policy": entry}
        return found

    def series(self, results: Results) -> list[Series]:
        curves = []
        for policy in self.policies:
            rows = [results[f"{policy}:theta={theta:g}"] for theta in self.thetas]
            se = [row["se"] for row in rows]
            curves.append(Series(title(policy), self.thetas, [row["regret"] for row in rows], se, se))
        if "softelim" in self.policies:
            exact = [results[f"exact softelim:theta={theta:g}"]["regret"] for theta in self.thetas]
            curves.append(Series("SoftElim, exact", self.thetas, exact))
        return curves

    def settings(self) -> str:
        return f"{self.regret_instances} instances a point."


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientOverTheta(Panel):
    """Figures 1b and 1c: reward gradients over θ for each baseline, and how they spread for m = 1."""

    kind: ClassVar[str] = "gradient over theta"
    policy: str
    baselines: list[str]
    thetas: list[float]
    instances: int

    def units(self) -> dict[str, Unit]:
        found: dict[str, Unit] = {}
        for theta in self.thetas:
            entry = {"problem": self.on(), "policy": f"{self.policy}:theta={theta:g}"}
            for baseline in self.baselines:
                how = {"baseline": baseline, "instances": self.instances, "seed": 0}
                found[f"{baseline} {theta:g}"] = {"do": "gradient", **entry, **how}
            if self.policy == "softelim":
                found[f"exact {theta:g}"] = {"do": "exact", **entry}
        return found

    def series(self, results: Results) -> list[Series]:
        curves = []
        for baseline in self.baselines:
            rows = [results[f"{baseline} {theta:g}"] for theta in self.thetas]
            gradients, bands = [row["gradient"] for row in rows], [1.96 * row["spread"] for row in rows]
            errors = [row["se"] for row in rows]
            curves.append(Series(title(baseline), self.thetas, gradients, errors, bands))
        if self.policy == "softelim":
            truth = [results[f"exact {theta:g}"]["gradient"] for theta in self.thetas]
            curves.append(Series("exact", self.thetas, truth))
        return curves

    def settings(self) -> str:
        return f"{self.instances} instances a point; dotted: 95 % of estimates with m = 1."


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


def describe_instances(benchmarks: dict[str, int], problems: list[dict[str, Any]]) -> str:
    """How many instances the benchmarks of these problems had."""
    names = dict.fromkeys(problem["name"] for problem in problems)
    return ", ".join(f"{benchmarks[name]} instances of {name}" for name in names if name in benchmarks)
