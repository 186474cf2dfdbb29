"""The picture at the top of README: gains on real tests, and how near to the optimum policies are.

    python benchmarks/first_picture.py draw                  # docs/first.svg, from docs/first.toml
    python benchmarks/first_picture.py measure past.csv      # docs/first.toml: a quarter of an hour

The left half is what `benchmarks/replay.py past.csv` finds: half of the experiments are set aside, and
policies are learned on a prior that was fitted to the rest. They play the experiments that were set aside
by drawing their pulls again without replacement. Gains are paired by experiment. The right half is measured
on fresh instances of a problem whose optimum is known exactly. Policies and results are kept in OUT, so a
second call only computes what is missing.
"""

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from cards import card, error_bar, line, text, titles

DOCS = Path(__file__).parents[1] / "docs"
NUMBERS, PICTURE = DOCS / "first.toml", DOCS / "first.svg"
OURS = "kl-softelim"
RIVALS = {
    "uniform": "an equal split",
    "ucb1": "UCB1",
    "split": "split, then winner",
    "ts": "Thompson sampling",
}
LEARNED = {"softelim": "SoftElim", "kl-softelim": "KL-SoftElim", "lstm": "LSTM", "index": "index network"}
PROBLEM, INSTANCES = "uniform-2", 100_000
WIDTH, HEIGHT, TOP, ROW = 940, 316, 96, 38
HALVES, NAMES, PLOT = (24, 498), (176, 150), 150  # where the halves begin; room for names and bars


def measure_gains(data: Path, out: Path, seed: int) -> dict[str, Any]:
    """Gains per thousand pulls that came true on experiments that were put away, with standard errors."""
    import replay

    command = [sys.executable, replay.__file__, str(data), "--seed", str(seed), "--out", str(out)]
    subprocess.run([*command, "--policies", OURS], check=True)
    lines = [line for line in replay.known(out / "results.jsonl") if line["seed"] == seed]
    rows = {line["policy"]: np.array(line["real"]) for line in lines if line["horizon"] == 3000}
    gains = []
    for name, words in RIVALS.items():
        ahead = 1000 / 3000 * (rows[OURS] - rows[name])
        percent = 100 * (rows[OURS].mean() / rows[name].mean() - 1)
        gains.append({"name": name, "over": words, **error_of(ahead), "percent": round(float(percent), 2)})
    return {
        "policy": OURS,
        "tests": len(rows[OURS]),
        "arms": 4,
        "visitors": 3000,
        "batch": 100,
        "seed": seed,
        "gain": gains,
    }


def measure_regrets(out: Path, seed: int) -> dict[str, Any]:
    """Regrets of learned policies, of Thompson sampling and of the optimum."""
    import gradband as gb

    policies: dict[str, Any] = {"ts": "ts"}
    for name in LEARNED:
        file = out / f"{name}-{PROBLEM}-{seed}.safetensors"
        if not file.exists():
            gb.learn(name, PROBLEM, seed=seed).save(file)
        policies[name] = file
    table = gb.evaluate(policies, PROBLEM, instances=INSTANCES, seed=seed + 1)
    rows = [
        {
            "name": name,
            "words": ({"ts": "Thompson sampling"} | LEARNED)[name],
            **error_of(table[name].regrets),
        }
        for name in policies
    ]
    problem = gb.problems.named(PROBLEM)
    return {
        "problem": PROBLEM,
        "arms": problem.arms,
        "rounds": problem.horizon,
        "instances": INSTANCES,
        "seed": seed,
        "optimum": round(gb.exact.optimum(PROBLEM).regret, 6),
        "row": rows,
    }


def error_of(values: np.ndarray) -> dict[str, float]:
    se = values.std(ddof=1) / np.sqrt(len(values))
    return {"mean": round(float(values.mean()), 4), "se": round(float(se), 4)}


