"""Problems from TOML files (docs/problems.md)."""

import dataclasses
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from gradband.core import files
from gradband.core.errors import InputError, number_of_arms, shown, unknown
from gradband.problems import rewards
from gradband.problems.paper_problems import NAMED, named
from gradband.problems.priors import KINDS, Prior
from gradband.problems.problem import Problem

LARGEST_FILE = 1 << 24  # bytes of a problem file
OPTIONAL = ("pulls_per_round", "afterwards", "guardrails", "delay", "features")
OLD_KEYS = {"batch": "pulls_per_round"}


def load(source: str, arms: int | None = None, horizon: int | None = None) -> Problem:
    """A problem by its name or from a TOML file."""
    path = Path(source)
    if path.suffix != ".toml":
        if source not in NAMED:
            raise unknown("problem", source, [*NAMED, "FILE.toml"])
        return named(source, arms, horizon)
    content = files.read(path, LARGEST_FILE)
    try:
        given = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    try:
        problem = parse(given, path.parent, arms)
        return problem if horizon is None else problem.replace(horizon=horizon)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def fit_of(source: str) -> tuple[dict[str, Any], Path] | None:
    """The table `[fit]` that `gradband fit` wrote into a problem file, and the file's folder, or None.

    None also with `--arms-matter`, where there are no other priors and arms are not exchangeable.
    """
    path = Path(source)
    if path.suffix != ".toml":
        return None
    fit = tomllib.loads(files.read(path, LARGEST_FILE).decode("utf-8")).get("fit")
    if fit is None or (isinstance(fit, dict) and fit.get("chosen") == "by arm"):
        return None
    if isinstance(fit, dict) and "context" in fit and "file" not in fit:
        return None  # as earlier versions wrote it, without experiments
    if not isinstance(fit, dict) or not isinstance(fit.get("others"), list):
        raise InputError(f"{path}: the table [fit] is not as gradband fit writes it")
    columns = fit.get("context", ["1"])
    if not isinstance(columns, list) or not columns or not all(isinstance(name, str) for name in columns):
        raise InputError(f"{path}: fit.context must be a list of columns, not {shown(columns)}")
    _beside(fit.get("file"), path.parent)
    return fit, path.parent


class WithProblem(Protocol):
    """What has a problem, such as `fit` returns."""

    @property
    def problem(self) -> Problem: ...


GivenProblem = Problem | WithProblem | str | Path
"""A problem, what `gb.fit` returned, the name of a problem, or the path of a TOML file."""


def as_problem(given: object) -> Problem:
    """A problem, the one that was fitted, or the one with this name or in this file."""
    if isinstance(given, str | Path):
        return load(str(given))
    if isinstance(given, Problem):
        return given
    if isinstance(fitted := getattr(given, "problem", None), Problem):
        return fitted
    raise InputError(f"a problem must be a Problem, a fit, a name or a TOML file, not {shown(given)}")


def parse(given: dict[str, Any], folder: Path | None = None, arms: int | None = None) -> Problem:
    """A problem from the contents of a problem file; files that it names must be in `folder`."""
    if not isinstance(given, dict):
        raise InputError(f"a problem must be a dictionary, not {shown(given)}")
    given = _with_new_keys(given)
    _keys("", given, required=("horizon", "prior"), optional=("name", "noise", "rewards", *OPTIONAL, "fit"))
    paid: rewards.Reward | None = None
    if "rewards" in given:
        law, entries = _kind("rewards", given["rewards"], rewards.REWARDS)
        _keys("rewards.", entries, optional=tuple(f.name for f in dataclasses.fields(rewards.REWARDS[law])))
        paid = rewards.REWARDS[law](**entries)
    name = given.get("name", "")
    if not isinstance(name, str):
        raise InputError(f"name must be a string, not {shown(name)}")
    return Problem(
        read_prior(given["prior"], paid, lambda file: _beside(file, folder), arms=arms),
        given["horizon"],
        noise=given.get("noise", "shared"),
        name=name,
        **{key: given[key] for key in OPTIONAL if key in given},
    )


def read_prior(
    given: Any,
    paid: rewards.Reward | None,
    find: Callable[[Any], Path],
    key: str = "prior",
    arms: int | None = None,
) -> Prior:
    """The prior in a table of a problem file.

    Args:
        given: The table.
        paid: The file's rewards, or None for the prior's default.
        find: Returns the path of a file that the table names.
        key: The table's name, for errors.
        arms: A number of arms to use in place of the table's.
    """
    kind, entries = _kind(key, given, KINDS)
    required, optional = KINDS[kind].keys()
    if arms is not None:
        inner = entries.get("start")
        if "arms" in required:
            entries["arms"] = number_of_arms(arms)
        elif "start" in required and isinstance(inner, dict) and "arms" in inner:
            entries["start"] = {**inner, "arms": number_of_arms(arms)}
        else:
            raise InputError(f"the number of arms of a {kind} prior is fixed by its entries")
    _keys(f"{key}.", entries, required, optional)
    return KINDS[kind].read(entries, paid, find)


def _with_new_keys(given: dict[str, Any]) -> dict[str, Any]:
    """The entries of a problem file under their current names."""
    for old, new in OLD_KEYS.items():
        if old in given and new in given:
            raise InputError(f"the key '{old}' is the old name of '{new}': keep one of them")
    return {OLD_KEYS.get(key, key): value for key, value in given.items()}


def _beside(file: Any, folder: Path | None) -> Path:
    """The path of a file that a problem file names, inside its folder."""
    if not isinstance(file, str) or not file or folder is None:
        raise InputError(f"prior.file must be the path of a file, not {shown(file)}")
    try:
        path = (folder / file).resolve()
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"can't read prior.file, {shown(file)}: {error}") from None
    if not path.is_relative_to(folder.resolve()):
        raise InputError(f"prior.file must be in the problem file's folder, but {file} is not")
    return path


def _kind(key: str, given: Any, kinds: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """The kind that a table names, and its other entries."""
    if not isinstance(given, dict):
        raise InputError(f"{key} must be a table, [{key}], not {shown(given)}")
    kind = given.get("kind")
    if key == "prior" and kind == "resampled":
        why = "since it made arms differ too much"
        raise InputError(f"the prior kind 'resampled' was removed, {why}: run gradband fit again")
    if not isinstance(kind, str) or kind not in kinds:
        raise unknown(f"{key}.kind", kind, kinds)
    return kind, {name: value for name, value in given.items() if name != "kind"}


def _keys(
    prefix: str, given: dict[str, Any], required: tuple[str, ...] = (), optional: tuple[str, ...] = ()
) -> None:
    """Raises an error for unknown and missing keys."""
    for key in given:
        if key not in required + optional:
            raise unknown("key", f"{prefix}{key}", [prefix + name for name in required + optional])
    for key in required:
        if key not in given:
            raise InputError(f"the key '{prefix}{key}' is missing")
