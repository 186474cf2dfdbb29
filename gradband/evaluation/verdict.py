"""A verdict on the learned policy in words, and what to try if it is not better."""

import dataclasses
from typing import Any

from gradband.core.statistics import Mean
from gradband.evaluation.evaluate import Comparison
from gradband.problems import Problem

SURE = 2.0  # standard errors from which on a difference counts


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How much regret a learned policy saves against each other row, paired by instance."""

    policy: str
    before: str
    savings: dict[str, Mean]
    instances: int
    best: str
    """the reference with the least regret; empty if there is none"""

    @classmethod
    def of(cls, table: Comparison, policy: str, learned: str, before: str) -> "Verdict":
        """From a comparison in which the policy's rows have these names, and all others are references."""
        others = [row.name for row in table.rows if row.name != learned]  # sorted by regret
        savings = {name: table.difference(name, learned) for name in others}
        best = next((name for name in others if name != before), "")
        return cls(policy, before, savings, len(table.rows[0].regrets), best)

    def grade(self, name: str) -> str:
        """better, worse or alike, against a row of this name."""
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
            found = [n for n in self.savings if n != self.before and self.grade(n) == grade]
            if found:
                words.append(
                    f"{start} {', '.join(f'{name} ({_more(self.savings[name])})' for name in found)}."
                )
        return " ".join(words + self._advice(problem))

    def _on_before(self) -> str:
        saved, grade = self.savings[self.before], self.grade(self.before)
        if saved.mean == 0 and saved.se == 0:
            return "Learning changed nothing: where it began is the best that it found."
        numbers = f"paired, {self.instances} fresh instances"
        if grade == "alike":
            return (
                f"Learning changed nothing that can be told from noise: it saves {saved} regret "
                f"({numbers}), so the policy is as good as before."
            )
        if grade == "worse":
            return f"The policy is worse than before: it has {_more(saved)} ({numbers})."
        return f"The policy is better than before: learning saves {saved} regret ({numbers})."

    def _advice(self, problem: Problem) -> list[str]:
        """What to use, and what to try, where a reference is as good or better; or nothing."""
        if not self.best or self.grade(self.best) == "better":
            return (
                []
                if self.grade(self.before) == "better"
                else ["More instances (--instances) may show more."]
            )
        single = problem.pulls_per_round == 1 and problem.unit
        network = self.policy in ("lstm", "index")
        ideas = []
        if problem.unit and self.policy not in ("kl-softelim", "index"):
            ideas.append("--policy kl-softelim")
        if self.policy != "index":
            ideas.append("--policy index")
        if single and network:
            ideas.append("--imitate gittins")
        ideas.append("more instances (--instances)" if not network else "more iterations (--iterations)")
        return [f"Use {self.best} instead, or try {', '.join(ideas)}."]


def _more(saved: Mean) -> str:
    return f"{abs(saved.mean):.3f} ± {saved.se:.3f} {'less' if saved.mean >= 0 else 'more'} regret"
