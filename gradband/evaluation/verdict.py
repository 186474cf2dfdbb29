"""A verdict on the learned policy, and what to try if it is not better."""

import dataclasses
from typing import Any

from gradband.core.statistics import Mean
from gradband.evaluation.evaluate import Comparison
from gradband.policies import DirectedSoftElim
from gradband.problems import Problem

SURE = 2.0  # smaller differences, in standard errors, do not count


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How much regret a learned policy saves against each other row, paired by instance."""

    policy: str
    before: str
    savings: dict[str, Mean]
    instances: int
    best: str  # the reference with the least regret; empty if there is none

    @classmethod
    def of(cls, table: Comparison, policy: str, learned: str, before: str) -> "Verdict":
        """From a comparison with the policy's rows, by their names, and references."""
        others = [row.name for row in table.rows if row.name != learned]  # sorted by regret
        savings = {name: table.difference(name, learned) for name in others}
        best = next((name for name in others if name != before), "")
        return cls(policy, before, savings, len(table.rows[0].regrets), best)

    def grade(self, name: str) -> str:
        """Whether the learned policy is better, worse or alike, compared with a row."""
        saved = self.savings[name]
        if abs(saved.mean) <= SURE * saved.se or saved.mean == 0:
            return "alike"
        return "better" if saved.mean > 0 else "worse"

    def in_numbers(self) -> dict[str, Any]:
        return {
            name: {"saves": saved.mean, "se": saved.se, "verdict": self.grade(name)}
            for name, saved in self.savings.items()
        }

    def in_words(self, problem: Problem) -> str:
        words = [self._on_before()]
        for grade, start in (
            ("better", "It is better than"),
            ("alike", "It is no better than"),
            ("worse", "It is worse than"),
        ):
            found = [
                f"{name} ({_more(saved)})"
                for name, saved in self.savings.items()
                if name != self.before and self.grade(name) == grade
            ]
            words += [f"{start} {', '.join(found)}."] if found else []
        return " ".join(words + self._advice(problem))

    def _on_before(self) -> str:
        saved, grade = self.savings[self.before], self.grade(self.before)
        if saved.mean == 0 and saved.se == 0:
            return "Learning changed nothing: it found nothing better than its start."
        numbers = f"paired, {self.instances} fresh instances"
        if grade == "alike":
            return (
                f"Learning made no difference beyond noise: it saves {saved} regret ({numbers}), so the "
                "policy is as good as before."
            )
        if grade == "worse":
            return f"The policy is worse than before: it has {_more(saved)} ({numbers})."
        return f"The policy is better than before: learning saves {saved} regret ({numbers})."

    def _advice(self, problem: Problem) -> list[str]:
        """What to use and what to try if a reference is as good or better."""
        if not self.best or self.grade(self.best) == "better":
            better = self.grade(self.before) == "better"
            return [] if better else ["More instances (--instances) may show a difference."]
        if problem.prior.contextual:
            model = ":model=by-arm" if problem.prior.shares_context else ""
            usual = "by-group" if problem.prior.in_groups else f"{DirectedSoftElim.name}{model}"
            other = f"--policy {usual}, " * (self.policy != usual.partition(":")[0])
            return [f"Use {self.best} instead, or try {other}more instances (--instances)."]
        kind = "discounted-" if problem.prior.moves else ""  # forgetting pays where means move
        network = self.policy in ("lstm", "index", f"{kind}index")
        ideas = []
        if problem.unit and self.policy not in (f"{kind}kl-softelim", f"{kind}index"):
            ideas.append(f"--policy {kind}kl-softelim")
        if self.policy != f"{kind}index":
            ideas.append(f"--policy {kind}index")
        one_by_one = problem.pulls_per_round == 1 and problem.delay is None
        if network and not kind and problem.unit and one_by_one:
            ideas.append("--imitate gittins")
        ideas.append("more instances (--instances)" if not network else "more iterations (--iterations)")
        return [f"Use {self.best} instead, or try {', '.join(ideas)}."]


def _more(saved: Mean) -> str:
    return f"{abs(saved.mean):.3f} ± {saved.se:.3f} {'less' if saved.mean >= 0 else 'more'} regret"
