"""Shares of arms as feature-flag systems take them, and counts as they export them."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradband.core import files
from gradband.core.errors import InputError, number, shown, unknown

MOST_BYTES = 1 << 24
COLUMNS = ("arm", "pulls", "successes")


def read_counts(path: str | Path) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Names, pulls [K] and successes [K] of the arms in a CSV file with the columns of `COLUMNS`."""
    try:
        text = files.read(path, MOST_BYTES).decode("utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file in UTF-8: {error}") from None
    if not rows or not set(COLUMNS) <= set(rows[0]):
        raise InputError(f"{path} must have the columns {', '.join(COLUMNS)}, and one row per arm")
    names = tuple((row["arm"] or "").strip() for row in rows)
    counts = []
    for line, row in enumerate(rows, 2):
        try:
            pulled, ones = (number(name, float(row[name] or ""), 0) for name in COLUMNS[1:])
        except ValueError:
            wrong = {name: row[name] for name in COLUMNS[1:]}
            raise InputError(
                f"{path}, line {line}: pulls and successes must be counts, not {wrong}"
            ) from None
        if ones > pulled:
            raise InputError(f"{path}, line {line}: there cannot be {ones:g} successes in {pulled:g} pulls")
        counts.append([pulled, ones])
    pulls, successes = np.array(counts).T
    return names, pulls, successes


def payload(system: str, key: str, names: Sequence[str], shares: np.ndarray) -> dict[str, Any]:
    """Settings for a feature-flag system that serves the arms with these shares.

    Args:
        system: growthbook, unleash or posthog.
        key: The flag's key.
        names: The arms' names, which are the variants' keys.
        shares: The arms' shares [K].
    """
    if system not in SYSTEMS:
        raise unknown("system", system, SYSTEMS)
    if len(names) != len(shares):
        raise InputError(f"there are {len(shares)} arms, but {len(names)} names: {shown(list(names))}")
    return SYSTEMS[system](key, list(names), shares)


def apportion(shares: np.ndarray, total: int) -> list[int]:
    """The shares as whole numbers that sum to `total`, each within 1 of its exact value.

    >>> apportion(np.array([1 / 3, 1 / 3, 1 / 3]), 1000)
    [334, 333, 333]
    """
    exact = shares / shares.sum() * total
    parts = np.floor(exact).astype(int)
    missing = total - int(parts.sum())
    parts[np.argsort(parts - exact, kind="stable")[:missing]] += 1
    return parts.tolist()


def growthbook(key: str, names: list[str], shares: np.ndarray) -> dict[str, Any]:
    """A feature with one experiment rule, as GrowthBook's SDKs read it."""
    weights = [part / 10_000 for part in apportion(shares, 10_000)]
    rule = {
        "key": key,
        "hashAttribute": "id",
        "coverage": 1,
        "variations": names,
        "weights": weights,
        "meta": [{"key": name, "name": name} for name in names],
    }
    return {"defaultValue": names[0], "rules": [rule]}


def unleash(key: str, names: list[str], shares: np.ndarray) -> dict[str, Any]:
    """An activation strategy with variants, for Unleash's admin API.

    Weights are thousandths. One variant must be variable, and gets the rest: here the largest.
    """
    parts = apportion(shares, 1000)
    largest = parts.index(max(parts))
    variants = [
        {
            "name": name,
            "weight": part,
            "weightType": "variable" if place == largest else "fix",
            "stickiness": "default",
        }
        for place, (name, part) in enumerate(zip(names, parts, strict=True))
    ]
    parameters = {"rollout": "100", "stickiness": "default", "groupId": key}
    return {"name": "flexibleRollout", "parameters": parameters, "variants": variants}


def posthog(key: str, names: list[str], shares: np.ndarray) -> dict[str, Any]:
    """The filters of a multivariate flag, for PostHog's API.

    Percentages must sum to exactly 100 in floating point, so they are multiples of 1/8.
    """
    parts = apportion(shares, 800)
    variants = [
        {"key": name, "rollout_percentage": part / 8} for name, part in zip(names, parts, strict=True)
    ]
    everyone = {"properties": [], "rollout_percentage": 100}
    return {"key": key, "filters": {"groups": [everyone], "multivariate": {"variants": variants}}}


SYSTEMS: dict[str, Callable[[str, list[str], np.ndarray], dict[str, Any]]] = {
    "growthbook": growthbook,
    "unleash": unleash,
    "posthog": posthog,
}
