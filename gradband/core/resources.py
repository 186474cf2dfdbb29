"""Cores, memory and cache folder of this machine. Nothing heavy is imported here."""

import os
from pathlib import Path

from gradband.core.errors import InputError

NO_CACHE = "GRADBAND_NO_CACHE"  # if set, no compiled code is kept on disk


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int | None:
    """Available bytes, within the limit of a container if there is one; None if unknown."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        found += _left_in_groups()
    except (OSError, ValueError, IndexError):
        pass
    if not found and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=None)


def _left_in_groups() -> list[int]:
    """Free bytes within the limits of this process's control groups. Cached files count as free."""
    mounted = Path("/sys/fs/cgroup")
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    group, left = mounted / own.lstrip("/"), []
    for folder in (group, *group.parents):
        limit = folder / "memory.max"
        if folder.is_relative_to(mounted) and limit.exists() and limit.read_text().strip().isdecimal():
            stored = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            used = int((folder / "memory.current").read_text()) - int(stored.get("inactive_file", 0))
            left.append(max(0, int(limit.read_text()) - used))
    return left


def in_bytes(count: float) -> str:
    """A number of bytes in words.

    >>> in_bytes(1.34e9)
    '1.3 GB'
    """
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit in ("bytes", "kB") else f"{count:.1f} {unit}"


def fits(needed: int, free: int | None) -> bool:
    """Whether a tenth of the free memory remains after this many bytes."""
    return free is None or needed <= 0.9 * free


def require(needed: int, what: str, hint: str, most: int | None = None) -> None:
    """Raises an error, before any is allocated, if more memory is needed than is free or than `most`."""
    free = min((given for given in (free_memory(), most) if given is not None), default=None)
    if free is not None and not fits(needed, free):
        raise InputError(
            f"{what} needs {in_bytes(needed)} of memory, but only {in_bytes(free)} is available: {hint}"
        )


def cache_folder(name: str) -> Path | None:
    """The folder for files that can be recomputed, or None for a user without a home folder."""
    windows = os.environ.get("LOCALAPPDATA") if os.name == "nt" else None
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or windows or Path.home() / ".cache")
    except RuntimeError:
        return None
    return base / "gradband" / name


def private_cache(name: str) -> Path | None:
    """A cache folder for code that will be run; None if others can write to it, or if it is turned off."""
    folder = None if os.environ.get(NO_CACHE) else cache_folder(name)
    try:
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.stat()
            if os.name == "nt" or (found.st_uid == os.getuid() and not found.st_mode & 0o022):
                return folder
    except OSError:
        pass
    return None
