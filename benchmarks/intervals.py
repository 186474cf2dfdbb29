"""How often a report's intervals contain the truth, over simulated tests that a policy plays.

Tests are played side by side in arrays, and every number comes from the formulas of
`gradband.play.reporting`. Blocks of tests are stored in a file, so the script resumes after an
interruption.
"""

import argparse
import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gradband as gb
from gradband.play.reporting import intervals, scores
from gradband.play.reporting.value import value_of

CONFIDENCE = 0.95
BLOCK = 1000  # tests per block
DECAY = 0.7  # of the two-point weights: the speed at which a bad arm's probability is expected to fall
ABOUT = {
    "score": "AIPW, √e, score interval",
    "wald": "AIPW, √e, Wald interval",
    "two-point": "AIPW, two-point weights, Wald",
    "uniform": "AIPW, equal weights, Wald",
    "naive": "naive mean, Wald",
    "naive-wilson": "naive mean, Wilson",
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """A kind of test: rewards with these means are 0 or 1, or normal if they have an `sd`."""

    means: tuple[float, ...]
    rounds: int
    pulls: int  # per round
    floor: float = 0.05
    sd: float = 0.0

    def rewards(self, draws: np.random.Generator, pulls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums of the rewards of so many pulls, and of their squares."""
        if not self.sd:
            ones = draws.binomial(pulls.astype(int), self.means).astype(float)
            return ones, ones
        sums = pulls * self.means + self.sd * np.sqrt(pulls) * draws.standard_normal(pulls.shape)
        around = self.sd**2 * draws.chisquare(np.maximum(pulls - 1, 1)) * (pulls > 1)
        return sums, sums**2 / np.maximum(pulls, 1) + around


SETTINGS = {
    "clear": Setting((0.3, 0.35, 0.4), 100, 20),
    "rare": Setting((0.03, 0.04, 0.05), 100, 50),
    "equal": Setting((0.2, 0.2, 0.2), 100, 20),
    "wide": Setting((0.3, 0.3, 0.45), 100, 20),
    "two": Setting((0.5, 0.6), 1000, 1),
    "normal": Setting((0.3, 0.4, 0.5), 100, 20, sd=0.5),
}

Shares = Callable[[np.ndarray, np.ndarray], np.ndarray]


def thompson(pulls: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """P(best) [tests, K] under Beta(1, 1) priors, on a grid; decisions are drawn from just these."""
    a, b = 1 + sums, 1 + pulls - sums
    middle, spread = np.log(a / b), np.sqrt(1 / a + 1 / b)
    low, high = (middle - 6 * spread).min(1), (middle + 6 * spread).max(1)
    z = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, 160)
    below = np.logaddexp(0, -z)[:, None]
    f = -a[..., None] * below - b[..., None] * (below + z[:, None])
    f = np.exp(f - f.max(-1, keepdims=True))
    passed = np.cumsum(f, -1) - 0.5 * f
    passed = np.maximum(passed / f.sum(-1, keepdims=True), 1e-300)
    p = (f / f.sum(-1, keepdims=True) / passed * passed.prod(1, keepdims=True)).sum(-1)
    return p / p.sum(1, keepdims=True)


def learned_policy(name: str, setting: Setting) -> Shares:
    """SoftElim or the index network, learned for such tests and applied to many by JAX."""
    import jax
    import jax.numpy as jnp

    from gradband.policies.base import Counts

    arms, horizon = len(setting.means), setting.rounds * setting.pulls
    problem = gb.Problem(gb.priors.Beta(arms=arms), horizon=200)
    learned = gb.learn(name, problem, iterations=30, seed=0)
    policy: Any = dataclasses.replace(learned.policy, horizon=horizon)

    @jax.jit
    def probabilities(pulls: Any, sums: Any) -> Any:
        def one(n: Any, s: Any) -> Any:
            return jnp.exp(policy.log_probs(learned.params, Counts(n, s)))

        return jax.vmap(one)(pulls, sums)

    def shares(pulls: np.ndarray, sums: np.ndarray) -> np.ndarray:
        p = np.asarray(probabilities(pulls.astype(np.float32), sums.astype(np.float32)), float)
        fresh = (pulls == 0) & policy.opens  # arms that have to be pulled first share the round
        p = np.where(fresh.any(1, keepdims=True), fresh, p)
        return p / p.sum(1, keepdims=True)

    return shares


def two_point(t: int, rounds: int, e: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights h of round t = 1, 2, … (Hadad et al., 2021), and what they have used of the variance."""
    bad = t**-DECAY
    later = (rounds ** (1 - DECAY) - t ** (1 - DECAY)) / (1 - DECAY)
    rate = e / (rounds - t + 1) + (1 - e) * bad / (bad + later)
    part = (1 - used) * rate
    return np.sqrt(np.maximum(part * e, 0)), used + part


def wilson(pulls: np.ndarray, sums: np.ndarray) -> intervals.Interval:
    z2, n = intervals.quantile(CONFIDENCE) ** 2, np.maximum(pulls, 1)
    mean = sums / n
    half = np.sqrt(z2 * (mean * (1 - mean) + z2 / 4 / n) / n)
    return (mean + z2 / 2 / n - half) / (1 + z2 / n), (mean + z2 / 2 / n + half) / (1 + z2 / n)


class Watch:
    """What someone sees who looks after every round."""

    def __init__(self, tests: int, means: np.ndarray) -> None:
        self.means, arms = means, len(means)
        self.missed = np.zeros((tests, arms), bool)  # by an arm's own confidence sequence
        self.missed_any = np.zeros(tests, bool)  # by the sequences of all arms together
        self.naive = np.zeros((tests, arms), bool)
        self.aipw = np.zeros((tests, arms), bool)
        self.stopped = np.full(tests, -1)  # the arm that was told to have won
        self.when = np.zeros(tests)
        self.blind = np.zeros(tests, bool)  # told to have won without knowing the propensities

    def look(
        self, pulls: np.ndarray, sums: np.ndarray, totals: np.ndarray, leads: np.ndarray, round: int
    ) -> None:
        miss = 1 - CONFIDENCE
        against = intervals.evidence_against(self.means, pulls, sums)
        self.missed |= against >= math.log(1 / miss)
        self.missed_any |= (against >= math.log(len(self.means) / miss)).any(1)
        enough = pulls >= 30  # no one reports an interval of fewer
        self.naive |= enough & ~inside(naive_wald(pulls, sums, sums), self.means)
        self.aipw |= enough & ~inside(intervals.score_interval(totals, CONFIDENCE), self.means)
        leader = (sums / np.maximum(pulls, 1)).argmax(1)[:, None]
        lead = np.take_along_axis(leads, leader[:, :, None], 1)[:, 0].copy()
        np.put_along_axis(lead, leader, math.inf, 1)
        told = (lead >= math.log((len(self.means) - 1) / miss)).all(1) & (self.stopped < 0)
        self.stopped = np.where(told, leader[:, 0], self.stopped)
        self.when = np.where(told, round, self.when)
        blind = intervals.evidence_of_lead(
            np.take_along_axis(pulls, leader, 1), np.take_along_axis(sums, leader, 1), pulls, sums
        )
        np.put_along_axis(blind, leader, math.inf, 1)
        self.blind |= (blind >= math.log((len(self.means) - 1) / miss)).all(1)

    def look_at_any(
        self, pulls: np.ndarray, sums: np.ndarray, squares: np.ndarray, totals: np.ndarray
    ) -> None:
        """The same for rewards outside [0, 1]."""
        arms, enough = len(self.means), pulls >= 30
        one = intervals.normal_sequence(pulls, sums, squares, CONFIDENCE)
        low, high = intervals.normal_sequence(pulls, sums, squares, 1 - (1 - CONFIDENCE) / arms)
        self.missed |= ~inside(one, self.means)
        self.missed_any |= (~inside((low, high), self.means)).any(1)
        self.naive |= enough & ~inside(naive_wald(pulls, sums, squares), self.means)
        self.aipw |= enough & ~inside(intervals.wald_interval(totals, CONFIDENCE), self.means)
        leader = (sums / np.maximum(pulls, 1)).argmax(1)[:, None]
        others = high.copy()
        np.put_along_axis(others, leader, -math.inf, 1)
        told = (
            (np.take_along_axis(low, leader, 1)[:, 0] > others.max(1)) & enough.all(1) & (self.stopped < 0)
        )
        self.stopped = np.where(told, leader[:, 0], self.stopped)


def naive_wald(pulls: np.ndarray, sums: np.ndarray, squares: np.ndarray) -> intervals.Interval:
    n = np.maximum(pulls, 1)
    mean = sums / n
    half = intervals.quantile(CONFIDENCE) * np.sqrt(np.maximum(squares / n - mean**2, 0) / n)
    return mean - half, mean + half


def inside(found: intervals.Interval, means: np.ndarray) -> np.ndarray:
    return (found[0] <= means) & (means <= found[1])


def simulate(shares: Shares, setting: Setting, tests: int, seed: int) -> dict[str, Any]:
    """Plays tests, and returns counts of what their intervals contained."""
    draws = np.random.default_rng([seed, tests, setting.rounds])
    means, arms = np.array(setting.means), len(setting.means)
    pulls, sums, squares = np.zeros((3, tests, arms))
    totals = {name: np.zeros((len(scores.ARM_SUMS), tests, arms)) for name in ("√e", "two", "one")}
    value = np.zeros((len(scores.VALUE_SUMS), tests))
    used, watch = np.zeros((tests, arms)), Watch(tests, means)
    leads = np.zeros((tests, arms, arms))
    for t in range(1, setting.rounds + 1):
        e = setting.floor + (1 - arms * setting.floor) * shares(pulls, np.clip(sums, 0, pulls))
        e /= e.sum(1, keepdims=True)
        pulled = draws.multinomial(setting.pulls, e).astype(float)
        heard, squared = setting.rewards(draws, pulled)
        played = scores.Played(e, e, scores.plug_in_means(pulls, sums), pulled, heard, squared)
        weights, used = two_point(t, setting.rounds, e, used)
        totals["√e"] += scores.arm_sums(played)
        totals["two"] += scores.arm_sums(played, weights)
        totals["one"] += scores.arm_sums(played, np.ones_like(e))
        value += scores.value_sums(played, np.ones((tests, arms), bool))
        pulls, sums, squares = pulls + pulled, sums + heard, squares + squared
        if setting.sd:
            watch.look_at_any(pulls, sums, squares, totals["√e"])
        else:
            leads += scores.lead_sums(played)
            watch.look(pulls, sums, totals["√e"], leads, t)
    found = counts(setting, pulls, sums, squares, totals, watch)
    return found | {"value": value_coverage(value, float(means.mean()))}


def value_coverage(sums: np.ndarray, truth: float) -> dict[str, int]:
    """In how many tests the value of an equal split is within a normal quantile of its standard errors."""
    z = intervals.quantile(CONFIDENCE)
    found = [value_of(column) for column in sums.T]
    return {
        name: sum(abs(one.split[name].mean - truth) <= z * one.split[name].se for one in found if one)
        for name in ("ips", "snips", "dr")
    }


def counts(
    setting: Setting,
    pulls: np.ndarray,
    sums: np.ndarray,
    squares: np.ndarray,
    totals: dict[str, np.ndarray],
    watch: Watch,
) -> dict[str, Any]:
    means = np.array(setting.means)
    found = {
        "wald": intervals.wald_interval(totals["√e"], CONFIDENCE),
        "two-point": intervals.wald_interval(totals["two"], CONFIDENCE),
        "uniform": intervals.wald_interval(totals["one"], CONFIDENCE),
        "naive": naive_wald(pulls, sums, squares),
    }
    if not setting.sd:
        found["score"] = intervals.score_interval(totals["√e"], CONFIDENCE)
        found["naive-wilson"] = wilson(pulls, sums)
    best = means == means.max()
    wrong = (watch.stopped >= 0) & ~best[watch.stopped]
    if best.all():
        wrong = watch.stopped >= 0  # arms that are alike have no winner
    estimate, _ = intervals.aipw_estimate(totals["√e"])
    naive = sums / np.maximum(pulls, 1)
    return {
        "tests": len(pulls),
        "inside": {name: inside(pair, means).sum(0).tolist() for name, pair in found.items()},
        "widths": {name: (pair[1] - pair[0]).sum(0).tolist() for name, pair in found.items()},
        "missed": watch.missed.sum(0).tolist(),
        "missed_any": int(watch.missed_any.sum()),
        "peeked_naive": watch.naive.sum(0).tolist(),
        "peeked_aipw": watch.aipw.sum(0).tolist(),
        "stopped": int((watch.stopped >= 0).sum()),
        "wrong": int(wrong.sum()),
        "blind": int(watch.blind.sum()),
        "when": float(watch.when.sum()),
        "pulls": pulls.sum(0).tolist(),
        "bias": [(x - means).sum(0).tolist() for x in (naive, estimate)],
        "bias2": [((x - means) ** 2).sum(0).tolist() for x in (naive, estimate)],
    }


def add(a: Any, b: Any) -> Any:
    if isinstance(a, dict):
        return {key: add(a[key], b[key]) for key in a}
    if isinstance(a, list):
        return [add(x, y) for x, y in zip(a, b, strict=True)]
    return a + b


def share(count: float, tests: int) -> str:
    p = count / tests
    return f"{100 * p:6.2f} ± {100 * math.sqrt(p * (1 - p) / tests):.2f}"


def summary(rows: list[dict[str, Any]]) -> str:
    lines = []
    for setting in SETTINGS:
        for policy in ("ts", "softelim", "index"):
            mine = [row["found"] for row in rows if (row["setting"], row["policy"]) == (setting, policy)]
            if not mine:
                continue
            total = mine[0]
            for more in mine[1:]:
                total = add(total, more)
            n, means = total["tests"], SETTINGS[setting].means
            lines.append(f"\n{policy} on {setting}: means {means}, floor .05, {n} tests")
            lines.append(
                f"  {'pulls of each arm':<34}" + "".join(f"{x / n:>15.0f}" for x in total["pulls"])
            )
            for key, words in ABOUT.items():
                if key not in total["inside"]:
                    continue
                cells = "".join(f"{share(x, n):>15}" for x in total["inside"][key])
                width = "".join(f"{x / n:>8.4f}" for x in total["widths"][key])
                lines.append(f"  {words:<34}{cells}   width{width}")
            for words, bias, bias2 in zip(("naive", "AIPW"), total["bias"], total["bias2"], strict=True):
                cells = [
                    f"{1000 * b / n:+.2f} ± {1000 * math.sqrt((s / n - (b / n) ** 2) / n):.2f}"
                    for b, s in zip(bias, bias2, strict=True)
                ]
                lines.append(f"  {'bias × 1000, ' + words:<34}" + "".join(f"{cell:>15}" for cell in cells))
            for key, words in (
                ("peeked_naive", "ever missed: naive, Wald"),
                ("peeked_aipw", "ever missed: AIPW"),
                ("missed", "ever missed: always-valid"),
            ):
                lines.append(f"  {words:<34}" + "".join(f"{share(x, n):>15}" for x in total[key]))
            lines.append(f"  {'ever missed by any arm, α/K':<34}{share(total['missed_any'], n):>15}")
            for name, inside_ in total.get("value", {}).items():
                lines.append(f"  {'equal split by ' + name + ', ± 1.96 se':<34}{share(inside_, n):>15}")
            lines.append(f"  {'told to stop':<34}{share(total['stopped'], n):>15}")
            lines.append(f"  {'the same without propensities':<34}{share(total['blind'], n):>15}")
            lines.append(f"  {'told a wrong winner':<34}{share(total['wrong'], n):>15}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=int, default=10_000)
    parser.add_argument("--policies", default="ts,softelim,index")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--out", type=Path, default=Path("runs/intervals.jsonl"))
    parser.add_argument("--summary", action="store_true", help="only show what is there")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for setting in given.settings.split(","):
        for policy in given.policies.split(","):
            shares: Shares | None = None
            mine = [row for row in read(given.out) if (row["setting"], row["policy"]) == (setting, policy)]
            done = {row["seed"] for row in mine}
            for seed in set() if given.summary else sorted({*range(given.tests // BLOCK)} - done):
                if shares is None:
                    shares = thompson if policy == "ts" else learned_policy(policy, SETTINGS[setting])
                found = simulate(shares, SETTINGS[setting], BLOCK, seed)
                row = {"setting": setting, "policy": policy, "seed": seed, "found": found}
                with given.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(summary(read(given.out)))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
