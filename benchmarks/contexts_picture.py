"""The picture in docs/contexts.md: policies on problems with contexts, and one policy on all sizes.

    python benchmarks/contexts_picture.py measure   # docs/contexts.jsonl: a quarter of an hour
    python benchmarks/contexts_picture.py draw      # docs/contexts.svg, from docs/contexts.jsonl

`measure` computes only what docs/contexts.jsonl does not have, writes each row at once, and draws. Where
the numbers of the pretrained policy have changed, it measures that policy again: two or three minutes.
Other rows are measured again with `--again`, as in `--again lin-v-ids`.
"""

import argparse
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cards import STYLE, card, error_bar, line, text, titles

DOCS = Path(__file__).parents[1] / "docs"
NUMBERS, PICTURE = DOCS / "contexts.jsonl", DOCS / "contexts.svg"
OURS = "pretrained-linear"
PROBLEMS = {
    "dpt-linear": "10 arms, 2 features, 200 rounds",
    "rvr-linear": "30 arms, 5 features, 250 rounds",
    "lin-5": "10 arms, 5 features, 200 rounds",
}
POLICIES = {
    "lin-greedy": "greedy",
    "lin-ts": "Thompson sampling",
    "lin-bayes-ucb": "Bayes-UCB",
    "lin-v-ids": "V-IDS",
    "lin-softelim": "LinSoftElim",
    "directed-softelim": "directed SoftElim",
    OURS: "pretrained",
}
LEARNED = ("lin-softelim", "directed-softelim")
RIVALS = ("lin-ts", "lin-bayes-ucb", "lin-v-ids")
SEEDS, INSTANCES, V_IDS = 5, 20_000, 4000
Rows = dict[str, dict[str, Any]]
"""rows of the file by what they are about"""

WIDTH, HEIGHT, LEFT, NAMES = 940, 684, 24, 150
TOP, ROW, COLUMN, BAR, MIDDLE = 120, 29, 254, 168, 364
PLOTS, PLOT, FLOOR, TALL, LEAST, MOST, APART = (66, 410), 312, 622, 180, 54, 102, 44
SHAPES = {"lin-ts": "triangle", "lin-bayes-ucb": "diamond", "lin-v-ids": "circle"}
MORE = """
.tick { stroke: #d5d8dd; } .even { stroke: #5a6069; stroke-dasharray: 4 3; }
.lin-ts { --c: #b0479a; } .lin-bayes-ucb { --c: #d1762b; } .lin-v-ids { --c: #2f6db5; }
.uniform { fill: var(--c); stroke: var(--c); } .normal { fill: none; stroke: var(--c); stroke-width: 1.5; }
.word { fill: var(--c); font-weight: 600; } .gap { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
.tick { stroke: #3a3f47; } .even { stroke: #a5abb4; } .gap { fill: #15171b; }
.lin-ts { --c: #cf70bb; } .lin-bayes-ucb { --c: #e2924f; } .lin-v-ids { --c: #5a97dd; } }
"""


def wanted() -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """What the file must say, and how each row is measured."""
    import sizes

    for problem in PROBLEMS:
        for policy in POLICIES:
            yield f"{policy} on {problem}", lambda p=policy, n=problem: regret_on(p, n)
        yield f"bound on {problem}", lambda n=problem: bound_of(n)
    for dims, arms in sizes.pairs():
        for kind in sizes.KINDS:
            for policy in (OURS, *RIVALS):
                what = f"{policy} on {kind} features, d = {dims}, K = {arms}"
                yield what, lambda p=policy, k=kind, d=dims, a=arms: regret_of_size(p, k, d, a)


def regret_on(policy: str, name: str) -> dict[str, Any]:
    """The regret of a policy on a named problem, as `contextual.py` measures it, over seeds."""
    import contextual

    instances = V_IDS if policy == "lin-v-ids" else INSTANCES
    text = policy + contextual.AS_IT_COMES if policy == OURS else policy
    found = [contextual.study(text, name, seed, instances)["regret"] for seed in range(SEEDS)]
    return {"regret": rounded(np.mean(found)), "se": rounded(np.std(found, ddof=1) / math.sqrt(SEEDS))}


def bound_of(name: str) -> dict[str, Any]:
    """What no policy's regret is below, if it is known."""
    import gradband as gb

    try:
        found = gb.exact.bound(name)
    except gb.InputError:
        return {"regret": None}
    return {"regret": rounded(found.regret), "se": rounded(found.se)}


