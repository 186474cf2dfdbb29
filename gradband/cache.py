"""The user's cache folder. Nothing heavy is imported here: every command asks for it at its start."""

import os
from pathlib import Path


def folder(name: str) -> Path | None:
    """Where to keep what can be made again, or None for a user without a home folder."""
    windows = os.environ.get("LOCALAPPDATA") if os.name == "nt" else None
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or windows or Path.home() / ".cache")
    except RuntimeError:
        return None
    return base / "gradband" / name
