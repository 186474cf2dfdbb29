"""How rows of the speed table are measured: in turns, and in environments of their own.

Each row is timed in turns, ours and the peer's, several times; the ratio is that of the best times, and its
spread is the range of the turns' own ratios. On a busy machine, trust ratios rather than seconds.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gradband.core import progress

HERE = Path(__file__).parent
progress.silence()  # a bar in a terminal takes time too
Row = dict[str, object]


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compared(turns: list[tuple[float, float]]) -> Row:
    """Best seconds of ours and of the peer, their ratio, and the least and greatest ratio of a turn."""
    mine, theirs = (min(column) for column in zip(*turns, strict=True))
    ratios = [b / a for a, b in turns]
    return {"ours": mine, "peer": theirs, "ratio": theirs / mine, "low": min(ratios), "high": max(ratios)}


def in_turns(ours: Callable[[], object], peer: Callable[[], object], repeats: int) -> Row:
    ours(), peer()  # compile
    return compared([(seconds(ours), seconds(peer)) for _ in range(repeats)])


def reported(command: list[str], **environment: str) -> dict:
    """The JSON object that a process of its own prints last."""
    variables = os.environ | environment
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=variables)
    return json.loads(ran.stdout.splitlines()[-1])


def environment(name: str, *packages: str) -> str | None:
    """The Python of an environment with these packages, made in the cache folder when first needed."""
    from gradband.core import resources

    home = resources.cache_folder(name)
    if home is None:
        return None
    python, ready = home / "bin" / "python", home / "ready"
    wanted = "\n".join(packages)
    if not ready.exists() or ready.read_text() != wanted:
        print(f"installing {', '.join(packages)} into {home}", file=sys.stderr)
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
            install = [str(python), "-m", "pip", "install", "-q", *packages]
            subprocess.run(install, check=True, stdout=sys.stderr)
            ready.write_text(wanted)
        except subprocess.CalledProcessError:
            print(f"{name} can't be installed: its rows are left out", file=sys.stderr)
            return None
    return str(python)


def torch_python() -> str | None:
    return environment("torch", "torch==2.13.0", "numpy==2.4.6")