def regret_of_size(policy: str, kind: str, dims: int, arms: int) -> dict[str, Any]:
    """The regret on a problem of `sizes.py`, on all instances and on those that V-IDS plays."""
    import sizes

    regrets = sizes.played(policy, kind, dims, arms)
    first = regrets[: sizes.V_IDS[arms > sizes.MANY]]
    about = {"policy": policy, "features": kind, "dims": dims, "arms": arms}
    error = regrets.std(ddof=1) / math.sqrt(len(regrets))
    return about | {"regret": rounded(regrets.mean()), "se": rounded(error), "first": rounded(first.mean())}


def rounded(value: float) -> float:
    return round(float(value), 4)


def measure(path: Path, again: list[str]) -> None:
    """Measures what the file does not have, and writes it after each row."""
    from gradband.core.files import write_text
    from gradband.policies.pretrained_linear import FILE

    version = hashlib.sha256(FILE.read_bytes()).hexdigest()[:12]
    known, rows = read(path) if path.exists() else {}, {}
    ways = dict(wanted())
    for what, row in known.items():
        policy = what.partition(" on ")[0]
        fresh = policy not in again and (policy != OURS or row["file"] == version)
        if what in ways and fresh:
            rows[what] = row
    for what, make in ways.items():
        if what in rows:
            continue
        began = time.perf_counter()
        file = {"file": version} if what.startswith(OURS) else {}
        rows[what] = {"what": what, **make(), **file}
        lines = [json.dumps(rows[each]) for each in ways if each in rows]
        write_text(path, "\n".join(lines) + "\n")
        print(f"{what}: {rows[what]['regret']}, {time.perf_counter() - began:.1f} s", flush=True)


def read(path: Path) -> Rows:
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {row["what"]: row for row in rows}


def draw(rows: Rows) -> str:
    """The picture as SVG."""
    told = [f"{what}: regret {row['regret']} ± {row['se']}" for what, row in rows.items() if row["regret"]]
    few = [words for words in told if "features" not in words]
    ratios = {rival: ratios_to(rival, rows) for rival in RIVALS}
    few += [f"{OURS} relative to {rival}: {told_of(ratios[rival])} %" for rival in RIVALS]
    drawn = _regrets(rows) + line("tick", LEFT, MIDDLE, WIDTH - LEFT, MIDDLE) + _sizes(ratios)
    return card((WIDTH, HEIGHT), few, drawn, STYLE + MORE)


def ratios_to(rival: str, rows: Rows) -> list[dict[str, Any]]:
    """The pretrained policy's regret in percent of a rival's, on the same instances, for each size."""
    found = []
    for row in rows.values():
        if row.get("policy") == rival:
            own = rows[row["what"].replace(rival, OURS)]
            which = "first" if rival == "lin-v-ids" else "regret"
            found.append(row | {"percent": 100 * own[which] / row[which]})
    return found


def told_of(ratios: list[dict[str, Any]]) -> str:
    values = [row["percent"] for row in ratios]
    return f"{np.mean(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def _regrets(rows: Rows) -> str:
    """A column of bars for each problem, with the bound on every policy's regret."""
    drawn = titles(
        LEFT,
        34,
        "Regret on three problems from the literature",
        "LinSoftElim and directed SoftElim are learned on each problem, the pretrained policy is the same "
        "file for all; ± 2 standard errors",
    )
    for place, (policy, words) in enumerate(POLICIES.items()):
        kind = "ink" if policy in (*LEARNED, OURS) else "soft"
        drawn += text(LEFT + NAMES - 10, TOP + (place + 0.5) * ROW + 5, words, kind, "end")
    for place, (problem, words) in enumerate(PROBLEMS.items()):
        start, bottom = LEFT + NAMES + COLUMN * place, TOP + ROW * len(POLICIES)
        drawn += text(start, TOP - 28, problem, "ink") + text(start, TOP - 11, words, "soft small")
        found = {policy: rows[f"{policy} on {problem}"] for policy in POLICIES}
        scale = BAR / max(
            row["regret"] for policy, row in found.items() if policy != "lin-greedy" or problem == "lin-5"
        )
        for row_place, (policy, row) in enumerate(found.items()):
            drawn += _bar(row_place, start, scale, row, "ours" if policy in (*LEARNED, OURS) else "theirs")
        drawn += line("error", start, TOP, start, bottom)
        bound = rows[f"bound on {problem}"]["regret"]
        if bound:
            x = start + scale * bound
            drawn += line("goal", x, TOP - 3, x, bottom + 3)
            drawn += text(x, bottom + 17, f"no policy is below {bound:.2f}", "best small")
    return drawn


