"""How long a player takes to resume from a journal of many events, and how much disk that takes.

    python benchmarks/restart.py --events 10000000

Half of the events are decisions of SoftElim with ten arms, half their rewards. One process fills the
journal, a thousand decisions per write, which takes half a minute per million events. The target: 5 seconds
after ten million events.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from gradband import policies
from gradband.play import segments
from gradband.play.journal import Journal
from gradband.play.playable import Playable
from gradband.play.player import Player

AT_ONCE = 1000  # decisions per write


def fill(path: Path, playable: Playable, events: int, keep: int | None, named: bool) -> float:
    """Plays until the journal has so many events, and returns the longest pause of a write, in seconds."""
    player = Player(playable, 0, wait="1h", keep_segments=keep)
    longest, rng = 0.0, np.random.default_rng(0)
    with Journal(path, player) as journal:
        player.record = journal.append
        while journal.events < events:
            for _ in range(AT_ONCE):
                arm = player.select(f"visitor-{journal.events}" if named else None)
                player.update(arm, float(rng.random() < 0.1 + 0.02 * arm))
            began = time.perf_counter()
            journal.commit()
            longest = max(longest, time.perf_counter() - began)
    return longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keep-segments", type=int, default=1)
    parser.add_argument("--named", action="store_true", help="ids of the caller's own, which take memory")
    parser.add_argument("--folder", type=Path, help="where the journal goes (default: a temporary folder)")
    given = parser.parse_args()
    playable = Playable(policies.SoftElim().bind(10, 10**8), {"theta": np.array(0.5)})
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder, "journal.jsonl")
        began = time.perf_counter()
        pause = fill(path, playable, given.events, given.keep_segments, given.named)
        took = time.perf_counter() - began
        files = [*segments.older(path), path]
        sizes = sum(file.stat().st_size for file in files)
        began, cpu = time.perf_counter(), time.process_time()
        with Player(playable, journal=path) as player:
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            assert player.journal is not None
            print(f"{player.journal.events} events, {player.journal.segment} files written in {took:.0f} s")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"restart: {seconds:.2f} s ({cpu:.2f} s of CPU); longest pause of a write: {pause:.2f} s")
    print(f"disk: {sizes / 1e6:.0f} MB in {len(files)} files; peak memory {memory:.0f} MB")


if __name__ == "__main__":
    main()
