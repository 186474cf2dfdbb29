"""Experiments as data: one TOML file per figure or table of the paper, in the folder `experiments`.

A file has settings for all of its panels, and panels with their own settings. Both may have a table for
each profile, whose settings take precedence. `rows` list the paper's numbers to compare with.
"""

import dataclasses
import tomllib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from gradband.core import files
from gradband.core.errors import InputError, unknown
from gradband.paper import panels, rows
from gradband.paper.curves import Learning
from gradband.paper.findings import FINDINGS
from gradband.paper.panels import Panel

PROFILES = ("quick", "paper")
ORDER = ("fig1", "fig2", "fig3", "table1", "findings")
OVER_THETA = (panels.RegretOverTheta, panels.GradientOverTheta)
CLASSES: tuple[type[Panel], ...] = (panels.Table, *OVER_THETA, Learning, *FINDINGS)
KINDS = {panel.kind: panel for panel in CLASSES}
SIZE_LIMIT = 1 << 20
PAPERS = Path(__file__).parent / "experiments"
OWN = ("title", "caption", "panels", "rows", *PROFILES)


class Experiment(NamedTuple):
    """A figure or table: its panels, and the rows that compare numbers of the paper."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    rows: tuple[dict[str, Any], ...]


def load(path: Path, profile: str, seeds: tuple[int, ...] = ()) -> Experiment:
    """The experiment of a file in a profile, with other seeds for learning if given."""
    _check_known("profile", [profile], PROFILES)
    text = files.read(path, SIZE_LIMIT)
    try:
        given = tomllib.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    try:
        return parse(path.stem, given, profile, seeds)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        missing = f"the key {error} is missing" if isinstance(error, KeyError) else error
        raise InputError(f"{path}: {missing}") from None


def parse(name: str, given: dict[str, Any], profile: str, seeds: tuple[int, ...]) -> Experiment:
    """An experiment from the contents of its file."""
    common = {key: given[key] for key in given if key not in OWN} | given.get(profile, {})
    found = [_panel(entry, common, profile, seeds) for entry in given["panels"]]
    for panel in found:
        panel.units()  # raises an error before any work is done
    for row in given.get("rows", ()):
        rows.check(row, {panel.name: panel for panel in found})
    _check_known("key", common, {field.name for panel in found for field in dataclasses.fields(panel)})
    return Experiment(name, given["title"], given["caption"], tuple(found), tuple(given.get("rows", ())))


def _check_known(what: str, words: Iterable[str], known: Collection[str]) -> None:
    """Raises an error for a word that is not known."""
    for word in words:
        if word not in known:
            raise unknown(what, word, known)


def _panel(entry: dict[str, Any], common: dict[str, Any], profile: str, seeds: tuple[int, ...]) -> Panel:
    """A panel: its own settings override those of all panels, and in each the profile's override others."""
    _check_known("kind of panel", [entry["kind"]], KINDS)
    kind = KINDS[entry["kind"]]
    known = {field.name for field in dataclasses.fields(kind)}
    own = {key: entry[key] for key in entry if key not in ("kind", *PROFILES)} | entry.get(profile, {})
    _check_known(f"key of {entry['name']}", own, known)
    own["minutes"] = entry["minutes"][profile]
    if seeds and kind is Learning:
        own["seeds"] = seeds
    return kind(**{key: common[key] for key in common if key in known} | own)


def panels_of(experiments: list[Experiment]) -> dict[str, Panel]:
    """All panels of these experiments, by name."""
    return {panel.name: panel for experiment in experiments for panel in experiment.panels}


def exchanged(experiments: list[Experiment], own: dict[str, Panel]) -> list[Experiment]:
    """The experiments with these panels instead of those of the same names."""
    return [e._replace(panels=tuple(own.get(p.name, p) for p in e.panels)) for e in experiments]


def wanted(
    what: list[str], profile: str, seeds: tuple[int, ...] = (), folder: Path | None = None
) -> list[Experiment]:
    """The experiments and panels of these names, in the paper's order; `all` means all of them."""
    folder = folder or PAPERS
    order = {name: place for place, name in enumerate(ORDER)}
    paths = sorted(folder.glob("*.toml"), key=lambda path: (order.get(path.stem, len(ORDER)), path.stem))
    if not paths:
        raise InputError(f"there are no experiment files (*.toml) in {folder}")
    everything = [load(path, profile, seeds) for path in paths]
    names = [experiment.name for experiment in everything]
    panels = [panel.name for experiment in everything for panel in experiment.panels]
    if len({*panels}) < len(panels):
        raise InputError(f"panel names must be unique: {', '.join(sorted(panels))}")
    _check_known("experiment or panel", what, dict.fromkeys(["all", *names, *panels]))
    found = []
    for experiment in everything:
        whole = "all" in what or experiment.name in what
        chosen = tuple(panel for panel in experiment.panels if whole or panel.name in what)
        found += [experiment._replace(panels=chosen)] if chosen else []
    return found