def read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def draw(numbers: dict[str, Any]) -> str:
    """The picture as SVG. It has its own background, light or dark, so that any page may show it."""
    gains, regrets = numbers["gains"], numbers["regrets"]
    told = [f"{row['mean']:.2f} ± {row['se']:.2f} more clicks than {row['over']}" for row in gains["gain"]]
    told += [f"regret of {row['words']} {row['mean']:.3f} ± {row['se']:.3f}" for row in regrets["row"]]
    return card((WIDTH, HEIGHT), told, _gains(gains) + _regrets(regrets))


def _gains(found: dict[str, Any]) -> str:
    """Extra successes per thousand pulls over each rival, and in percent."""
    rows, start = found["gain"], HALVES[0] + NAMES[0]
    scale = PLOT / max(row["mean"] + 2 * row["se"] for row in rows)
    drawn = titles(
        HALVES[0],
        34,
        "Real headline tests: extra clicks per 1000 visitors",
        f"learned from past tests, played on {found['tests']} others that it never saw;",
        f"{found['arms']} headlines, {found['visitors']} visitors, ± 2 standard errors",
    )
    for place, row in enumerate(rows):
        number = f"+{row['mean']:.2f} ({row['percent']:+.1f} %)"
        drawn += _bar(place, (start, scale), f"over {row['over']}", number, row, "ours")
    return drawn + line("error", start, TOP, start, TOP + ROW * len(rows))


def _regrets(found: dict[str, Any]) -> str:
    """Regrets above the optimum, and how much of the way from Thompson sampling to it is covered."""
    rows, best, start = found["row"], found["optimum"], HALVES[1] + NAMES[1]
    first = next(row["mean"] for row in rows if row["name"] == "ts")
    scale = PLOT / max(row["mean"] + 2 * row["se"] - best for row in rows)
    drawn = titles(
        HALVES[1],
        34,
        "How near to the exact optimum?",
        f"Bayes regret, {found['arms']} arms with uniform means, {found['rounds']} rounds;",
        f"{found['instances'] // 1000} 000 instances, ± 2 standard errors",
    )
    for place, row in enumerate(rows):
        covered = f": {100 * (first - row['mean']) / (first - best):.0f} % of the way"
        number = f"{row['mean']:.2f}{'' if row['name'] == 'ts' else covered}"
        kind = "theirs" if row["name"] == "ts" else "ours"
        above = {"mean": row["mean"] - best, "se": row["se"]}
        drawn += _bar(place, (start, scale), row["words"], number, above, kind)
    bottom = TOP + ROW * len(rows)
    words = f"optimum {best:.2f}"
    return (
        drawn + line("goal", start, TOP - 4, start, bottom) + text(start, bottom + 15, words, "best small")
    )


def _bar(
    place: int, axis: tuple[float, float], name: str, number: str, value: dict[str, float], kind: str
) -> str:
    """A row: its name, a bar with its error, and a number."""
    (start, scale), middle = axis, TOP + (place + 0.5) * ROW
    end, reach = start + scale * value["mean"], 2 * scale * value["se"]
    low = max(end - reach, start)
    return (
        text(start - 10, middle + 5, name, "ink", "end")
        + f'<rect class="{kind}" x="{start:.1f}" y="{middle - 10:.1f}" height="20" '
        f'width="{end - start:.1f}"/>'
        + error_bar(low, end + reach, middle)
        + text(end + reach + 8, middle + 5, number, "ink small")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("measure", "draw"))
    parser.add_argument("data", type=Path, nargs="?", help="past experiments, to measure")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/first"))
    given = parser.parse_args()
    if given.what == "measure":
        if given.data is None:
            parser.error("measure needs a CSV file of past experiments")
        from gradband.core.files import toml

        given.out.mkdir(parents=True, exist_ok=True)
        found = {
            "gains": measure_gains(given.data, given.out, given.seed),
            "regrets": measure_regrets(given.out, given.seed),
        }
        NUMBERS.write_text(f"# Measured by benchmarks/first_picture.py\n{toml(found)}\n", encoding="utf-8")
    PICTURE.write_text(draw(read(NUMBERS)), encoding="utf-8")


if __name__ == "__main__":
    main()