def _bar(place: int, start: float, scale: float, row: dict[str, Any], kind: str) -> str:
    """A bar with its error and a number; one that is far too long is cut."""
    middle, long = TOP + (place + 0.5) * ROW, scale * row["regret"]
    cut = long > BAR * 1.01
    end, reach = start + (BAR if cut else long), 0 if cut else 2 * scale * row["se"]
    drawn = (
        f'<rect class="{kind}" x="{start:.1f}" y="{middle - 8:.1f}" height="16" width="{end - start:.1f}"/>'
    )
    if cut:
        x = end - 22
        corners = [(x, 11), (x + 5, 11), (x + 11, -11), (x + 6, -11)]
        points = " ".join(f"{a:.1f},{middle + b:.1f}" for a, b in corners)
        drawn += f'<polygon class="gap" points="{points}"/>'
    else:
        drawn += error_bar(end - reach, end + reach, middle)
    return drawn + text(end + reach + 8, middle + 4.5, three_digits(row["regret"]), "ink small")


def three_digits(value: float) -> str:
    """
    >>> three_digits(2.827), three_digits(13.11), three_digits(263.9)
    ('2.83', '13.1', '264')
    """
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def _sizes(ratios: dict[str, list[dict[str, Any]]]) -> str:
    """Ratios of regrets over the numbers of arms and of features."""
    drawn = titles(
        LEFT,
        MIDDLE + 32,
        "One file for all sizes: the pretrained policy’s regret in percent of others’",
        "20 pairs of arms and features that it was not learned on; features are uniform (filled) or normal "
        "(hollow)",
    )
    axes = (("arms", (5, 10, 20, 50, 100)), ("dims", (2, 3, 5, 10, 20)))
    for left, (key, ticks) in zip(PLOTS, axes, strict=True):
        for percent in (60, 70, 80, 90, 100):
            y = _height(percent)
            drawn += line("even" if percent == 100 else "tick", left, y, left + PLOT, y)
            if left == PLOTS[0]:
                drawn += text(left - 8, y + 4.5, f"{percent} %", "soft small", "end")
        for tick in ticks:
            x = _across(left, tick, ticks)
            drawn += line("tick", x, FLOOR, x, FLOOR + 5) + text(
                x, FLOOR + 20, f"{tick}", "soft small", "middle"
            )
        drawn += line("tick", left, FLOOR, left + PLOT, FLOOR)
        drawn += text(
            left + PLOT / 2, FLOOR + 42, {"arms": "arms", "dims": "features"}[key], "ink small", "middle"
        )
        for rival, rows in ratios.items():
            for row in rows:
                drawn += _dot(
                    rival, row["features"], _across(left, row[key], ticks), _height(row["percent"])
                )
    return drawn + _names(ratios)


def _names(ratios: dict[str, list[dict[str, Any]]]) -> str:
    """The rivals at the right of the plots, from the top, with the mean and the range of the ratios."""
    drawn, x, y = "", PLOTS[1] + PLOT + 28, -math.inf
    for rival in reversed(RIVALS):
        percents = [row["percent"] for row in ratios[rival]]
        y = max(_height(np.mean(percents)) - 10, y + APART)
        drawn += f'<g class="{rival}">{_mark(rival, "uniform", x - 12, y - 5)}'
        drawn += text(x, y, POLICIES[rival], "word") + "</g>"
        drawn += text(x, y + 18, f"{told_of(ratios[rival])} %", "ink small")
    return drawn


def _across(left: float, value: float, ticks: tuple[int, ...]) -> float:
    """The place on a logarithmic axis."""
    low, high = math.log(ticks[0]) - 0.12, math.log(ticks[-1]) + 0.12
    return left + PLOT * (math.log(value) - low) / (high - low)


def _height(percent: float) -> float:
    return FLOOR - TALL * (percent - LEAST) / (MOST - LEAST)


def _dot(rival: str, features: str, x: float, y: float) -> str:
    return f'<g class="{rival}">{_mark(rival, features, x, y)}</g>'


def _mark(rival: str, features: str, x: float, y: float) -> str:
    kind, shape = f'class="{features}"', SHAPES[rival]
    if shape == "circle":
        return f'<circle {kind} cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>'
    corners = [(0, -4), (3.8, 3), (-3.8, 3)] if shape == "triangle" else [(0, -4), (4, 0), (0, 4), (-4, 0)]
    points = " ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in corners)
    return f'<polygon {kind} points="{points}"/>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("measure", "draw"))
    parser.add_argument("--again", nargs="*", default=[], metavar="POLICY", help="measure these again")
    given = parser.parse_args()
    if given.what == "measure":
        measure(NUMBERS, given.again)
    PICTURE.write_text(draw(read(NUMBERS)), encoding="utf-8")


if __name__ == "__main__":
    main()
