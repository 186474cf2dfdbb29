"""How fast a player decides, and how fast it starts.

    python benchmarks/player.py

Targets, for SoftElim with ten arms: 20 µs for a decision and its reward, 100 ms for the import.
"""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from gradband import policies
from gradband.play.playable import Playable
from gradband.play.player import Player

IMPORT = (
    "import time; began = time.perf_counter(); import gradband.play.player; "
    "print(time.perf_counter() - began)"
)


def imported(folder: str) -> float:
    """Seconds that a new process takes to import the player, NumPy included, from bytecode in a folder."""
    environ = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}
    command = [sys.executable, "-c", IMPORT]
    return float(subprocess.run(command, capture_output=True, check=True, env=environ).stdout)


def decided(name: str, arms: int, decisions: int, **params: float) -> float:
    """Seconds of a decision and its reward, after a few hundred of them."""
    policy = policies.named(name).bind(arms, 10**6)
    player = Player(Playable(policy, {key: np.array(value) for key, value in params.items()}), seed=0)
    for round in range(300 + decisions):
        if round == 300:
            began = time.perf_counter()
        player.update(player.select(), round % 3 == 0)
    return (time.perf_counter() - began) / decisions


def kept(threads: int, decisions: int) -> float:
    """Seconds of a decision and its reward if both are on disk before they return, of threads together."""
    softelim = Playable(policies.SoftElim().bind(10, 10**6), {"theta": np.array(0.5)})
    with (
        tempfile.TemporaryDirectory() as folder,
        Player(softelim, 0, journal=Path(folder, "journal")) as player,
    ):

        def decide(thread: int) -> None:
            for i in range(decisions // threads):
                player.update(player.select(), i % 3 == 0)

        began = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(decide, range(threads)))
        return (time.perf_counter() - began) / decisions


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        print(f"import {1e3 * min(imported(folder) for _ in range(6)):.0f} ms (least of 6)")
    for name, arms, decisions, params in (
        ("softelim", 10, 20_000, {"theta": 0.5}),
        ("ucb1", 10, 20_000, {}),
        ("ts", 10, 300, {}),
        ("ts", 200, 2, {}),
        ("hierarchical-ts", 10, 20, {}),
    ):
        times = [decided(name, arms, decisions, **params) for _ in range(3)]
        print(
            f"{name}, {arms} arms: {1e6 * min(times):.1f} µs (least of 3, greatest {1e6 * max(times):.1f})"
        )
    for threads in (1, 8):
        seconds = kept(threads, 800)
        print(f"softelim, 10 arms, with a journal, {threads} threads: {1e3 * seconds:.2f} ms a decision")


if __name__ == "__main__":
    main()
