"""A reproduction: experiments, the results of their work, and the rows and numbers that follow."""

import csv
import dataclasses
import io

from gradband.paper import rows
from gradband.paper.experiment_files import Experiment, panels_of
from gradband.paper.panels import Results, Table
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
        panels = panels_of(self.experiments)
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
        for name, panel in panels_of(self.experiments).items():
            writer.writerows([name, *record, "", ""] for record in panel.records(self.results[name]))
        for row in self.rows:
            paper = row.says if row.paper is None else row.paper
            writer.writerow([row.panel, "paper", row.what, "", "", paper, row.paper_se or "", "", ""])
            z = "" if row.z is None else row.z
            writer.writerow([row.panel, "ours", row.what, "", "", row.ours, row.se, z, row.verdict])
        return file.getvalue()


def pending(experiments: list[Experiment], store: Store) -> tuple[list[tuple[Unit, float]], int]:
    """Units that are still to do, each once, with the minutes it may take, and how many are done.

    A panel's minutes are divided among its units; learning networks takes most of them. The longest units
    come first.
    """
    found: dict[str, tuple[Unit, float]] = {}
    for panel in panels_of(experiments).values():
        units = panel.units().values()
        whole = sum(map(_weight, units))
        for unit in units:
            found.setdefault(str(store.path(unit)), (unit, panel.minutes * _weight(unit) / whole))
    to_do = [entry for entry in found.values() if store.find(entry[0]) is None]
    return sorted(to_do, key=lambda entry: -entry[1]), len(found) - len(to_do)


def _weight(unit: Unit) -> float:
    """How long a unit takes, relative to others of its panel."""
    if unit["do"] != "learn":
        return 0.05
    return 1.0 if unit["policy"].partition(":")[0] in ("lstm", "index", "dqn") else 0.1


def gather(experiments: list[Experiment], store: Store, profile: str) -> Reproduction:
    """The panels whose results are all there."""
    results: dict[str, Results] = {}
    for name, panel in panels_of(experiments).items():
        found = {label: store.find(unit) for label, unit in panel.units().items()}
        complete = {label: result for label, result in found.items() if result is not None}
        if len(complete) == len(found):
            results[name] = complete
    kept = []
    for experiment in experiments:
        panels = tuple(panel for panel in experiment.panels if panel.name in results)
        kept += [experiment._replace(panels=panels)] if panels else []
    return Reproduction(profile, kept, results)
