"""Experiments as data: one TOML file per figure or table of the paper, in the folder `experiments`.

A file has settings for all of its panels, panels with their own settings, and in both a table for each
profile, whose settings take precedence. `rows` say which numbers of the paper to compare.
"""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from gradband.core.errors import InputError, unknown
from gradband.paper import panels, rows
from gradband.paper.curves import Learning
from gradband.paper.findings import FINDINGS
from gradband.paper.panels import Panel

PROFILES = ("quick", "paper")
ORDER = ("fig1", "fig2", "fig3", "table1", "findings")
CLASSES: tuple[type[Panel], ...] = (
    panels.Table,
    panels.RegretOverTheta,
    panels.GradientOverTheta,
    Learning,
    *FINDINGS,
)
KINDS = {panel.kind: panel for panel in CLASSES}
SIZE_LIMIT = 1 << 20
OWN = ("title", "caption", "panels", "rows", *PROFILES)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A figure or table: its panels, and the rows that compare numbers of the paper."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    rows: tuple[dict[str, Any], ...]


def papers() -> Path:
    """The folder of the paper's experiments."""
    return Path(__file__).parent / "experiments"


def load(path: Path, profile: str, seeds: tuple[int, ...] = ()) -> Experiment:
    """The experiment of a file as a profile has it, learned with other seeds if given."""
    if profile not in PROFILES:
        raise unknown("profile", profile, PROFILES)
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise InputError(f"{path} is too large for an experiment")
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror}") from None
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    try:
        return parse(path.stem, given, profile, seeds)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        missing = f"the key {error} is missing" if isinstance(error, KeyError) else error
        raise InputError(f"{path}: {missing}") from None


def parse(name: str, given: dict[str, Any], profile: str, seeds: tuple[int, ...]) -> Experiment:
    """An experiment from what its file says."""
    common = {key: given[key] for key in given if key not in OWN} | given.get(profile, {})
    found = [_panel(entry, common, profile, seeds) for entry in given["panels"]]
    for panel in found:
        panel.units()  # or an error, before any work is done
    for row in given.get("rows", ()):
        rows.check(row, {panel.name: panel for panel in found})
    known = {field.name for panel in found for field in dataclasses.fields(panel)}
    for key in common:
        if key not in known:
            raise unknown("key", key, known)
    return Experiment(name, given["title"], given["caption"], tuple(found), tuple(given.get("rows", ())))


def _panel(entry: dict[str, Any], common: dict[str, Any], profile: str, seeds: tuple[int, ...]) -> Panel:
    """A panel: its own settings come before those of all panels, and in each a profile's before others."""
    kind = KINDS.get(entry["kind"])
    if kind is None:
        raise unknown("kind of panel", entry["kind"], KINDS)
    known = {field.name for field in dataclasses.fields(kind)}
    own = {key: entry[key] for key in entry if key not in ("kind", *PROFILES)} | entry.get(profile, {})
    for key in own:
        if key not in known:
            raise unknown(f"key of {entry['name']}", key, known)
    own["minutes"] = entry["minutes"][profile]
    if seeds and kind is Learning:
        own["seeds"] = seeds
    return kind(**{key: common[key] for key in common if key in known} | own)


def exchanged(experiments: list[Experiment], own: dict[str, Panel]) -> list[Experiment]:
    """The experiments with these panels in place of those of the same names."""
    return [
        dataclasses.replace(experiment, panels=tuple(own.get(p.name, p) for p in experiment.panels))
        for experiment in experiments
    ]


def wanted(
    what: list[str], profile: str, seeds: tuple[int, ...] = (), folder: Path | None = None
) -> list[Experiment]:
    """The experiments that names of experiments or panels stand for, in the paper's order; `all` is all."""
    paths = sorted((folder or papers()).glob("*.toml"), key=lambda path: path.stem)
    paths.sort(key=lambda path: ORDER.index(path.stem) if path.stem in ORDER else len(ORDER))
    if not paths:
        raise InputError(f"there are no experiment files (*.toml) in {folder or papers()}")
    everything = [load(path, profile, seeds) for path in paths]
    names = [experiment.name for experiment in everything]
    panels = [panel.name for experiment in everything for panel in experiment.panels]
    if len({*panels}) < len(panels):
        raise InputError(f"panel names must be unique: {', '.join(sorted(panels))}")
    known = dict.fromkeys(["all", *names, *panels])
    for word in what:
        if word not in known:
            raise unknown("experiment or panel", word, known)
    found = []
    for experiment in everything:
        whole = "all" in what or experiment.name in what
        chosen = tuple(panel for panel in experiment.panels if whole or panel.name in what)
        if chosen:
            found.append(dataclasses.replace(experiment, panels=chosen))
    return found
