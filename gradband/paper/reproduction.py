"""A reproduction: experiments, what their work gave, and the rows and numbers that follow."""

import csv
import dataclasses
import io
from typing import Any

from gradband.paper import rows
from gradband.paper.curves import Learning
from gradband.paper.experiment_files import Experiment
from gradband.paper.findings import Finding
from gradband.paper.panels import GradientOverTheta, Panel, Results, Table
from gradband.paper.rows import Row
from gradband.paper.store import Store
from gradband.paper.unit import Unit


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """Panels whose work is done, with the results of their units."""

    profile: str
    experiments: list[Experiment]
    results: dict[str, Results]

    @property
    def rows(self) -> list[Row]:
        """The paper's numbers and ours."""
        panels = {panel.name: panel for e in self.experiments for panel in e.panels}
        found: list[Row] = []
        for experiment in self.experiments:
            for panel in experiment.panels:
                if isinstance(panel, Table):
                    found += rows.of_table(panel, self.results[panel.name])
            for given in experiment.rows:
                if (name := given["of"]["panel"]) in panels:
                    found.append(rows.of_file(given, panels[name], self.results[name], self.profile))
        return found

    def csv(self) -> str:
        """Every number: curves, single runs, lines, cells of tables and rows beside the paper."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["panel", "what", "series", "run", "x", "value", "se", "z", "verdict"])
        for experiment in self.experiments:
            for panel in experiment.panels:
                writer.writerows(
                    [panel.name, *record, "", ""] for record in _records(panel, self.results[panel.name])
                )
        for row in self.rows:
            paper = row.says if row.paper is None else row.paper
            writer.writerow([row.panel, "paper", row.what, "", "", paper, row.paper_se or "", "", ""])
            z = "" if row.z is None else row.z
            writer.writerow([row.panel, "ours", row.what, "", "", row.ours, row.se, z, row.verdict])
        return file.getvalue()


def _records(panel: Panel, results: Results) -> list[list[Any]]:
    """What, series, run, x, value and standard error of each of a panel's numbers."""
    found: list[list[Any]] = []
    for curve in panel.series(results):
        for x, y, se in zip(curve.x, curve.y, curve.se or [0.0] * len(curve.x), strict=True):
            found.append(["curve", curve.name, "", x, y, se])
    found += [["line", level.name, "", "", level.value, level.se] for level in panel.levels(results)]
    if isinstance(panel, Learning):
        for name in panel.curves:
            for seed in panel.seeds:
                run = results[f"{name} {seed}"]
                found += [["run", name, seed, x, y, se] for x, y, se in run["points"]]
                found.append(["end of run", name, seed, "", run["regret"], run["se"]])
        learned = [label for label in results if label.startswith("dqn on")]
        found += [
            ["end of run", label, "", "", results[label]["regret"], results[label]["se"]]
            for label in learned
        ]
    elif isinstance(panel, GradientOverTheta):
        for label, result in results.items():
            if "spread" in result:
                baseline, _, theta = label.partition(" ")
                found.append(["spread (m = 1)", baseline, "", theta, result["spread"], ""])
    elif isinstance(panel, Table | Finding):
        for label, result in results.items():
            for what in ("regret", "gradient"):
                if result.get(what) is not None:
                    found.append([what, label, "", "", result[what], result.get("se", "")])
    return found


def pending(experiments: list[Experiment], store: Store) -> tuple[list[tuple[Unit, float]], int]:
    """Units that are still to do, each once, with the minutes it may take, and how many are done.

    A panel's minutes go to its units; learning networks takes most of them. What takes longest comes first.
    """
    found: dict[str, tuple[Unit, float]] = {}
    done = set()
    for experiment in experiments:
        for panel in experiment.panels:
            units = panel.units().values()
            weights = [_weight(unit) for unit in units]
            for unit, weight in zip(units, weights, strict=True):
                place = str(store.path(unit))
                if place in found or place in done:
                    continue
                if store.find(unit) is None:
                    found[place] = unit, panel.minutes * weight / sum(weights)
                else:
                    done.add(place)
    return sorted(found.values(), key=lambda entry: -entry[1]), len(done)


def _weight(unit: Unit) -> float:
    """How long a unit takes, beside others of its panel."""
    if unit["do"] != "learn":
        return 0.05
    return 1.0 if unit["policy"].partition(":")[0] in ("lstm", "index", "dqn") else 0.1


def gather(experiments: list[Experiment], store: Store, profile: str) -> Reproduction:
    """What is done: panels with all of their results."""
    results: dict[str, Results] = {}
    kept = []
    for experiment in experiments:
        panels = []
        for panel in experiment.panels:
            found = {label: store.find(unit) for label, unit in panel.units().items()}
            complete = {label: result for label, result in found.items() if result is not None}
            if len(complete) == len(found):
                results[panel.name] = complete
                panels.append(panel)
        if panels:
            kept.append(dataclasses.replace(experiment, panels=tuple(panels)))
    return Reproduction(profile, kept, results)
