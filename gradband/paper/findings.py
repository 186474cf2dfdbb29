"""Places where the paper is imprecise: for each, the work that shows it, and its result."""

import dataclasses
from typing import ClassVar, NamedTuple

from gradband.paper.curves import dqn
from gradband.paper.panels import Panel, Results, benchmark
from gradband.paper.rows import z_score
from gradband.paper.unit import Unit


class Evidence(NamedTuple):
    """What was found in words, and a table of numbers."""

    words: str
    columns: list[str]
    rows: list[list[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding(Panel):
    """A panel that is shown as evidence."""

    def evidence(self, results: Results) -> Evidence:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class LemmaThree(Finding):
    """The lemma's gradient of Exp3 is biased: past 1/p in its statistics depend on θ too."""

    kind: ClassVar[str] = "lemma 3"
    thetas: list[float]

    def units(self) -> dict[str, Unit]:
        found = {}
        for theta in self.thetas:
            for how in ("exact", "lemma"):
                policy = f"exp3:theta={theta:g}+gradient={how}"
                found[f"{how} {theta:g}"] = {"do": "enumerate", "problem": self.on(), "policy": policy}
        return found

    def evidence(self, results: Results) -> Evidence:
        rows, worst = [], 0.0
        for theta in self.thetas:
            exact, lemma = (results[f"{how} {theta:g}"]["gradient"] for how in ("exact", "lemma"))
            bias = lemma / exact - 1
            worst = max(worst, abs(bias))
            rows.append([f"{theta:g}", f"{exact:.6f}", f"{lemma:.6f}", f"{100 * bias:+.1f} %"])
        words = (
            "The lemma differentiates log p with the statistics S held fixed, but S contains past 1/p, "
            f"which depend on θ. Over all histories of {self.horizon} rounds on {self.problem}, its "
            f"expectation is off by up to {100 * worst:.1f} %. gradband differentiates through the "
            "statistics, which is unbiased; --policy exp3:gradient=lemma is the paper's."
        )
        return Evidence(words, ["θ", "exact gradient", "mean of the lemma's", "bias"], rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GittinsIndex(Finding):
    """The finite-horizon Gittins index is close to the optimum, not equal to it."""

    kind: ClassVar[str] = "gittins"

    def units(self) -> dict[str, Unit]:
        there = self.on()
        return {
            "gittins": {"do": "exact", "problem": there, "policy": "gittins"},
            "optimum": {"do": "optimum", "problem": there},
        }

    def evidence(self, results: Results) -> Evidence:
        index, best = (results[name]["regret"] for name in ("gittins", "optimum"))
        words = (
            "With a finite horizon and no discount, indices are only an excellent heuristic: on "
            f"{self.problem} the Gittins policy has a regret of {index:.4f}, the optimal policy of "
            f"{best:.4f}. Both are exact, by dynamic programming."
        )
        rows = [["Gittins index", f"{index:.6f}"], ["optimal policy", f"{best:.6f}"]]
        return Evidence(words, ["policy", "exact regret"], rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opening(Finding):
    """Pulling arm 1 first, which identifies the instance, costs more than it is worth."""

    kind: ClassVar[str] = "opening"
    arms: int = 4

    def units(self) -> dict[str, Unit]:
        there = self.on(arms=self.arms)
        arms = range(1, self.arms + 1)
        openings = {f"arm {arm}": {"do": "opening", "problem": there, "arm": arm} for arm in arms}
        return {"optimum": {"do": "optimum", "problem": there}, **openings}

    def evidence(self, results: Results) -> Evidence:
        best, first = results["optimum"]["regret"], results["arm 1"]["regret"]
        rows = [["optimal policy", f"{best:.4f}"]]
        for arm in range(1, self.arms + 1):
            rows.append([f"arm {arm} first, then optimal", f"{results[f'arm {arm}']['regret']:.4f}"])
        words = (
            "The paper regrets that its RNN does not use arm 1, which identifies the instance. Ignoring "
            f"it is optimal: the optimal policy has a regret of {best:.4f}, and a policy that pulls arm 1 "
            f"first and is optimal from then on has {first:.4f}. Exact, for K = {self.arms}."
        )
        return Evidence(words, ["policy", "exact regret"], rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Thompson(Finding):
    """Two numbers for the same regret."""

    kind: ClassVar[str] = "thompson"
    instances: int
    text: list[float]
    table: list[float]

    def units(self) -> dict[str, Unit]:
        return {"ts": benchmark("ts", self.on(), self.instances)}

    def evidence(self, results: Results) -> Evidence:
        ours, se = results["ts"]["regret"], results["ts"]["se"]
        rows, far = [], []
        for where, (mean, error) in (("text", self.text), ("table", self.table)):
            z = z_score(ours, se, mean, error) or 0.0
            far.append(abs(z))
            rows.append([f"the paper's {where}", f"{mean:.2f} ± {error:.2f}", f"{z:+.1f}"])
        words = (
            f"One regret, two numbers. On {self.instances} instances we find {ours:.2f} ± {se:.2f}, closer "
            f"to the {'text' if far[0] < far[1] else 'table'}"
            f"{'; both are within the errors of the paper.' if max(far) < 2 else '.'}"
        )
        return Evidence(words, ["where", "regret of TS", "z of ours"], rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UCBVariance(Finding):
    """The exact regret of UCB-V as it is defined differs from the printed one."""

    kind: ClassVar[str] = "ucb-v"
    printed: list[float]

    def units(self) -> dict[str, Unit]:
        return {"ucb-v": {"do": "exact", "problem": self.on(), "policy": "ucb-v"}}

    def evidence(self, results: Results) -> Evidence:
        ours, (mean, error) = results["ucb-v"]["regret"], self.printed
        z = z_score(ours, 0.0, mean, error) or 0.0
        words = (
            "Its index μ̂ + √(2 V E / T) + 3 E / T with E = log 3 + 2 log t has a regret of exactly "
            f"{ours:.4f} on {self.problem}, {z:+.1f} of the paper's standard errors from its number. "
            "The paper does not say which variant it ran: these constants, which are settings of ucb-v, "
            "were chosen to match the other columns of Table 1 above."
        )
        rows = [["exact", f"{ours:.4f}"], ["the paper", f"{mean:.2f} ± {error:.2f}"]]
        return Evidence(words, ["whose", "regret of UCB-V"], rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unstable(Finding):
    """DQN's regret depends on the seed of its training."""

    kind: ClassVar[str] = "dqn"
    printed: list[float]
    runs: int
    final: int

    def units(self) -> dict[str, Unit]:
        return {f"{seed}": dqn(self.on(), seed, self.final) for seed in range(self.runs)}

    def evidence(self, results: Results) -> Evidence:
        found = [results[str(seed)] for seed in range(self.runs)]
        rows = [[f"{seed}", f"{run['regret']:.2f} ± {run['se']:.2f}"] for seed, run in enumerate(found)]
        regrets = [run["regret"] for run in found]
        words = (
            f"{self.runs} runs that differ only in their seed have regrets from {min(regrets):.2f} to "
            f"{max(regrets):.2f}; the paper has {self.printed[0]:.2f} ± {self.printed[1]:.2f}. The "
            "difference between arms is tiny beside the value of the rounds to come, so that the policy "
            "depends on when training stops. docs/references.md says more."
        )
        return Evidence(words, ["seed", "regret of DQN"], rows)


FINDINGS: tuple[type[Finding], ...] = (LemmaThree, GittinsIndex, Opening, Thompson, UCBVariance, Unstable)
