"""Results of units, one JSON file each, stored as soon as they are computed and found by their settings."""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gradband import __version__
from gradband.core import files
from gradband.paper.unit import Unit

SIZE_LIMIT = 1 << 24
LIBRARIES = ("jax", "jaxlib", "numba", "numpy", "optax")
NEEDED = {
    "learn": ("points", "regret", "se", "sd"),
    "evaluate": ("regret", "se", "sd"),
    "gradient": ("gradient", "se", "spread", "doubt"),
    "enumerate": ("gradient",),
}


def versions() -> dict[str, str]:
    """What a result depends on besides its settings, on one kind of machine."""
    return {"gradband": __version__} | {name: version(name) for name in LIBRARIES}


class Store:
    """A folder of results, each identified by its settings and versions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, unit: Unit) -> Path:
        known = json.dumps([unit, versions()], sort_keys=True)
        name = hashlib.sha256(known.encode()).hexdigest()[:24]
        return self.folder / f"{unit['do']}-{name}.json"

    def draft(self, unit: Unit) -> Path:
        """The file for unfinished work."""
        return self.folder / "unfinished" / self.path(unit).name

    def find(self, unit: Unit) -> dict[str, Any] | None:
        """The result of a unit and the seconds it took, or None if there is no valid one."""
        try:
            kept = json.loads(files.read(self.path(unit), SIZE_LIMIT))
            found = kept["result"] | {"seconds": float(kept["seconds"])}
            complete = all(name in found for name in NEEDED.get(unit["do"], ("regret",)))
            return found if complete and (kept["unit"], kept["versions"]) == (unit, versions()) else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    def keep(self, unit: Unit, result: dict[str, Any], seconds: float) -> None:
        """Stores a result, and only then removes the unfinished work."""
        about = {"unit": unit, "versions": versions(), "seconds": round(seconds, 3), "result": result}
        files.write_text(self.path(unit), json.dumps(about, indent=1, allow_nan=False) + "\n")
        files.forget(self.draft(unit).with_suffix(".safetensors"))
        self.draft(unit).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Removes files that were being written when a process was killed."""
        for folder in (self.folder, self.folder / "unfinished"):
            for path in folder.glob(".*.*"):
                path.unlink(missing_ok=True)
