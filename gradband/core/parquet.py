"""Parquet files. Each is first read in a separate process, because a damaged file can crash the reader.

Polars allocates whatever size a page claims, and Rust aborts if the allocation fails.
"""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gradband.core import resources
from gradband.core.errors import InputError
from gradband.core.extras import needs

if TYPE_CHECKING:
    import polars

SECONDS = 600
TRIAL = """
import sys
try:
    import resource
    most, hard = int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))
except (ImportError, OSError, ValueError):  # not on Windows, nor on every Unix
    pass
import polars
try:
    polars.read_parquet(sys.argv[2], columns=sys.argv[3:] or None, glob=False)
except BaseException as error:
    sys.exit(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
"""


def read(path: Path, columns: list[str] | None = None) -> "polars.DataFrame":
    """The whole file, or some of its columns."""
    try:
        import polars
    except ImportError:
        raise needs("reading Parquet", "data") from None
    # The limit is on address space, of which every thread reserves more than it uses.
    most = (resources.free_memory() or 8 << 30) + (4 << 30) + resources.cores() * (256 << 20)
    command = [sys.executable, "-P", "-c", TRIAL, str(most), str(path), *(columns or ())]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise InputError(f"reading {path.name} takes longer than {SECONDS} s") from None
    if tried.returncode:
        ended = tried.returncode < 0 or not tried.stderr.strip()
        reason = "the reader crashed on it" if ended else tried.stderr.strip().splitlines()[-1]
        wanted = f" with the columns {', '.join(columns)}" if columns else ""
        raise InputError(f"{path.name} must be a Parquet file{wanted}: {reason}")
    return polars.read_parquet(path, columns=columns, glob=False)
