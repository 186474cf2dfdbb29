"""Regret of the pretrained policy beside finite-horizon Gittins indices, over arms, rounds and priors.

Both play the same instances: an arm's j-th pull has the same reward for both. A table of Gittins indices
for 2000 rounds would be too large, so they come from diagonals of states, some of which are interpolated.
Resumes after an interruption.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradband.core import resources
from gradband.policies.pretrained_index import Pretrained, moments, network, network_inputs
from gradband.solvers.compiled import compiled
from gradband.solvers.gittins import diagonal

ARMS, ROUNDS = (2, 5, 10, 20, 50, 100), (10, 50, 200, 500, 1000, 2000)
OTHERS = ((1.0, 3.0), (5.0, 5.0), (0.5, 0.5), (1.0, 30.0))
SOME_ARMS, SOME_ROUNDS = (2, 10, 50), (50, 200, 1000)
DENSE = 16  # of m rounds left, every (m / DENSE)-th diagonal is computed
SE = 0.0045  # of a ratio: more instances are played until it is below
MOST = 400_000  # instances of a cell
SHARP = math.inf  # the sharpness of a policy that pulls the arm with the greatest index


class Cell(NamedTuple):
    """A problem."""

    arms: int
    horizon: int
    a: float = 1.0
    b: float = 1.0


Indices = Callable[[np.ndarray, np.ndarray, int], np.ndarray]
"""pulls [N], ones [N] and rounds left → indices [N]"""


class Gittins:
    """Gittins indices of Beta(a, b) for up to n rounds."""

    def __init__(self, a: float, b: float, horizon: int) -> None:
        last = np.arange(1, horizon + 2 * horizon // DENSE + 4)
        depths = np.minimum(last, (DENSE + 1) * (last & -last))
        sizes = np.array([_triangle(c) - _triangle(c - d) for c, d in zip(last, depths, strict=True)])
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.values = np.empty(self.starts[-1], np.float32)

        def compute(i: int) -> None:
            c, depth = int(last[i]), int(depths[i])
            found = diagonal(a, b, c, depth)[_triangle(c - depth) :]
            self.values[self.starts[i] : self.starts[i + 1]] = found

        with ThreadPoolExecutor(resources.cores()) as pool:
            list(pool.map(compute, reversed(range(len(last)))))
        # Where row 0 of each diagonal would be.
        self.starts = self.starts[:-1] - np.array([_triangle(c) for c in last - depths])

    def __call__(self, pulls: np.ndarray, ones: np.ndarray, left: int) -> np.ndarray:
        step = 1 << max(0, math.ceil(math.log2(left / DENSE)))
        before = (pulls + left) // step * step
        share = (pulls + left - before) / step
        place = pulls * (pulls + 1) // 2 + ones
        after = np.where(share > 0, before + step, before)
        one, other = (self.values[self.starts[c - 1] + place] for c in (before, after))
        return one + share * (other - one)


def _triangle(rows: int) -> int:
    """States with fewer than so many pulls."""
    return int(rows) * (int(rows) + 1) // 2


def learned_indices(params: dict[str, Any], a: float, b: float) -> Indices:
    """The indices of a pretrained policy, whose network computes in single precision."""
    single = {name: array.astype(np.float32) for name, array in params.items()}

    def indices(pulls: np.ndarray, ones: np.ndarray, left: int) -> np.ndarray:
        counts = a + ones, b + pulls - ones, np.full(len(pulls), float(left))
        mean, spread, resolved = moments(*counts)
        return mean + spread * resolved * network(single, network_inputs(*counts).astype(np.float32))

    return indices


@compiled()
def _uniform(seed: int, instance: int, arm: int, count: int) -> float:
    """A uniform number that these four determine (SplitMix64)."""
    z = np.uint64(seed)
    for word in (instance, arm, count):
        z = (z ^ np.uint64(word)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)) / 9007199254740992.0


@compiled()
def _find(pulls: np.ndarray, ones: np.ndarray, places: np.ndarray, own: np.ndarray) -> int:
    """Numbers the distinct states, in `own` [N, 2], and returns how many there are."""
    count = 0
    for i in range(pulls.shape[0]):
        for arm in range(pulls.shape[1]):
            pulled, s = pulls[i, arm], ones[i, arm]
            at = pulled * (pulled + 1) // 2 + s
            k = places[at]
            if k >= count or own[k, 0] != pulled or own[k, 1] != s:
                places[at] = count
                own[count, 0], own[count, 1] = pulled, s
                count += 1
    return count


@compiled()
def _pull(
    pulls: np.ndarray,
    ones: np.ndarray,
    places: np.ndarray,
    index: np.ndarray,
    means: np.ndarray,
    regrets: np.ndarray,
    settings: tuple[float, float, float, int, int, int],
) -> None:
    """Pulls an arm of each instance, with probabilities by `index`, the indices of the distinct states."""
    sharpness, a, b, seed, first, t = settings
    arms = pulls.shape[1]
    weights = np.empty(arms)
    for i in range(pulls.shape[0]):
        lead = 0
        for arm in range(arms):
            weights[arm] = index[places[pulls[i, arm] * (pulls[i, arm] + 1) // 2 + ones[i, arm]]]
            if weights[arm] > weights[lead]:
                lead = arm
        best, total, spread = weights[lead], 0.0, 0.0
        for arm in range(arms):
            if weights[arm] == best:
                total_counts = a + b + pulls[i, arm]
                p = (a + ones[i, arm]) / total_counts
                spread = max(spread, math.sqrt(p * (1 - p) / (total_counts + 1)))
        for arm in range(arms):
            gap = best - weights[arm]
            weights[arm] = 1.0 if gap == 0 else math.exp(-sharpness * gap / spread)
            total += weights[arm]
        rest = _uniform(seed, first + i, arms, t) * total
        arm = 0
        while arm < arms - 1 and rest >= weights[arm]:
            rest -= weights[arm]
            arm += 1
        # Of arms with the same counts, the first is as good as any, and then both policies pull the same.
        for other in range(arm):
            if pulls[i, other] == pulls[i, arm] and ones[i, other] == ones[i, arm]:
                arm = other
                break
        reward = _uniform(seed, first + i, arm, pulls[i, arm]) < means[i, arm]
        pulls[i, arm] += 1
        ones[i, arm] += reward
        regrets[i] += means[i].max() - means[i, arm]


def play(cell: Cell, indices: Indices, sharpness: float, instances: range, seed: int = 0) -> np.ndarray:
    """Regrets [m] of a policy that plays by indices, on these instances."""
    draws = (np.random.default_rng([seed, i]).beta(cell.a, cell.b, cell.arms) for i in instances)
    means = np.array(list(draws))
    pulls, ones = (np.zeros(means.shape, np.int64) for _ in range(2))
    places = np.zeros(_triangle(cell.horizon + 1), np.int64)
    regrets = np.zeros(len(means))
    own = np.zeros((min(means.size, len(places)) + 1, 2), np.int64)
    for t in range(cell.horizon):
        count = _find(pulls, ones, places, own)
        index = indices(own[:count, 0], own[:count, 1], cell.horizon - t)
        settings = sharpness, cell.a, cell.b, seed, instances.start, t
        _pull(pulls, ones, places, index, means, regrets, settings)
    return regrets


def ratio_of(regrets: np.ndarray, reference: np.ndarray) -> tuple[float, float]:
    """The ratio of mean regrets, and its standard error."""
    ratio = regrets.mean() / reference.mean()
    rest = (regrets - ratio * reference) / reference.mean()
    return float(ratio), float(rest.std(ddof=1) / math.sqrt(len(rest)))


def measure(cell: Cell, gittins: Gittins, params: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """Regrets of both policies on the same instances, until the ratio is known precisely."""
    began, chunk = time.perf_counter(), max(1000, min(20_000, 4_000_000 // (cell.arms * cell.horizon)))
    mine, theirs = np.empty(0), np.empty(0)
    sharpness = float(params["sharpness"])
    while True:
        more = range(len(mine), len(mine) + chunk)
        own = learned_indices(params, cell.a, cell.b)
        mine = np.concatenate([mine, play(cell, own, sharpness, more, seed)])
        theirs = np.concatenate([theirs, play(cell, gittins, SHARP, more, seed)])
        ratio, se = ratio_of(mine, theirs)
        if se < SE or len(mine) >= MOST:
            break
    return {
        **cell._asdict(),
        "instances": len(mine),
        "pretrained": float(mine.mean()),
        "gittins": float(theirs.mean()),
        "gittins_se": float(theirs.std(ddof=1) / math.sqrt(len(theirs))),
        "ratio": ratio,
        "se": se,
        "seconds": round(time.perf_counter() - began, 1),
    }


def all_cells() -> list[Cell]:
    """Those of the flat prior, then some of the others; shorter horizons first."""
    found = [Cell(arms, horizon) for horizon in ROUNDS for arms in ARMS]
    return found + [Cell(k, n, a, b) for a, b in OTHERS for n in SOME_ROUNDS for k in SOME_ARMS]


def summary(rows: list[dict[str, Any]]) -> str:
    """A table of ratios for each prior, in Markdown."""
    lines = []
    for a, b in dict.fromkeys((row["a"], row["b"]) for row in rows):
        of = {(row["arms"], row["horizon"]): row for row in rows if (row["a"], row["b"]) == (a, b)}
        arms, rounds = (sorted({key[i] for key in of}) for i in (0, 1))
        lines += [f"Beta({a:g}, {b:g})", "", f"| K | {' | '.join(f'n = {n}' for n in rounds)} |"]
        lines.append(f"|---|{'---|' * len(rounds)}")
        for k in arms:
            cells = [of.get((k, n)) for n in rounds]
            shown = [f"{row['ratio']:.3f} ± {row['se']:.3f}" if row else "" for row in cells]
            lines.append(f"| {k} | {' | '.join(shown)} |")
        lines.append("")
    worst = max(rows, key=lambda row: row["ratio"], default=None)
    return "\n".join(lines) + (f"greatest ratio: {worst}" if worst else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/pretrained.jsonl"))
    parser.add_argument("--only", default="", help="arms and rounds, as 10x200,50x1000")
    parser.add_argument("--summary", action="store_true", help="only show what is there")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    params = Pretrained().stored()
    tables: dict[tuple[float, float, int], Gittins] = {}
    for cell in [] if given.summary else all_cells():
        done = [tuple(row[name] for name in Cell._fields) for row in read(given.out)]
        if cell in done or (given.only and f"{cell.arms}x{cell.horizon}" not in given.only.split(",")):
            continue
        key = cell.a, cell.b, cell.horizon
        if key not in tables:
            tables = {key: Gittins(*key)}
        row = measure(cell, tables[key], params)
        with given.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{cell}: {row['ratio']:.4f} ± {row['se']:.4f}, {row['seconds']} s", flush=True)
    print(summary(read(given.out)))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
