"""Kinds of panels: the units of work that each needs, and the numbers that follow."""

import dataclasses
import math
from collections.abc import Collection
from typing import Any, ClassVar, NamedTuple

from gradband.core.errors import InputError
from gradband.paper.unit import Unit

Results = dict[str, dict[str, Any]]  # by the units' labels

NAMES = {
    "exp3": "Exp3",
    "softelim": "SoftElim",
    "gittins": "Gittins index",
    "ts": "TS",
    "ucb1": "UCB1",
    "ucb-v": "UCB-V",
    "dqn": "DQN",
    "none": "b-none",
    "optimal": "b-opt",
    "self": "b-self",
}


class Series(NamedTuple):
    """A curve y(x) with half the width of a band around it; `runs` are single runs, drawn faintly.

    A curve without a standard error is exact.
    """

    name: str
    x: list[float]
    y: list[float]
    se: list[float] | None = None
    band: list[float] | None = None
    runs: tuple[list[float], ...] = ()


class Level(NamedTuple):
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
        return []

    def levels(self, results: Results) -> list[Level]:
        """Its horizontal lines."""
        return []

    def settings(self) -> str:
        """Its settings in words."""
        return ""

    def records(self, results: Results) -> list[list[Any]]:
        """All its numbers: what, series, run, x, value and standard error of each.

        If it has no curves, these are the regrets and gradients of its units.
        """
        curves = self.series(results)
        if not curves:
            return [
                [what, label, "", "", result[what], result.get("se", "")]
                for label, result in results.items()
                for what in ("regret", "gradient")
                if result.get(what) is not None
            ]
        found: list[list[Any]] = []
        for curve in curves:
            points = zip(curve.x, curve.y, curve.se or [0.0] * len(curve.x), strict=True)
            found += [["curve", curve.name, "", *point] for point in points]
        return found + [["line", name, "", "", value, se] for name, value, se in self.levels(results)]

    def row_keys(self, of: dict[str, Any]) -> dict[str, Collection[Any]]:
        """What a row beside the paper may be about: the keys of its `of`, and their values."""
        raise InputError(f"a row can't be about a {self.kind} panel")

    def measure(self, of: dict[str, Any], results: Results) -> Level:
        """The number that a row is about, with its standard error."""
        raise NotImplementedError

    def on(self, name: str = "", **size: Any) -> dict[str, Any]:
        """A problem as units have it: only what is not the default."""
        length = {"horizon": self.horizon} if self.horizon is not None else {}
        noise = {"noise": self.noise} if self.noise != "shared" else {}
        return {"name": name or self.problem, **length, **size, **noise}


def title(name: str) -> str:
    """A policy or baseline as the paper writes it."""
    return NAMES.get(name, name)


def plain(problem: dict[str, Any]) -> dict[str, Any]:
    """A problem without its `noise`, which changes no distribution of a single run."""
    return {key: problem[key] for key in problem if key != "noise"}


def benchmark(policy: str, problem: dict[str, Any], instances: int) -> Unit:
    settings = {"policy": policy, "instances": instances, "seed": 0}
    return {"do": "evaluate", "problem": plain(problem), **settings}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table(Panel):
    """Benchmarks on problems, beside the paper's numbers."""

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
        return f"{describe_instances(self.benchmarks, self.printed)}, seed 0."


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
        return found | {"optimum": {"do": "optimum", "problem": plain(self.on())}}

    def series(self, results: Results) -> list[Series]:
        curves = []
        for policy in self.policies:
            rows = [results[f"{policy}:theta={theta:g}"] for theta in self.thetas]
            se, band = ([factor * row["se"] for row in rows] for factor in (1, 1.96))
            curves.append(Series(title(policy), self.thetas, [row["regret"] for row in rows], se, band))
        if "softelim" in self.policies:
            exact = [results[f"exact softelim:theta={theta:g}"]["regret"] for theta in self.thetas]
            curves.append(Series("SoftElim, exact", self.thetas, exact))
        return curves

    def levels(self, results: Results) -> list[Level]:
        return [Level("optimum", results["optimum"]["regret"], 0.0)]

    def settings(self) -> str:
        bars = "bars: standard errors, bands: 95 % confidence"
        return f"{self.regret_instances} instances per point; {bars}."

    def row_keys(self, of: dict[str, Any]) -> dict[str, Collection[Any]]:
        return {"least": self.policies, "less": self.policies, "at": self.thetas}

    def measure(self, of: dict[str, Any], results: Results) -> Level:
        ours = [results[f"{of['least']}:theta={theta:g}"] for theta in self.thetas]
        least = min(ours, key=lambda row: row["regret"])
        other = results[f"{of['less']}:theta={of['at']:g}"]
        return Level("", least["regret"] - other["regret"], math.hypot(least["se"], other["se"]))


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
            gradients, errors = ([row[key] for row in rows] for key in ("gradient", "se"))
            bands = [1.96 * row["spread"] for row in rows]
            curves.append(Series(title(baseline), self.thetas, gradients, errors, bands))
        if self.policy == "softelim":
            truth = [results[f"exact {theta:g}"]["gradient"] for theta in self.thetas]
            curves.append(Series("exact", self.thetas, truth))
        return curves

    def settings(self) -> str:
        bars = "bars: standard errors, dotted: 95 % of estimates with m = 1"
        return f"{self.instances} instances per point; {bars}."

    def records(self, results: Results) -> list[list[Any]]:
        found = super().records(results)
        for label, result in results.items():
            if "spread" in result:
                baseline, _, theta = label.partition(" ")
                found.append(["spread (m = 1)", baseline, "", theta, result["spread"], ""])
        return found

    def row_keys(self, of: dict[str, Any]) -> dict[str, Collection[Any]]:
        return {"variance": self.baselines, "over": self.baselines, "at": self.thetas}

    def measure(self, of: dict[str, Any], results: Results) -> Level:
        top, bottom = (results[f"{of[key]} {of['at']:g}"] for key in ("variance", "over"))
        ratio = (top["spread"] / bottom["spread"]) ** 2
        return Level("", ratio, 2 * ratio * math.hypot(top["doubt"], bottom["doubt"]))


def describe_instances(benchmarks: dict[str, int], problems: Collection[str]) -> str:
    """How many instances the benchmarks of these problems had."""
    names = [name for name in dict.fromkeys(problems) if name in benchmarks]
    return ", ".join(f"{benchmarks[name]} instances of {name}" for name in names)
